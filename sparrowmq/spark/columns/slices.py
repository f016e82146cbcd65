"""Pieces of one byte block as numpy and Arrow arrays, without a loop over the pieces.

`at` reads an integer at any byte positions: a numpy view of the block whose rows start one byte apart, indexed by the
positions. `cut` makes a binary Arrow array of any pieces, given in order. It makes an array over the undivided block
whose offsets alternate piece, gap, piece, gap. Then `take` keeps every other element; the copy happens in C++.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def at(block: bytes | memoryview | pa.Buffer, positions: Positions, dtype: str) -> Any:
    """The values of numpy type `dtype` at byte `positions` of `block`, in the machine's byte order.

    Raises: IndexError, a value would reach beyond the block.
    """
    kind = np.dtype(dtype)
    count = len(memoryview(block)) - kind.itemsize + 1
    if not len(positions) or count < 1:
        return np.empty(0, kind)[positions].astype(kind.newbyteorder("="))
    view: npt.NDArray[Any] = np.ndarray(count, kind, block, 0, (1,))
    return view[positions].astype(kind.newbyteorder("="), copy=False)


def cut(
    block: bytes | memoryview | pa.Buffer,
    starts: Positions,
    ends: Positions,
    missing: Mask | None = None,
) -> pa.Array:
    """The pieces `[start, end)` of `block`, in order and without overlap, as binary; `missing` ones are null."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    undivided = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(block)])
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing)
    return undivided.take(wanted)


def text(values: pa.Array) -> pa.Array:
    """Binary values as strings; bytes that are not UTF-8 become U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()],
            pa.string(),
        )


def overwrite(values: pa.Array, rows: Any, others: Iterable[object]) -> pa.Array:
    """`values` with the rows at `rows` replaced by `others`."""
    if not len(rows):
        return values
    wanted = np.arange(len(values))
    wanted[rows] = len(values) + np.arange(len(rows))
    return pa.concat_arrays([values, pa.array(list(others), values.type)]).take(pa.array(wanted))
