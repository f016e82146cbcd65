"""Many records at once: a pull body as Arrow columns, for readers that want rows by the million.

A pull body is records laid end to end (`record.py` draws one). The kernel finds their parts in one pass, and makes the
buffers of a column in another (`kernel/columns.py`); Arrow takes them without a copy. A column that is not asked for
costs nothing. Rows that need more, compressed bodies and inner batches, are made one by one and put in their places.

Body checksums are not verified here: that would cost as much as everything else together, and TCP has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.kernel import columns as kernel
from sparrowmq.kernel import record_layout as layout
from sparrowmq.kernel.columns import Pairs, Rows
from sparrowmq.kernel.cursor import In, Longs
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.message import Property, SysFlag

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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


_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIRST_MS: Final = -62_135_596_800_000  # of the years 1 to 9999
_LAST_MS: Final = 253_402_300_799_999
_DIGITS_OF_TIME: Final = 14  # milliseconds up to the year 5138
_DIGITS_OF_PRIORITY: Final = 9
_OFFSET_ID: Final = 32  # digits
_LONG_OFFSET_ID: Final = 56  # with a host of IPv6


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
        try:
            rows = kernel.walk(body) if within is None else kernel.place(body, *(at.tobytes() for at in within))
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        self._set(rows, decompress=decompress, internal=internal)

    def _set(self, rows: Rows, *, decompress: bool, internal: bool) -> None:
        self._rows = rows
        self._source = rows.source
        self._decompress = decompress
        self._internal = internal
        self._inflated: dict[int, bytes | None] = {}
        # Rows whose body was asked for and cannot be inflated.
        self.damaged_rows: dict[int, RemoteProtocolError] = {}

    def __len__(self) -> int:
        return self._rows.begins.size

    def column(self, name: str) -> pa.Array:
        """One column. Raises: KeyError, no column of records has this name."""
        return _COLUMN_MAKERS[name](self)

    def filter(self, mask: Mask) -> RecordColumns:
        some = RecordColumns.__new__(RecordColumns)
        some._set(self._rows.selected(mask.tobytes()), decompress=self._decompress, internal=self._internal)
        return some

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
        return np.frombuffer(self._numbers(layout.QUEUE_OFFSET_AT, 8), np.int64)

    @property
    def physical_offsets(self) -> Positions:
        """Each record's place in its log, as it says."""
        return np.frombuffer(self._numbers(layout.PHYSICAL_OFFSET_AT, 8), np.int64)

    @cached_property
    def store_times_ms(self) -> Positions:
        return np.frombuffer(self._source.numbers(self._rows.store_timestamp_at, 0, 8), np.int64)

    @cached_property
    def sys_flags(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self._numbers(layout.SYS_FLAG_AT, 4), np.int32)

    @cached_property
    def properties(self) -> PropertyColumns:
        rows = self._rows
        return PropertyColumns(
            self._source, rows.topic_end, layout.PROPERTIES_SIZE_FIELD, rows.ends, internal=self._internal
        )

    @cached_property
    def stored_bodies(self) -> pa.Array:
        """The bodies as stored, perhaps compressed."""
        return _pieces(self._source, self._rows.body_at, 0, self._rows.body_end)

    def bodies(self) -> pa.Array:
        """The bodies as they were sent; null for those that are `damaged_rows`."""
        rows = self._compressed_rows()
        inflated = (self._inflated[row] if row in self._inflated else self._inflate(row) for row in rows.tolist())
        return overwrite(self.stored_bodies, rows, inflated)

    def message_ids(self) -> pa.Array:
        """The producers' ids; for records without one, their places."""
        ids = self.properties.values_of(Property.UNIQ_KEY)
        return pc.coalesce(ids, self.offset_ids()) if ids.null_count else ids

    def offset_ids(self) -> pa.Array:
        """Store host and physical offset in hexadecimal."""
        sizes = np.where(self.sys_flags & SysFlag.STORE_V6, _LONG_OFFSET_ID, _OFFSET_ID)
        bounds = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
        return pa.StringArray.from_buffers(len(self), pa.py_buffer(bounds), pa.py_buffer(self._rows.offset_ids()))

    def _numbers(self, place: int, size: int) -> bytes:
        """The numbers of `size` bytes that begin `place` bytes behind each record's begin."""
        return self._source.numbers(self._rows.begins, place, size)

    def _timestamps(self, millis: Positions) -> pa.Array:
        """Null where a clock was wrong: the microseconds would be those of another time."""
        is_invalid = (millis < _FIRST_MS) | (millis > _LAST_MS)
        if is_invalid.any():
            return pa.array(np.where(is_invalid, 0, millis) * 1000, mask=is_invalid).cast(_TIMESTAMP)
        return pa.Array.from_buffers(_TIMESTAMP, len(self), [None, pa.py_buffer(millis * 1000)])

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

    def _host_texts(self, begins: Longs, begin_shift: int, ends: Longs, end_shift: int) -> pa.Array:
        encoded = _pieces(self._source, begins, begin_shift, ends, end_shift).dictionary_encode()
        return pa.array(map(hosts.unpack, encoded.dictionary.to_pylist()), pa.string()).take(encoded.indices)

    def _compressed_rows(self) -> Positions:
        flags = SysFlag.COMPRESSED | SysFlag.INNER_BATCH
        return np.flatnonzero(self.sys_flags & flags if self._decompress else ())

    def _inflate(self, row: int) -> bytes | None:
        packed = self._source.slice(self._rows.body_at.get(row), self._rows.body_end.get(row))
        flags = int(self.sys_flags[row])
        try:
            if flags & SysFlag.INNER_BATCH:  # Producers of Apache's brokers may set it with any body, too.
                raise RemoteProtocolError("it holds several messages (a batch of the BatchConsumeQueue kind)")
            return compression.decompress(packed, flags)
        except RemoteProtocolError as error:
            self.damaged_rows[row] = error
            return None

    def _part(self, begin: int, end: int) -> RecordColumns:
        rows = np.arange(len(self))
        part = self.filter((rows >= begin) & (rows < end))
        for row in [row for row in self._inflated if row < end]:
            part._inflated[row - begin] = self._inflated.pop(row)
        for row in [row for row in self.damaged_rows if row < end]:
            part.damaged_rows[row - begin] = self.damaged_rows.pop(row)
        return part


