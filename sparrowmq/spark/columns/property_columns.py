"""The properties of many records as Arrow columns.

All property strings follow each other in one block, name 0x01 value 0x02 each. Every 0x01 and 0x02 of the block is
found at once; a pair is then three positions: the start of its name, the 0x01, and its end.

    K E Y S 01 a b 02 T A G S 01 c 02 | K E Y S 01 d       | : a row's end, which ends a pair without the last 0x02 too
    ^start  ^mid   ^end

As in Java a pair without 0x01, without a name or without a value does not count, and further 0x01 belong to the value.
Unlike Java, a name that occurs twice in one record is twice in the map: a check for that would cost more than all
the rest, and no client writes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.spark.columns.slices import Mask, Positions, at, cut, text

HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

_MID: Final = 1
_END: Final = 2


class PropertyColumns:
    """The pairs of all rows; `hidden` names are left out. They are found when they are needed."""

    def __init__(self, block: pa.Array, hidden: Sequence[str] = ()) -> None:
        """`block` holds each record's property string from the start of its buffer on, as `slices.cut` makes it."""
        self._count = len(block)
        self._hidden = hidden
        _, bounds, octets = block.buffers()
        self._block = octets if octets is not None else pa.py_buffer(b"")
        self._bounds = np.zeros(1, np.int64)
        if self._count:
            self._bounds = np.frombuffer(bounds, np.int32, self._count + 1).astype(np.int64)
        self._pairs: _Pairs | None = None

    def maps(self) -> pa.Array:
        """A map of names to values for each row."""
        pairs = self._found()
        return pa.MapArray.from_arrays(pairs.bounds(), pairs.names(), text(pairs.values()))

    def headers(self) -> pa.Array:
        """A list of (key, value bytes) for each row, the form of Kafka's headers."""
        pairs = self._found()
        headers = pa.StructArray.from_arrays([pairs.names(), pairs.values()], fields=list(HEADER))
        return pa.ListArray.from_arrays(pairs.bounds(), headers)

    def values_of(self, name: str) -> pa.Array:
        """The property of that name as a string for each row; null where there is none."""
        if self._pairs is None and not self._may_hold(name):
            return pa.nulls(self._count, pa.string())
        rows, value_begins, value_ends = self._found().places_of(name)
        if not len(rows):
            return pa.nulls(self._count, pa.string())
        begins = self._bounds[:-1].copy()
        ends = begins.copy()
        begins[rows], ends[rows] = value_begins, value_ends
        missing = np.ones(self._count, np.bool_)
        missing[rows] = False
        return text(cut(self._block, begins, ends, missing if missing.any() else None))

    def _may_hold(self, name: str) -> bool:
        """Whether any row may have the property. To look for its name costs a third of finding all pairs."""
        wanted = re.escape(name.encode()) + bytes([_MID])
        return re.search(wanted, memoryview(self._block)[: self._bounds[-1]]) is not None

    def _found(self) -> _Pairs:
        if self._pairs is None:
            self._pairs = _Pairs(self._block, self._bounds)
            for name in self._hidden:
                self._pairs.leave_out(name)
        return self._pairs


class _Pairs:
    """The places of the pairs of a block: their begins, first 0x01, and ends; and the pairs of each row."""

    def __init__(self, block: pa.Buffer, bounds: Positions) -> None:
        """`bounds` are where the rows begin, and where the last one ends."""
        self._block, self._bounds = block, bounds
        octets = np.frombuffer(block, np.uint8, bounds[-1])
        marks = np.flatnonzero((octets - np.uint8(_MID)) <= _END - _MID)
        kinds = octets[marks]
        if len(kinds) % 2 == 0 and (kinds[0::2] == _MID).all() and (kinds[1::2] == _END).all():
            self._mids, self._ends = marks[0::2], marks[1::2]
        else:
            self._mids, self._ends = marks[kinds == _MID], marks[kinds == _END]
        nexts = self._close_rows(octets)
        self._starts = np.concatenate([np.zeros(min(1, len(nexts)), np.int64), nexts[:-1]])
        self._offsets = np.searchsorted(nexts, bounds, side="right")
        if not self._is_regular():
            self._match_irregular()

    def names(self) -> pa.Array:
        return text(cut(self._block, self._starts, self._mids))

    def values(self) -> pa.Array:
        return cut(self._block, self._mids + 1, self._ends)

    def bounds(self) -> pa.Array:
        """The number of each row's first pair, and of all pairs."""
        return pa.array(self._offsets.astype(np.int32))

    def places_of(self, name: str) -> tuple[Positions, Positions, Positions]:
        """The rows that have a property of that name; where its values begin and end."""
        pairs = np.flatnonzero(self._is_named(name))
        rows = np.repeat(np.arange(len(self._offsets) - 1), np.diff(self._offsets))[pairs]
        return rows, self._mids[pairs] + 1, self._ends[pairs]

    def leave_out(self, name: str) -> None:
        self._keep(~self._is_named(name))

    def _close_rows(self, octets: npt.NDArray[np.uint8]) -> Positions:
        """End the pairs that end with their row; gives where the pair after each pair starts."""
        row_ends = self._bounds[1:]
        filled = row_ends[row_ends > self._bounds[:-1]]
        is_open = octets[filled - 1] != _END
        if not is_open.any():
            return self._ends + 1
        nexts = np.concatenate([self._ends + 1, filled[is_open]])
        order = np.argsort(nexts, kind="stable")
        self._ends = np.concatenate([self._ends, filled[is_open]])[order]
        return nexts[order]

    def _is_regular(self) -> bool:
        """Whether name, 0x01 and value alternate everywhere, and none is empty."""
        return len(self._mids) == len(self._ends) and bool(
            (self._mids > self._starts).all() and (self._mids < self._ends - 1).all()
        )

    def _match_irregular(self) -> None:
        """Give each pair its first 0x01, and drop the pairs that do not count."""
        found = np.append(self._mids, np.iinfo(np.int64).max)
        self._mids = found[np.searchsorted(found, self._starts)]
        self._keep((self._mids > self._starts) & (self._mids < self._ends - 1))

    def _keep(self, wanted: Mask) -> None:
        if not wanted.all():
            self._starts, self._mids, self._ends = (
                self._starts[wanted],
                self._mids[wanted],
                self._ends[wanted],
            )
            self._offsets = np.concatenate([[0], np.cumsum(wanted)])[self._offsets]

    def _is_named(self, name: str) -> Mask:
        wanted = name.encode()
        is_named: Mask = self._mids - self._starts == len(wanted)
        candidates = np.flatnonzero(is_named)
        is_named[candidates] = at(self._block, self._starts[candidates], f"S{len(wanted)}") == wanted
        return is_named
