"""kernel/columns.py and the loops of the cursor: places, numbers, pieces and properties of many rows at once."""

from __future__ import annotations

import struct
import sys
from array import array

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel import columns
from sparrowmq.kernel.cursor import In, Longs
from sparrowmq.protocol.messages import properties, record
from tests.records import encoded

EXTREME = [0, 1, -1, 1 << 31, -(1 << 31), (1 << 63) - 1, -1 << 63]
PLACES = st.lists(st.integers(-3, 30) | st.sampled_from(EXTREME), max_size=6)


def longs(numbers):
    return Longs(array("q", numbers).tobytes())


def listed(numbers):
    return array("q", numbers.native()).tolist()


@given(st.binary(max_size=40), PLACES, st.integers(-9, 9), st.sampled_from([4, 8]))
def test_numbers_are_those_at_each_place_or_none_at_all(data, places, shift, size):
    if all(0 <= at <= len(data) and 0 <= at + shift <= len(data) - size for at in places):
        found = array("i" if size == 4 else "q", In(data).numbers(longs(places), shift, size)).tolist()
        assert found == [struct.unpack_from(">i" if size == 4 else ">q", data, at + shift)[0] for at in places]
    else:
        with pytest.raises(IndexError):
            In(data).numbers(longs(places), shift, size)


@given(st.binary(max_size=20), st.lists(st.tuples(st.integers(-2, 21), st.integers(-2, 21)), max_size=10))
def test_pieces_are_those_between_begin_and_end_or_none_at_all(data, places):
    begins, ends = longs([at for at, _ in places]), longs([end for _, end in places])
    if all(at == -1 or 0 <= at <= end <= len(data) for at, end in places):
        missing, validity, bounds, content = In(data).cut(begins, 0, ends, 0)
        buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(bounds), pa.py_buffer(content)]
        found = pa.Array.from_buffers(pa.binary(), len(places), buffers, missing)
        found.validate(full=True)
        assert found.to_pylist() == [None if at == -1 else data[at:end] for at, end in places]
    else:
        with pytest.raises(IndexError):
            In(data).cut(begins, 0, ends, 0)


def test_pieces_may_begin_and_end_beside_their_places():
    _, _, bounds, content = In(b"abcdef").cut(longs([0, 3]), 1, longs([4, 6]), -1)
    assert (content, array("i", bounds).tolist()) == (b"bce", [0, 2, 3])
    with pytest.raises(IndexError):
        In(b"abcdef").cut(longs([0, 5]), 1, longs([6, 5]), 0)


@given(st.lists(st.binary(max_size=12).map(lambda each: bytes(byte % 4 for byte in each)), max_size=5))
def test_pairs_are_those_of_the_parser(texts):
    data, bounds = b"".join(texts), [0]
    for text in texts:
        bounds.append(bounds[-1] + len(text))
    pairs = columns.Pairs(In(data), longs(bounds[:-1]), 0, longs(bounds[1:]), True)
    firsts = listed(pairs.firsts)
    places = list(zip(listed(pairs.names_at), listed(pairs.names_end), listed(pairs.values_end), strict=True))
    found = [
        {data[at:middle]: data[middle + 1 : end] for at, middle, end in places[firsts[row] : firsts[row + 1]]}
        for row in range(len(texts))
    ]
    expected = [{name.encode(): value.encode() for name, value in properties.parse(text).items()} for text in texts]
    assert found == expected
    value_begins, value_ends = map(listed, pairs.values(b"\0"))
    values = [None if at == -1 else data[at:end] for at, end in zip(value_begins, value_ends, strict=True)]
    assert values == [each.get(b"\0") for each in expected]


def test_values_of_too_few_pairs_are_refused():
    with pytest.raises(IndexError):
        In(b"a").values(b"a", longs([0]), longs([1]), longs([1]), longs([0, 2]))
    with pytest.raises(ValueError, match="as many"):
        In(b"a").values(b"a", longs([0]), longs([1]), longs([]), longs([0, 1]))
    with pytest.raises(IndexError):
        In(b"a").values(b"a", longs([1]), longs([2]), longs([1]), longs([0, 1]))


@given(st.lists(st.integers(-1 << 63, (1 << 63) - 1), max_size=100), st.data())
def test_numbers_are_kept_chosen_and_given_back(numbers, data):
    kept = Longs()
    for number in numbers:
        kept.append(number)
    assert listed(kept) == numbers and [kept.get(index) for index in range(kept.size)] == numbers
    mask = data.draw(st.binary(min_size=len(numbers), max_size=len(numbers)))
    chosen = [number for number, wanted in zip(numbers, mask, strict=True) if wanted]
    assert listed(kept.selected(In(mask))) == chosen
    with pytest.raises(ValueError, match="mask"):
        kept.selected(In(mask + b"x"))
    if all(-(1 << 31) <= number < 1 << 31 for number in numbers):
        assert array("i", kept.native_i32()).tolist() == numbers
    else:
        with pytest.raises(OverflowError):
            kept.native_i32()
    for index in (-1, len(numbers), sys.maxsize):
        with pytest.raises(IndexError):
            kept.get(index)


def test_numbers_do_not_come_from_half_a_number():
    with pytest.raises(ValueError, match="multiple"):
        Longs(b"1234567")


@given(st.binary(max_size=200), st.integers(0, 400), st.booleans())
def test_sound_rows_are_those_that_check_finds_nothing_wrong_with(noise, at, crc):
    parts = [encoded(body=b"x" * 30, crc=crc), encoded(topic="t" * 200, crc=crc, physical_offset=0)]
    whole = b"".join(parts)
    broken = whole[:at] + noise[: len(whole) - at] + whole[at + len(noise) :]
    begins, ends = [0, len(parts[0])], [len(parts[0]), len(whole)]
    found = columns.sound(broken, longs(begins).native(), longs(ends).native(), 0, True)
    expected = [record.check(broken[at:end], at) is None for at, end in zip(begins, ends, strict=True)]
    assert list(map(bool, found)) == expected


@given(st.binary(max_size=60), st.integers(0, 400))
def test_a_walk_finds_what_places_find_and_both_refuse_the_same(noise, at):
    parts = [encoded(body=b"x" * 30), encoded(topic="t" * 200)]
    whole = b"".join(parts)
    broken = whole[:at] + noise + whole[at + len(noise) :]
    try:
        rows = columns.walk(broken)
    except ValueError:
        return
    begins, ends = rows.begins.native(), rows.ends.native()
    again = columns.place(broken, begins, ends)
    for name in ("begins", "ends", "store_timestamp_at", "body_at", "body_end", "topic_at", "topic_end"):
        assert getattr(again, name).native() == getattr(rows, name).native()
    assert rows.selected(bytes(rows.begins.size)).begins.size == 0
