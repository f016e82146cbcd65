"""Many records at once: a pull body as Arrow columns, for readers that want rows by the million.

A pull body is records laid end to end (`record.py` draws one). Decoding them one after the other costs 6 us each. Here
a few numpy and Arrow calls make a column of 8,192 rows, about 0.4 us a row for all columns. A column that is not asked
for costs nothing. How it works:

- The record starts are found by walking from size to size (`record.starts`): the only loop over rows.
- A fixed field is gathered at one position per row out of an unaligned view of the whole body (`values_at`).
  Hosts of 8 or 20 bytes and topic lengths of 1 or 2 only move positions, so IPv6 and V2 records need no other code.
- A variable field is cut out by Arrow, with at most one C++ copy (`cut`).
- The properties of all rows are parsed at once (`PropertyColumns`).
- Rows that need more, compressed bodies, inner batches and the texts of IPv6 hosts, are made one by one and put in
  their places.

Body checksums are not verified here: that would cost as much as everything else together, and TCP has its own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel import record_layout as layout
from sparrowmq.kernel.record_layout import CRC_NAME, PROPERTY_CRC_SIZE
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import compression, message_id
from sparrowmq.protocol.messages.message import Property, SysFlag
from sparrowmq.protocol.messages.record import starts

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def values_at(block: bytes | memoryview | pa.Buffer, positions: Positions, dtype: str) -> Any:
    """The values of numpy type `dtype` at byte `positions` of `block`, in the machine's byte order.

    They are read through a view whose rows start one byte apart. Raises: IndexError, a value reaches beyond the block.
    """
    kind = np.dtype(dtype)
    count = len(memoryview(block)) - kind.itemsize + 1
    if not len(positions) or count < 1:
        return np.empty(0, kind)[positions].astype(kind.newbyteorder("="))
    view: npt.NDArray[Any] = np.ndarray(count, kind, block, 0, (1,))
    return view[positions].astype(kind.newbyteorder("="), copy=False)


def cut(
    block: bytes | memoryview | pa.Buffer, starts: Positions, ends: Positions, missing: Mask | None = None
) -> pa.Array:
    """The pieces `[start, end)` of `block`, in order and without overlap, as binary; `missing` ones are null.

    An array over the undivided block alternates piece and gap; `take` keeps every other element, and copies in C++.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    undivided = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(block)])
    pieces = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=missing)
    return undivided.take(pieces)


