"""Columns of records: from records end to end to the buffers that Arrow's arrays are made of, without a copy.

    records ── walk, select ──> Rows: where the parts of each record are
                                 ├── source.numbers(rows.begins, FLAG_AT, 4)          a column of fixed size
                                 ├── source.cut(rows.body_at, 0, rows.body_end, 0)    bounds and bytes of another one
                                 └── Pairs ──> source.cut(pairs.names_at, ...)        names, values, one property

Each is one call for all rows: `numbers` and `cut` are loops of the cursor. So a column costs some nanoseconds a row,
and a column that is not asked for costs nothing. Rows that need more, as compressed bodies do, are not for this file.
"""

from __future__ import annotations

from typing import TypeAlias

from sparrowmq.kernel.cursor import In, Longs, Out
from sparrowmq.kernel.record_layout import (
    BODY_BEHIND_RECONSUME_TIMES,
    CRC_NAME,
    MIN_SIZE_BYTES,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_FIELD,
    PROPERTY_CRC_SIZE,
)
from sparrowmq.kernel.records import Record, content_problem, next_problem

Buffer: TypeAlias = bytes | bytearray | memoryview

_HIDDEN = CRC_NAME[:-1]
# By the faults of Record.find.
_PROBLEMS = (
    "",
    "",
    "",
    "",
    "its hosts do not fit",
    "its body does not fit",
    "its topic does not fit",
    "its properties do not fill the rest",
)


class Rows:
    """The places of the parts of several records in the bytes of `source`."""

    __slots__ = (
        "_fault",
        "_fault_at",
        "begins",
        "body_at",
        "body_end",
        "ends",
        "source",
        "store_timestamp_at",
        "topic_at",
        "topic_end",
    )

    def __init__(self, source: In) -> None:
        self.source = source
        self.begins, self.ends, self.store_timestamp_at = Longs(), Longs(), Longs()
        self.body_at, self.body_end, self.topic_at, self.topic_end = Longs(), Longs(), Longs(), Longs()
        self._fault = self._fault_at = 0

    def selected(self, mask: Buffer) -> Rows:
        """Those of which the byte of `mask` is not zero. Raises: ValueError, the mask is for another number of rows."""
        some, wanted = Rows(self.source), In(mask)
        some.begins, some.ends = self.begins.selected(wanted), self.ends.selected(wanted)
        some.store_timestamp_at = self.store_timestamp_at.selected(wanted)
        some.body_at, some.body_end = self.body_at.selected(wanted), self.body_end.selected(wanted)
        some.topic_at, some.topic_end = self.topic_at.selected(wanted), self.topic_end.selected(wanted)
        return some

    def add(self, record: Record, fault: int) -> None:
        """Add the record that was found last. A fault is kept until `check`, the first one of a kind."""
        if fault and (self._fault == 0 or fault < self._fault):
            self._fault, self._fault_at = fault, record.at
        self.begins.append(record.at)
        self.ends.append(record.end)
        self.store_timestamp_at.append(record.store_timestamp_at)
        self.body_at.append(record.body_at)
        self.body_end.append(record.body_end)
        self.topic_at.append(record.topic_at)
        self.topic_end.append(record.properties_at - PROPERTIES_SIZE_FIELD)

    def check(self) -> None:
        """Raises: ValueError, a record was broken."""
        if self._fault:
            raise ValueError(f"the record at byte {self._fault_at} of a pull body is broken: {_PROBLEMS[self._fault]}")

    def offset_ids(self) -> bytes:
        """The store host and the offset of each record in hexadecimal, end to end: 32 or 56 digits."""
        source, out = self.source, Out()
        row, count = 0, self.begins.size
        while row < count:
            host_at = self.store_timestamp_at.get(row) + 8
            out.copy_hexadecimal(source, host_at, self.body_at.get(row) - BODY_BEHIND_RECONSUME_TIMES)
            offset_at = self.begins.get(row) + PHYSICAL_OFFSET_AT
            out.copy_hexadecimal(source, offset_at, offset_at + 8)
            row += 1
        return out.take()


