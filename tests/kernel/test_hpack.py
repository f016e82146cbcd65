"""Compressed header blocks."""

import hpack
import pytest
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel import frame_layout as frames
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.frame_layout import HARD_LIST_BYTES, ConnectionFault
from sparrowmq.kernel.hpack import HeaderReader
from tests.http2.peer_frames import CALL


def raw(*more, base=CALL):
    return [(name.encode(), value.encode("latin-1")) for name, value in [*base, *more]]


def read(reader, block):
    return [(header.name, header.value) for header in reader.read(In(block), 0, len(block))]


def test_blocks_share_the_table_of_their_connection():
    encoder, reader = hpack.Encoder(), HeaderReader()
    first, second = encoder.encode(CALL), encoder.encode(CALL)
    assert len(second) < len(first)
    assert read(reader, first) == raw() == read(reader, second)


@pytest.mark.parametrize("block", [b"\xff", b"\x80", b"\xbe", b"\0\x05abc", b"\x3f\xff\xff\x7f", b"\xff" * 50])
def test_a_broken_block_ends_the_connection(block):
    with pytest.raises(ConnectionFault) as caught:
        read(HeaderReader(), block)
    assert caught.value.code == frames.COMPRESSION_ERROR


def test_a_small_block_does_not_become_a_large_list():
    """A bomb: one long header that enters the table, and then its number many times."""
    reader = HeaderReader()
    block = b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000 + b"\xbe" * (HARD_LIST_BYTES // 4000 + 1)
    with pytest.raises(ConnectionFault) as caught:
        read(reader, block)
    assert caught.value.code == frames.ENHANCE_YOUR_CALM


def test_a_block_does_not_change_the_size_of_the_table_thousands_of_times():
    with pytest.raises(ConnectionFault) as caught:
        read(HeaderReader(), b"\x20" * 2_000)
    assert caught.value.code == frames.ENHANCE_YOUR_CALM


NAMES = st.sampled_from([b":method", b":path", b"x-mq-request-id", b"te", b"x" * 80])
VALUES = st.sampled_from([b"POST", b"/", b"", b"trailers", b"y" * 300]) | st.binary(max_size=40)


@given(
    st.lists(st.tuples(st.lists(st.tuples(NAMES, VALUES), max_size=12), st.booleans(), st.sampled_from([0, 100, 4096])))
)
def test_blocks_that_share_a_table_are_read_as_hpack_reads_them(blocks):
    encoder, reader, reference = hpack.Encoder(), HeaderReader(), hpack.Decoder()
    for headers, is_coded, table_bytes in blocks:
        encoder.header_table_size = table_bytes
        block = encoder.encode(headers, huffman=is_coded)
        assert read(reader, block) == list(reference.decode(block, raw=True)) == headers


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_read_or_refused_as_hpack_does(blocks):
    reader, reference = HeaderReader(), hpack.Decoder()
    for block in blocks:
        try:
            expected = list(reference.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError):
            with pytest.raises(ConnectionFault):
                read(reader, block)
            return
        assert read(reader, block) == expected


def test_a_header_says_why_a_request_may_not_have_it():
    block = hpack.Encoder().encode([("x-a", "1"), ("X", "1"), ("te", "gzip"), ("upgrade", "h2"), ("x-a", "1\n")])
    assert [header.fault for header in HeaderReader().read(In(block), 0, len(block))] == [
        None,
        "a header may not be called b'X' here",
        "the header b'te' is of HTTP/1",
        "the header b'upgrade' is of HTTP/1",
        "the value of b'x-a' has a line end or a NUL",
    ]


def test_a_block_ends_where_it_is_said_to_end():
    with pytest.raises(ConnectionFault):
        HeaderReader().read(In(b"\0\1a\1b"), 0, 4)