def text(values: pa.Array) -> pa.Array:
    """Binary values as strings; bytes that are not UTF-8 become U+FFFD, as in Java."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string()
        )


def overwrite(values: pa.Array, rows: Any, others: Iterable[object]) -> pa.Array:
    """`values` with the rows at `rows` replaced by `others`."""
    if not len(rows):
        return values
    order = np.arange(len(values))
    order[rows] = len(values) + np.arange(len(rows))
    return pa.concat_arrays([values, pa.array(list(others), values.type)]).take(pa.array(order))


_MIN_BYTES_AFTER_BODY: Final = layout.TOPIC_SIZE_FIELD_V1 + layout.PROPERTIES_SIZE_FIELD
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIRST_MS: Final = -62_135_596_800_000  # of the years 1 to 9999
_LAST_MS: Final = 253_402_300_799_999
_DIGITS_OF_TIME: Final = 14  # milliseconds up to the year 5138
_DIGITS_OF_PRIORITY: Final = 9


class RecordColumns:
    """The records of a pull body; a column is made when it is asked for. `len()` counts the records.

    With `internal`, the properties also show what a store adds for itself (the record checksum). With `within`, the
    records are those that begin and end there, in a body that may have more.
    """

    def __init__(
        self,
        body: bytes,
        *,
        decompress: bool = True,
        internal: bool = False,
        within: tuple[Positions, Positions] | None = None,
    ) -> None:
        self._body = body
        self._decompress = decompress
        self._internal = internal
        self._inflated: dict[int, bytes | None] = {}
        # Rows whose body was asked for and cannot be inflated.
        self.damaged_rows: dict[int, RemoteProtocolError] = {}
        if within is None:
            self._starts = np.array(starts(body), np.int64)
            self._ends = np.append(self._starts[1:], len(body)) if len(self._starts) else self._starts
        else:
            self._starts, self._ends = within
        self._locate()

    def __len__(self) -> int:
        return len(self._starts)

    def column(self, name: str) -> pa.Array:
        """One column. Raises: KeyError, no column of records has this name."""
        return _COLUMN_MAKERS[name](self)

    def filter(self, mask: Mask) -> RecordColumns:
        within = self._starts[mask], self._ends[mask]
        return RecordColumns(self._body, decompress=self._decompress, internal=self._internal, within=within)

    def parts(self, most_bytes: int) -> Iterator[RecordColumns]:
        """The records in their order, cut so that the compressed bodies of each part inflate to about `most_bytes`.

        A mebibyte of compressed bodies may become gigabytes. One larger body is a part of its own.
        """
        begin, size_bytes = 0, 0
        for row in self._compressed_rows().tolist():
            inflated = self._inflated[row] = self._inflate(row)
            size_bytes += len(inflated or b"")
            if size_bytes > most_bytes and row > begin:
                yield self._part(begin, row)
                begin, size_bytes = row, len(inflated or b"")
        yield self._part(begin, len(self)) if begin else self

    @cached_property
    def queue_offsets(self) -> Positions:
        offsets: Positions = self._values_at(layout.QUEUE_OFFSET_AT, ">i8")
        return offsets

    @property
    def physical_offsets(self) -> Positions:
        """Each record's place in its log, as it says."""
        offsets: Positions = self._values_at(layout.PHYSICAL_OFFSET_AT, ">i8")
        return offsets

    @cached_property
    def store_times_ms(self) -> Positions:
        times: Positions = values_at(self._body, self._store_times, ">i8")
        return times

    @cached_property
    def properties(self) -> PropertyColumns:
        begins, ends = self._topic_ends + layout.PROPERTIES_SIZE_FIELD, self._ends
        if self._internal:
            return PropertyColumns(cut(self._body, begins, ends))
        marks = values_at(self._body, ends - PROPERTY_CRC_SIZE, f"S{len(CRC_NAME)}")
        have_crc = (marks == CRC_NAME) & (ends - begins >= PROPERTY_CRC_SIZE)
        ends = ends - np.where(have_crc, PROPERTY_CRC_SIZE, 0)  # the store's own property is not even parsed
        return PropertyColumns(cut(self._body, begins, ends), hidden=(Property.CRC32,))

    @cached_property
    def stored_bodies(self) -> pa.Array:
        """The bodies as stored, perhaps compressed."""
        return cut(self._body, self._body_starts, self._body_ends)

    def bodies(self) -> pa.Array:
        """The bodies as they were sent; null for those that are `damaged_rows`."""
        rows = self._compressed_rows()
        inflated = (self._inflated[row] if row in self._inflated else self._inflate(row) for row in rows.tolist())
        return overwrite(self.stored_bodies, rows, inflated)

    def message_ids(self) -> pa.Array:
        """The producers' ids; for records without one, their places."""
        ids = self.properties.values_of(Property.UNIQ_KEY)
        if not ids.null_count:
            return ids
        rows = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        return overwrite(ids, rows, self.offset_ids().take(pa.array(rows)).to_pylist())

    def offset_ids(self) -> pa.Array:
        """Store host and physical offset in hexadecimal."""
        digits = np.empty((len(self), 2), "V8")
        digits[:, 0] = values_at(self._body, self._store_hosts, "V8")
        digits[:, 1] = values_at(self._body, self._starts + layout.PHYSICAL_OFFSET_AT, "V8")
        pairs = _HEX[digits.view(np.uint8)]
        bounds = np.arange(len(self) + 1, dtype=np.int32) * 32
        ids = pa.StringArray.from_buffers(len(self), pa.py_buffer(bounds), pa.py_buffer(pairs))
        rows = np.flatnonzero(self.sys_flags & SysFlag.STORE_V6)
        return overwrite(ids, rows, map(self._long_offset_id, rows.tolist()))

    def integers(self, place: int, dtype: str, kind: pa.DataType) -> pa.Array:
        """The integers `place` bytes behind each record's start."""
        return pa.array(self._values_at(place, dtype), kind)

    def _locate(self) -> None:
        """Find where the parts of each record begin and end, and check that they fit."""
        self.sys_flags: Positions = self._values_at(layout.SYS_FLAG_AT, ">i4")
        self._store_times = self._starts + layout.BORN_HOST_AT + self._host_sizes(SysFlag.BORN_V6)
        self._store_hosts = self._store_times + layout.STORE_HOST_BEHIND_STORE_TIMESTAMP
        self._trailers = self._store_hosts + self._host_sizes(SysFlag.STORE_V6)
        self._body_starts = self._trailers + layout.BODY_BEHIND_RECONSUME_TIMES
        self._check(self._body_starts <= self._ends - _MIN_BYTES_AFTER_BODY, "its hosts do not fit")
        self._body_ends = self._body_starts + values_at(
            self._body, self._body_starts - layout.BODY_SIZE_FIELD, ">u4"
        ).astype(np.int64)
        self._check(self._body_ends <= self._ends - _MIN_BYTES_AFTER_BODY, "its body does not fit")
        is_short = self._values_at(layout.MAGIC_AT, ">i4") == layout.MAGIC_V1
        self._topic_starts = self._body_ends + np.where(
            is_short, layout.TOPIC_SIZE_FIELD_V1, layout.TOPIC_SIZE_FIELD_V2
        )
        sizes = np.where(
            is_short, values_at(self._body, self._body_ends, "u1"), values_at(self._body, self._body_ends, ">u2")
        )
        self._topic_ends = self._topic_starts + sizes
        self._check(self._topic_ends <= self._ends - layout.PROPERTIES_SIZE_FIELD, "its topic does not fit")
        ends = self._topic_ends + layout.PROPERTIES_SIZE_FIELD + values_at(self._body, self._topic_ends, ">u2")
        self._check(ends == self._ends, "its properties do not fill the rest")

    def _check(self, holds: Mask, problem: str) -> None:
        if not holds.all():
            start = int(self._starts[np.argmin(holds)])
            raise RemoteProtocolError(f"the record at byte {start} of a pull body is broken: {problem}")

    def _values_at(self, place: int, dtype: str) -> Any:
        return values_at(self._body, self._starts + place, dtype)

    def _host_sizes(self, flag: int) -> Any:
        if not (self.sys_flags & flag).any():
            return hosts.IPV4_SIZE
        return np.where(self.sys_flags & flag, hosts.IPV6_SIZE, hosts.IPV4_SIZE)

    def _timestamps(self, positions: Positions) -> pa.Array:
        """Null where a clock was wrong: the microseconds would be those of another time."""
        millis = values_at(self._body, positions, ">i8")
        is_invalid = (millis < _FIRST_MS) | (millis > _LAST_MS)
        if is_invalid.any():
            return pa.array(np.where(is_invalid, 0, millis) * 1000, mask=is_invalid).cast(_TIMESTAMP)
        micros = millis * 1000
        return pa.Array.from_buffers(_TIMESTAMP, len(self), [None, pa.py_buffer(micros)])

    def _integer_property(self, most_digits: int, *names: str) -> pa.Array:
        """The first of these properties that each record has, as a number; null where it is none."""
        values = pc.coalesce(*map(self.properties.values_of, names))
        if values.null_count == len(values):
            return pa.nulls(len(values), pa.int64())
        is_number = pc.match_substring_regex(values, f"^[0-9]{{1,{most_digits}}}$")
        return pc.if_else(is_number, values, pa.scalar(None, pa.string())).cast(pa.int64())

    def _due_times(self) -> pa.Array:
        """A delayed message has the first of the two until it is delivered, and the second from then on."""
        millis = self._integer_property(_DIGITS_OF_TIME, Property.TIMER_DELIVER_MS, Property.TIMER_OUT_MS)
        return millis.cast(pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP)

    def _host_texts(self, positions: Positions, flag: int) -> pa.Array:
        encoded = pa.array(values_at(self._body, positions, ">u8")).dictionary_encode()
        texts = pa.array(
            [hosts.unpack(host.to_bytes(8, "big")) for host in encoded.dictionary.to_pylist()], pa.string()
        )
        rows = np.flatnonzero(self.sys_flags & flag)
        long_hosts = (self._body[positions[row] : positions[row] + hosts.IPV6_SIZE] for row in rows)
        return overwrite(texts.take(encoded.indices), rows, map(hosts.unpack, long_hosts))

    def _compressed_rows(self) -> Positions:
        flags = SysFlag.COMPRESSED | SysFlag.INNER_BATCH
        return np.flatnonzero(self.sys_flags & flags if self._decompress else ())

    def _inflate(self, row: int) -> bytes | None:
        packed, flags = self._body[self._body_starts[row] : self._body_ends[row]], int(self.sys_flags[row])
        try:
            if flags & SysFlag.INNER_BATCH:  # Producers of Apache's brokers may set it with any body, too.
                raise RemoteProtocolError("it holds several messages (a batch of the BatchConsumeQueue kind)")
            return compression.decompress(packed, flags)
        except RemoteProtocolError as error:
            self.damaged_rows[row] = error
            return None

    def _part(self, begin: int, end: int) -> RecordColumns:
        within = self._starts[begin:end], self._ends[begin:end]
        part = RecordColumns(self._body, decompress=self._decompress, internal=self._internal, within=within)
        for row in [row for row in self._inflated if row < end]:
            part._inflated[row - begin] = self._inflated.pop(row)
        for row in [row for row in self.damaged_rows if row < end]:
            part.damaged_rows[row - begin] = self.damaged_rows.pop(row)
        return part

    def _long_offset_id(self, row: int) -> str:
        place = self._store_hosts[row]
        (physical_offset,) = struct.unpack_from(">q", self._body, self._starts[row] + layout.PHYSICAL_OFFSET_AT)
        return message_id.offset_id(self._body[place : place + hosts.IPV6_SIZE], physical_offset)


