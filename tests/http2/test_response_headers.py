"""The header blocks of answers, as hpack reads them."""

from __future__ import annotations

from urllib.parse import unquote

import hpack
import pytest

from sparrowmq.http2 import response_headers


def read(block):
    return hpack.Decoder().decode(block)


def test_a_call_begins_with_its_status_and_type():
    assert read(response_headers.GRPC_HEADERS) == [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity,gzip"),
    ]


@pytest.mark.parametrize("message", ["", "plain", "100% é\n", "x" * 126, "x" * 127, "x" * 128, "x" * 40_000])
def test_trailers_carry_code_and_message(message):
    pairs = dict(read(response_headers.trailers(5, message)))
    assert pairs["grpc-status"] == "5"
    assert unquote(pairs.get("grpc-message", "")) == message
    assert pairs.get("grpc-message", "").isascii()


def test_a_call_that_went_well_has_no_message():
    assert read(response_headers.trailers(0, "")) == [("grpc-status", "0")]


def test_a_call_without_messages_has_headers_and_trailers_in_one():
    pairs = dict(read(response_headers.trailers_only(12, "no")))
    assert pairs[":status"] == "200"
    assert pairs["grpc-status"] == "12"


def test_what_is_no_call_gets_a_status_of_http():
    assert read(response_headers.plain(415)) == [(":status", "415"), ("content-type", "text/plain")]


@pytest.mark.parametrize("order", ["ht", "th", "hhtt", "tthh", "hthetht"])
def test_a_client_reads_the_same_headers_when_they_are_numbers(order):
    blocks = {
        "h": response_headers.GRPC_HEADERS,
        "t": response_headers.OK_TRAILERS,
        "e": response_headers.trailers_only(5, "no"),
    }
    table, decoder = response_headers.ClientTable(), hpack.Decoder()
    sent = [table.shortened(blocks[name]) for name in order * 2]
    assert [decoder.decode(block) for block in sent] == [read(blocks[name]) for name in order * 2]
    sizes = {(name, len(block)) for block, name in zip(sent[len(order) :], order, strict=True)}
    assert sizes - {("e", len(blocks["e"]))} == {("h", 3), ("t", 1)}


def test_a_client_without_a_table_gets_whole_headers():
    table = response_headers.ClientTable()
    table.is_used = False
    assert table.shortened(response_headers.GRPC_HEADERS) == response_headers.GRPC_HEADERS


def test_other_headers_never_enter_a_table():
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = 0
    block = response_headers.NO_TABLE + response_headers.trailers_only(13, "why")
    pairs = [(str(name), str(value)) for name, value in decoder.decode(block)]
    assert ("grpc-message", "why") in pairs