def walk(records: Buffer) -> Rows:
    """The places of several records end to end, as in the body of a pull answer.

    Raises: ValueError, some bytes are no record.
    """
    rows = Rows(In(records))
    record = Record(rows.source)
    at, end = 0, rows.source.size
    while at < end:
        fault = record.find(at, end)
        if not record.is_whole(fault):
            raise ValueError(next_problem(record, fault, end))
        rows.add(record, fault)
        at = record.end
    rows.check()
    return rows


def place(records: Buffer, begins: Buffer, ends: Buffer) -> Rows:
    """The same of records that begin and end there; both are numbers of 8 bytes in the machine's order.

    Raises: ValueError, as `walk`; IndexError, there are more begins than ends.
    """
    rows, first, last = Rows(In(records)), Longs(begins), Longs(ends)
    record = Record(rows.source)
    row = 0
    while row < first.size:
        at, end = first.get(row), min(last.get(row), rows.source.size)
        if at < 0:
            raise ValueError(f"no record begins at byte {at}")
        fault = record.find(at, end)
        if not record.is_whole(fault):
            raise ValueError(next_problem(record, fault, end))
        rows.add(record, fault)
        row += 1
    rows.check()
    return rows


def sound(records: Buffer, begins: Buffer, ends: Buffer, place: int, checks_all: bool) -> bytes:
    """A byte for each of the records that begin and end there: 1 if it is sound (`records.check`), else 0.

    Args:
        begins, ends: as for `place`.
        place: the log offset of `records`.
        checks_all: also where no record has a CRC over all of its bytes, as in a log of Java's; else all of them pass.
    """
    source, first, last, out = In(records), Longs(begins), Longs(ends), Out()
    record = Record(source)
    row = 0
    while row < first.size and not checks_all:
        at, end = first.get(row), last.get(row)
        checks_all = end - at >= MIN_SIZE_BYTES + PROPERTY_CRC_SIZE and source.is_at(CRC_NAME, end - PROPERTY_CRC_SIZE)
        row += 1
    row = 0
    while row < first.size:
        at, end = first.get(row), min(last.get(row), source.size)
        is_sound = not checks_all
        if checks_all and at >= 0 and record.find(at, end) == 0 and record.end == last.get(row):
            is_sound = content_problem(record, place + at, False) is None
        out.u8(is_sound)
        row += 1
    return out.take()


class Pairs:
    """The names and values in property strings, name 0x01 value 0x02 each.

    As in Java a pair without 0x01, without a name or without a value does not count, and further 0x01 belong to the
    value. Unlike Java, a name that occurs twice in one record is twice among them.

    Attributes:
        names_at, names_end, values_end: a value begins behind the end of its name.
        firsts: the number of each row's first pair, and of all pairs.
    """

    __slots__ = ("_source", "firsts", "names_at", "names_end", "values_end")

    def __init__(self, source: In, begins: Longs, shift: int, ends: Longs, shows_crc: bool) -> None:
        """The strings begin `shift` bytes behind `begins`.

        Args:
            shows_crc: with the property that a store adds for itself.
        Raises: IndexError, a string is not within `source`.
        """
        self._source = source
        self.names_at, self.names_end, self.values_end, self.firsts = Longs(), Longs(), Longs(), Longs()
        self._find(begins, shift, ends, shows_crc)

    def _find(self, begins: Longs, shift: int, ends: Longs, shows_crc: bool) -> None:
        source, hidden = self._source, b"" if shows_crc else _HIDDEN
        row, count = 0, begins.size
        while row < count:
            self.firsts.append(self.names_at.size)
            at, end = begins.get(row) + shift, ends.get(row)
            if not shows_crc and end - at >= PROPERTY_CRC_SIZE and source.is_at(CRC_NAME, end - PROPERTY_CRC_SIZE):
                end -= PROPERTY_CRC_SIZE  # it is not even parsed
            source.pairs(at, end, hidden, self.names_at, self.names_end, self.values_end)
            row += 1
        self.firsts.append(self.names_at.size)

    def values(self, name: bytes) -> tuple[Longs, Longs]:
        """The begin and the end of each row's value of this name, the last one; -1 where there is none."""
        return self._source.values(name, self.names_at, self.names_end, self.values_end, self.firsts)