_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), "V2")

_COLUMN_MAKERS: Final[dict[str, Callable[[RecordColumns], pa.Array]]] = {
    "topic": lambda records: text(cut(records._body, records._topic_starts, records._topic_ends)),
    "queueId": lambda records: records.integers(layout.QUEUE_ID_AT, ">i4", pa.int32()),
    "queueOffset": lambda records: pa.array(records.queue_offsets),
    "msgId": RecordColumns.message_ids,
    "offsetMsgId": RecordColumns.offset_ids,
    "keys": lambda records: records.properties.values_of(Property.KEYS),
    "tags": lambda records: records.properties.values_of(Property.TAGS),
    "flag": lambda records: records.integers(layout.FLAG_AT, ">i4", pa.int32()),
    "sysFlag": lambda records: pa.array(records.sys_flags),
    "body": RecordColumns.bodies,
    "properties": lambda records: records.properties.maps(),
    "bornTimestamp": lambda records: records._timestamps(records._starts + layout.BORN_TIMESTAMP_AT),
    "storeTimestamp": lambda records: records._timestamps(records._store_times),
    "bornHost": lambda records: records._host_texts(records._starts + layout.BORN_HOST_AT, SysFlag.BORN_V6),
    "storeHost": lambda records: records._host_texts(records._store_hosts, SysFlag.STORE_V6),
    "reconsumeTimes": lambda records: pa.array(values_at(records._body, records._trailers, ">i4")),
    "preparedTransactionOffset": lambda records: pa.array(
        values_at(records._body, records._trailers + layout.PREPARED_OFFSET_BEHIND_RECONSUME_TIMES, ">i8")
    ),
    "storeSize": lambda records: pa.array((records._ends - records._starts).astype(np.int32)),
    "bodyCrc": lambda records: records.integers(layout.BODY_CRC_AT, ">i4", pa.int32()),
    "shardingKey": lambda records: records.properties.values_of(Property.SHARDING_KEY),
    "deliverTimestamp": RecordColumns._due_times,
    "priority": lambda records: records._integer_property(_DIGITS_OF_PRIORITY, Property.PRIORITY).cast(pa.int32()),
}


HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])

_NAME_END: Final = 1
_VALUE_END: Final = 2


class PropertyColumns:
    """The properties of many records; `hidden` names are left out. They are parsed when they are needed.

    All property strings follow each other in one block, name 0x01 value 0x02 each. Every 0x01 and 0x02 of the block is
    found at once; a pair is then three positions: the start of its name, the 0x01, and its end.

        K E Y S 01 a b 02 T A G S 01 c 02 | K E Y S 01 d     | : a row's end, which also ends a pair without 0x02
        ^start  ^mid   ^end

    As in Java a pair without 0x01, without a name or without a value does not count, and further 0x01 belong to the
    value. Unlike Java, a name that occurs twice in one record is twice in the map: a check for that would cost more
    than all the rest, and no client writes it.
    """

    def __init__(self, block: pa.Array, hidden: Sequence[str] = ()) -> None:
        """`block` holds each record's property string from the start of its buffer on, as `cut` makes it."""
        self._count = len(block)
        self._hidden = hidden
        _, bounds, octets = block.buffers()
        self._block = octets if octets is not None else pa.py_buffer(b"")
        self._bounds = np.zeros(1, np.int64)
        if self._count:
            self._bounds = np.frombuffer(bounds, np.int32, self._count + 1).astype(np.int64)
        self._pairs: _Pairs | None = None

    def maps(self) -> pa.Array:
        pairs = self._parse()
        return pa.MapArray.from_arrays(pairs.bounds(), pairs.names(), text(pairs.values()))

    def headers(self) -> pa.Array:
        """A list of (key, value bytes) for each row, the form of Kafka's headers."""
        pairs = self._parse()
        headers = pa.StructArray.from_arrays([pairs.names(), pairs.values()], fields=list(HEADER))
        return pa.ListArray.from_arrays(pairs.bounds(), headers)

    def values_of(self, name: str) -> pa.Array:
        """The property of that name as a string for each row; null where there is none."""
        if self._pairs is None and not self._may_contain(name):
            return pa.nulls(self._count, pa.string())
        rows, value_begins, value_ends = self._parse().places_of(name)
        if not len(rows):
            return pa.nulls(self._count, pa.string())
        begins = self._bounds[:-1].copy()
        ends = begins.copy()
        begins[rows], ends[rows] = value_begins, value_ends
        missing = np.ones(self._count, np.bool_)
        missing[rows] = False
        return text(cut(self._block, begins, ends, missing if missing.any() else None))

    def _may_contain(self, name: str) -> bool:
        """Whether any row may have the property. To look for its name costs a third of finding all pairs."""
        needle = re.escape(name.encode()) + bytes([_NAME_END])
        return re.search(needle, memoryview(self._block)[: self._bounds[-1]]) is not None

    def _parse(self) -> _Pairs:
        if self._pairs is None:
            self._pairs = _Pairs(self._block, self._bounds)
            for name in self._hidden:
                self._pairs.keep(~self._pairs.is_named(name))
        return self._pairs