def _pieces(source: In, begins: Longs, begin_shift: int, ends: Longs, end_shift: int = 0) -> pa.Array:
    """The bytes from each begin to its end, as binary; null where a begin is -1."""
    missing, validity, bounds, content = source.cut(begins, begin_shift, ends, end_shift)
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(bounds), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), begins.size, buffers, missing)


def _integers(content: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(content) * 8 // kind.bit_width, [None, pa.py_buffer(content)])


_COLUMN_MAKERS: Final[dict[str, Callable[[RecordColumns], pa.Array]]] = {
    "topic": lambda records: text(_pieces(records._source, records._rows.topic_at, 0, records._rows.topic_end)),
    "queueId": lambda records: _integers(records._numbers(layout.QUEUE_ID_AT, 4), pa.int32()),
    "queueOffset": lambda records: pa.array(records.queue_offsets),
    "msgId": RecordColumns.message_ids,
    "offsetMsgId": RecordColumns.offset_ids,
    "keys": lambda records: records.properties.values_of(Property.KEYS),
    "tags": lambda records: records.properties.values_of(Property.TAGS),
    "flag": lambda records: _integers(records._numbers(layout.FLAG_AT, 4), pa.int32()),
    "sysFlag": lambda records: pa.array(records.sys_flags),
    "body": RecordColumns.bodies,
    "properties": lambda records: records.properties.maps(),
    "bornTimestamp": lambda records: records._timestamps(
        np.frombuffer(records._numbers(layout.BORN_TIMESTAMP_AT, 8), np.int64)
    ),
    "storeTimestamp": lambda records: records._timestamps(records.store_times_ms),
    "bornHost": lambda records: records._host_texts(
        records._rows.begins, layout.BORN_HOST_AT, records._rows.store_timestamp_at, 0
    ),
    "storeHost": lambda records: records._host_texts(
        records._rows.store_timestamp_at,
        layout.STORE_HOST_BEHIND_STORE_TIMESTAMP,
        records._rows.body_at,
        -layout.BODY_BEHIND_RECONSUME_TIMES,
    ),
    "reconsumeTimes": lambda records: _integers(
        records._source.numbers(records._rows.body_at, -layout.BODY_BEHIND_RECONSUME_TIMES, 4), pa.int32()
    ),
    "preparedTransactionOffset": lambda records: _integers(
        records._source.numbers(
            records._rows.body_at,
            layout.PREPARED_OFFSET_BEHIND_RECONSUME_TIMES - layout.BODY_BEHIND_RECONSUME_TIMES,
            8,
        ),
        pa.int64(),
    ),
    "storeSize": lambda records: _integers(records._numbers(layout.SIZE_AT, 4), pa.int32()),
    "bodyCrc": lambda records: _integers(records._numbers(layout.BODY_CRC_AT, 4), pa.int32()),
    "shardingKey": lambda records: records.properties.values_of(Property.SHARDING_KEY),
    "deliverTimestamp": RecordColumns._due_times,
    "priority": lambda records: records._integer_property(_DIGITS_OF_PRIORITY, Property.PRIORITY).cast(pa.int32()),
}


HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])


class PropertyColumns:
    """The properties of many records, as columns; the strings are parsed once, when one is needed.

    They begin `shift` bytes behind `begins`, in `source`. Without `internal` the record checksum is left out.
    `kernel.columns.Pairs` says what counts as a property.
    """

    def __init__(self, source: In, begins: Longs, shift: int, ends: Longs, *, internal: bool) -> None:
        self._source = source
        self._parse = partial(Pairs, source, begins, shift, ends, internal)

    def maps(self) -> pa.Array:
        return pa.MapArray.from_arrays(self._bounds(), self._name_texts(), text(self._values()))

    def headers(self) -> pa.Array:
        """A list of (key, value bytes) for each row, the form of Kafka's headers."""
        headers = pa.StructArray.from_arrays([self._name_texts(), self._values()], fields=list(HEADER))
        return pa.ListArray.from_arrays(self._bounds(), headers)

    def values_of(self, name: str) -> pa.Array:
        """The property of that name as a string for each row; null where there is none."""
        begins, ends = self._pairs.values(name.encode())
        return text(_pieces(self._source, begins, 0, ends))

    @cached_property
    def _pairs(self) -> Pairs:
        return self._parse()

    def _bounds(self) -> pa.Array:
        """The number of each row's first pair, and of all pairs."""
        return _integers(self._pairs.firsts.native_i32(), pa.int32())

    def _name_texts(self) -> pa.Array:
        return text(_pieces(self._source, self._pairs.names_at, 0, self._pairs.names_end))

    def _values(self) -> pa.Array:
        return _pieces(self._source, self._pairs.names_end, 1, self._pairs.values_end)
