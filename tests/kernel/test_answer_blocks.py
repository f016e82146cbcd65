"""The header blocks of answers, as hpack reads them."""

from __future__ import annotations

from urllib.parse import unquote

import hpack
import pytest

from sparrowmq.kernel import answer_blocks


def read(block):
    return hpack.Decoder().decode(block)


def test_a_call_begins_with_its_status_and_type():
    assert read(answer_blocks.GRPC_HEADERS) == [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity,gzip"),
    ]


@pytest.mark.parametrize("message", ["", "plain", "100% é\n", "x" * 126, "x" * 127, "x" * 128, "x" * 40_000])
def test_trailers_carry_code_and_message(message):
    pairs = dict(read(answer_blocks.trailers(5, message)))
    assert pairs["grpc-status"] == "5"
    assert unquote(pairs.get("grpc-message", "")) == message
    assert pairs.get("grpc-message", "").isascii()


def test_a_call_that_went_well_has_no_message():
    assert read(answer_blocks.trailers(0, "")) == [("grpc-status", "0")]


def test_a_call_without_messages_has_headers_and_trailers_in_one():
    pairs = dict(read(answer_blocks.GRPC_HEADERS + answer_blocks.trailers(12, "no")))
    assert pairs[":status"] == "200"
    assert pairs["grpc-status"] == "12"


def test_what_is_no_call_gets_a_status_of_http():
    assert read(answer_blocks.plain(415)) == [(":status", "415"), ("content-type", "text/plain")]


def test_other_headers_never_enter_a_table():
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = 0
    block = answer_blocks.NO_TABLE + answer_blocks.GRPC_HEADERS + answer_blocks.trailers(13, "why")
    pairs = [(str(name), str(value)) for name, value in decoder.decode(block)]
    assert ("grpc-message", "why") in pairs
