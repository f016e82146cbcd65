"""Messages with their lengths, timeouts and compression."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.http2.calls import GrpcError, Status
from sparrowmq.http2.grpc_wire import MessageReader, framed, timeout_s


def all_of(reader):
    return [reader.decompressed(each) if reader.is_compressed else each for each in iter(reader.next, None)]


@given(some.lists(some.binary(max_size=50)), some.integers(1, 20))
def test_messages_come_back_however_they_are_cut(messages, size):
    raw = b"".join(map(framed, messages))
    reader = MessageReader(100)
    found = []
    for at in range(0, len(raw), size):
        reader.add(raw[at : at + size])
        found += all_of(reader)
    assert found == messages
    assert reader.held_bytes == 0


def test_a_reader_knows_what_is_missing():
    reader = MessageReader(1000)
    assert reader.missing_bytes() == 5
    reader.add(framed(bytes(300))[:10])
    assert reader.missing_bytes() == 295
    reader.add(bytes(400))
    assert reader.missing_bytes() == 0


def test_a_message_above_the_limit_is_refused_by_its_length():
    reader = MessageReader(1000)
    reader.add(framed(bytes(1001))[:5])
    for ask in (reader.missing_bytes, reader.next):
        with pytest.raises(GrpcError) as caught:
            ask()
        assert caught.value.code == Status.RESOURCE_EXHAUSTED


def compressed(body):
    raw = gzip.compress(body, mtime=0)
    return b"\1" + len(raw).to_bytes(4, "big") + raw


def test_a_compressed_message_is_decompressed():
    reader = MessageReader(1000, "gzip")
    reader.add(compressed(b"a" * 1000) + framed(b"plain"))
    assert all_of(reader) == [b"a" * 1000, b"plain"]


@pytest.mark.parametrize(
    ("raw", "encoding", "code"),
    [
        (compressed(b"a" * 1001), "gzip", Status.RESOURCE_EXHAUSTED),
        (compressed(b"a" * 50_000), "gzip", Status.RESOURCE_EXHAUSTED),
        (compressed(b"a"), "identity", Status.INTERNAL),
        (b"\1\0\0\0\3abc", "gzip", Status.INTERNAL),
        (b"\1\0\0\0\x0a" + gzip.compress(b"abc", mtime=0)[:10], "gzip", Status.INTERNAL),
        (b"\2\0\0\0\0", "gzip", Status.INTERNAL),
    ],
)
def test_wrong_compression_is_refused(raw, encoding, code):
    reader = MessageReader(1000, encoding)
    reader.add(raw)
    with pytest.raises(GrpcError) as caught:
        all_of(reader)
    assert caught.value.code == code


def test_a_small_message_does_not_become_a_large_one_in_memory():
    raw = compressed(bytes(30_000_000))
    reader = MessageReader(100_000, "gzip")
    reader.add(raw)
    tracemalloc.start()
    try:
        with pytest.raises(GrpcError):
            all_of(reader)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1H", 3600.0), ("2M", 120.0), ("3S", 3.0), ("250m", 0.25), ("5u", 5e-6), ("99999999n", 0.099999999)],
)
def test_timeouts_have_their_units(text, expected):
    assert timeout_s(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "S", "1", "1s", "-1S", "1.5S", "999999999S", "²S"])
def test_a_wrong_timeout_is_refused(text):
    with pytest.raises(GrpcError):
        timeout_s(text)


def test_a_large_message_is_copied_once():
    reader = MessageReader(16 << 20)
    reader.add(framed(bytes(16 << 20)))
    tracemalloc.start()
    try:
        message = reader.next()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message == bytes(16 << 20) and most_bytes < 17 << 20
