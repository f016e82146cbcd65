"""cursor.py and cursor.pyx: numbers as Java has them, and no access beyond the bytes."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.cursor import In, Out

READS = (("u8", ">B"), ("u16", ">H"), ("i16", ">h"), ("i32", ">i"), ("i64", ">q"))
WRITES = (("u8", ">B"), ("i16", ">h"), ("i32", ">i"), ("i64", ">q"))


@given(st.binary(max_size=40), st.integers(-3, 43))
def test_numbers_are_read_where_they_fit_and_nowhere_else(data, at):
    for name, form in READS:
        if 0 <= at <= len(data) - struct.calcsize(form):
            assert getattr(In(data), name)(at) == struct.unpack_from(form, data, at)[0]
        else:
            with pytest.raises(IndexError):
                getattr(In(data), name)(at)


@given(st.binary(max_size=40), st.integers(-3, 43), st.integers(-3, 43))
def test_slices_and_checksums_end_with_the_bytes(data, at, end):
    if 0 <= at <= end <= len(data):
        assert In(data).slice(at, end) == data[at:end]
        assert In(data).crc(at, end) == zlib.crc32(data[at:end])
    else:
        for read in (In(data).slice, In(data).crc):
            with pytest.raises(IndexError):
                read(at, end)


@pytest.mark.parametrize("size", [*range(20), 511, 512, 513, 5000])
def test_checksums_of_all_sizes_are_those_of_zlib(size):
    data = bytes(i * 7 & 0xFF for i in range(size))
    out = Out()
    out.raw(b"ab")
    out.raw(data)
    assert In(data).crc(0, size) == out.crc(2) == zlib.crc32(data)


@pytest.mark.parametrize("at", [-1 << 63, -1, 1 << 62, (1 << 63) - 1])
def test_places_far_out_are_refused(at):
    with pytest.raises(IndexError):
        In(b"12345678").i64(at)
    with pytest.raises(IndexError):
        In(b"12345678").slice(0, at)


@given(st.integers(-1 << 70, 1 << 70))
def test_numbers_are_written_that_fit_and_no_others(number):
    for name, form in WRITES:
        out = Out()
        try:
            expected = struct.pack(form, number)
        except struct.error:
            with pytest.raises(OverflowError):
                getattr(out, name)(number)
            assert out.size == 0
        else:
            getattr(out, name)(number)
            assert out.take() == expected and out.size == 0


def test_what_is_made_grows_is_cut_and_begins_anew():
    out = Out()
    for _ in range(1000):
        out.raw(b"0123456789")
    assert out.size == 10_000
    out.cut(5)
    assert out.take() == b"01234" and out.take() == b""
    for size in (-1, 1):
        with pytest.raises(IndexError):
            out.cut(size)
        with pytest.raises(IndexError):
            out.crc(size)


def test_a_text_is_found_where_it_stands():
    assert In(b"abc").is_at(b"bc", 1) and not In(b"abc").is_at(b"bd", 1)
    with pytest.raises(IndexError):
        In(b"abc").is_at(b"bcd", 1)
