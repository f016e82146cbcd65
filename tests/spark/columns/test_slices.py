"""sparrowmq.spark.columns: integers at any place, and pieces of a block."""

import numpy as np
import pyarrow as pa
import pytest

from sparrowmq.spark.columns import cut, overwrite, text, values_at


@pytest.mark.parametrize(
    ("dtype", "positions", "expected"),
    [
        (">i4", [0, 1, 4], [0x00010203, 0x01020304, 0x040506FF]),
        (">u2", [6], [0x06FF]),
        ("u1", [7, 7], [255, 255]),
        (">i8", [0], [0x00010203040506FF]),
        (">i4", [], []),
    ],
)
def test_numbers_are_read_at_any_byte(dtype, positions, expected):
    found = values_at(bytes([0, 1, 2, 3, 4, 5, 6, 255]), np.array(positions, np.int64), dtype)
    assert found.tolist() == expected
    assert found.dtype.isnative


@pytest.mark.parametrize(("block", "position"), [(b"12345678", 5), (b"123", 0), (b"", 0)])
def test_a_number_beyond_the_block_is_refused(block, position):
    with pytest.raises(IndexError):
        values_at(block, np.array([position]), ">i4")


def pieces(block, bounds, missing=None):
    starts, ends = np.array(bounds, np.int64).reshape(-1, 2).T
    mask = None if missing is None else np.array(missing)
    found = cut(block, starts, ends, mask)
    found.validate(full=True)
    return found.to_pylist()


def test_pieces_may_be_empty_touch_or_leave_gaps():
    assert pieces(b"abcdef", [(0, 1), (1, 1), (1, 3), (5, 6)]) == [b"a", b"", b"bc", b"f"]
    assert pieces(b"abcdef", []) == []
    assert pieces(b"abcdef", [(0, 6)]) == [b"abcdef"]


def test_missing_pieces_are_null():
    assert pieces(b"abcdef", [(0, 1), (1, 1), (2, 3)], [False, True, False]) == [b"a", None, b"c"]


def test_bytes_that_are_not_utf8_are_replaced_as_java_does():
    assert text(pa.array([b"caf\xc3\xa9", None, b"\xff!"])).to_pylist() == ["café", None, "�!"]


def test_rows_are_overwritten_in_place():
    values = pa.array(["a", None, "c"])
    assert overwrite(values, np.array([0, 1]), iter(["x", "yy"])).to_pylist() == ["x", "yy", "c"]
    assert overwrite(values, np.array([], np.int64), iter([])) is values