class _Pairs:
    """The places of the pairs of a block: their begins, first 0x01, and ends; and the pairs of each row."""

    def __init__(self, block: pa.Buffer, bounds: Positions) -> None:
        """`bounds` are where the rows begin, and where the last one ends."""
        self._block, self._bounds = block, bounds
        octets = np.frombuffer(block, np.uint8, bounds[-1])
        marks = np.flatnonzero((octets - np.uint8(_NAME_END)) <= _VALUE_END - _NAME_END)
        kinds = octets[marks]
        if len(kinds) % 2 == 0 and (kinds[0::2] == _NAME_END).all() and (kinds[1::2] == _VALUE_END).all():
            self._mids, self._ends = marks[0::2], marks[1::2]
        else:
            self._mids, self._ends = marks[kinds == _NAME_END], marks[kinds == _VALUE_END]
        nexts = self._close_rows(octets)
        self._starts = np.concatenate([np.zeros(min(1, len(nexts)), np.int64), nexts[:-1]])
        self._offsets = np.searchsorted(nexts, bounds, side="right")
        is_regular = len(self._mids) == len(self._ends) and bool(
            (self._mids > self._starts).all() and (self._mids < self._ends - 1).all()
        )
        if not is_regular:  # give each pair its first 0x01, and drop the pairs that do not count
            mids = np.append(self._mids, np.iinfo(np.int64).max)
            self._mids = mids[np.searchsorted(mids, self._starts)]
            self.keep((self._mids > self._starts) & (self._mids < self._ends - 1))

    def names(self) -> pa.Array:
        return text(cut(self._block, self._starts, self._mids))

    def values(self) -> pa.Array:
        return cut(self._block, self._mids + 1, self._ends)

    def bounds(self) -> pa.Array:
        """The number of each row's first pair, and of all pairs."""
        return pa.array(self._offsets.astype(np.int32))

    def places_of(self, name: str) -> tuple[Positions, Positions, Positions]:
        """The rows that have a property of that name; where its values begin and end."""
        pairs = np.flatnonzero(self.is_named(name))
        rows = np.repeat(np.arange(len(self._offsets) - 1), np.diff(self._offsets))[pairs]
        return rows, self._mids[pairs] + 1, self._ends[pairs]

    def _close_rows(self, octets: npt.NDArray[np.uint8]) -> Positions:
        """End the pairs that end with their row; gives where the pair after each pair starts."""
        row_ends = self._bounds[1:]
        filled = row_ends[row_ends > self._bounds[:-1]]
        is_open = octets[filled - 1] != _VALUE_END
        if not is_open.any():
            return self._ends + 1
        nexts = np.concatenate([self._ends + 1, filled[is_open]])
        order = np.argsort(nexts, kind="stable")
        self._ends = np.concatenate([self._ends, filled[is_open]])[order]
        return nexts[order]

    def keep(self, mask: Mask) -> None:
        if not mask.all():
            self._starts, self._mids, self._ends = (self._starts[mask], self._mids[mask], self._ends[mask])
            self._offsets = np.concatenate([[0], np.cumsum(mask)])[self._offsets]

    def is_named(self, name: str) -> Mask:
        needle = name.encode()
        is_named: Mask = self._mids - self._starts == len(needle)
        candidates = np.flatnonzero(is_named)
        is_named[candidates] = values_at(self._block, self._starts[candidates], f"S{len(needle)}") == needle
        return is_named
