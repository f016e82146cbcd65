"""Read a queue: from queue offsets to records of the log, in their stored form.

Messages of one queue that were sent together are neighbours in the log. So most reads are one pread for the entries,
one sum to see that there is no room between the records, and one more pread. Reads with a filter, or of scattered
records, go record by record, and join neighbours to one view again.

Records in a part of the log that was not checked since the start are checked first: a damaged record is not served.
Source: DefaultMessageStore.getMessage, Java 4.9.8; where it and 5.3 differ, a comment says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from sparrowmq.errors import CorruptRecord
from sparrowmq.kernel.record_layout import LONGEST_HEAD, PROPERTY_CRC_SIZE
from sparrowmq.kernel.records import is_sound
from sparrowmq.protocol.messages.record import (
    body_end,
    physical_offset,
    properties_at,
    properties_behind_body,
    store_timestamp_ms,
)
from sparrowmq.protocol.selector import ALL, Predicate, Selector
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import GAP_SIZE, Entries

LARGE: Final = 4096  # a record over this size is not copied as a whole to read its properties
_MIN_WINDOW_BYTES: Final = 8_192  # bytes of the first copy: copies that are not read cost time too
_MAX_WINDOW_BYTES: Final = 65_536  # copies double up to this size while nothing is found: a call costs 1 us
_MAX_MEAN_STEP_BYTES: Final = 1024  # average bytes from one record to the next, up to which they are copied together
# Average bytes of other records before each wanted one, up to which one read is quicker than several.
_MAX_MEAN_GAP_BYTES: Final = 8192
_MAX_GAP_BYTES: Final = 256 << 10  # ... and of all of them together: memory holds them as long as the answer
MAX_SCANNED_ENTRIES: Final = 800  # of one read when none matches: the event loop has other work
# A read also stops after this much work, at least one entry: bytes of properties times the predicate's weight, and
# bytes of records that were checked. It takes about 1 ms; 800 entries with usual properties take a third of it.
MAX_WORK: Final = 1 << 20
# If a predicate matched none, the read continues with twice as many entries, because a pull costs as much as 200
# records. It does not continue after more copies than `_MAX_CHEAP_COPIES`: then records are large or far apart, and
# reading takes long.
_MORE_ENTRIES_FACTOR: Final = 2
_MAX_CHEAP_COPIES: Final = 16


class Status(Enum):
    """The result of a read. The names are Java's GetMessageStatus, and clients get them as remarks."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class Read:
    """The result of a read, with its records."""

    __slots__ = ("count", "max_offset", "min_offset", "next_offset", "size", "status", "views")

    def __init__(
        self,
        status: Status,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        views: list[memoryview],
        count: int,
        size: int,
    ) -> None:
        self.status = status
        # The offset to read on at: after all entries that were checked, even if none was wanted.
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.views = views  # the records, in pieces of the log; they stay valid as long as they are referenced
        self.count = count
        self.size = size  # of the views together, in bytes


def read(
    log: LogReader, queue: ConsumeQueue | None, offset: int, max_count: int, max_bytes: int, selector: Selector
) -> Read:
    """Read up to `max_count` messages from queue offset `offset` on. The first may be larger than `max_bytes`."""
    if queue is None:
        return Read(Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
    min_offset, max_offset = queue.min_offset, queue.end.value
    if not min_offset <= offset < max_offset:
        return _out_of_range(offset, min_offset, max_offset)
    if selector.takes_all:
        entries = queue.read(offset, max_count)
        count, size = len(entries), entries.size_bytes
        if count and size <= max_bytes and size < GAP_SIZE:
            # All records are wanted. So one read of the log is enough, from the first to the last one, if they are
            # near.
            first = entries.begin
            room = entries.end - first - size
            content = (
                log.copy(first, room + size) if room <= count * _MAX_MEAN_GAP_BYTES and room <= _MAX_GAP_BYTES else None
            )
            if content is not None:
                view = memoryview(content)
                views = [view] if len(view) == size else _cut_views(view, entries)
                if first < log.verified_from and (sound := _count_sound(log, entries, range(count), views)) < count:
                    if sound:
                        return read(log, queue, offset, sound, GAP_SIZE, ALL)
                    return _at_damage(log, queue, offset, entries, 0)
                return Read(Status.FOUND, offset + count, min_offset, max_offset, views, count, size)
    return _read_selected(log, queue, offset, max(max_count, 1), max_bytes, selector)


def _count_sound(log: LogReader, entries: Entries, indexes: Sequence[int], views: list[memoryview]) -> int:
    """Return how many of the chosen entries have sound records before a damaged one. Neighbours share a view. Records
    from `verified_from` on need no check.
    """
    verified_from = log.verified_from
    crc_from = log.crc_from
    copy = b""
    copied_from = 0
    number = -1
    end = -1
    for sound in range(len(indexes)):
        offset = entries.offset(indexes[sound])
        size = entries.size(indexes[sound])
        if size <= 0:
            return sound
        if offset != end:  # the next range begins with this record
            number += 1
            content = views[number].obj
            if content is not copy:
                assert isinstance(content, bytes)
                copy, copied_from = content, offset
        end = offset + size
        if offset < verified_from and not is_sound(copy, offset - copied_from, size, offset, offset >= crc_from):
            return sound
    return len(indexes)


def _at_damage(log: LogReader, queue: ConsumeQueue, offset: int, entries: Entries, index: int) -> Read:
    """Advance to the entry of the damaged record; if it is the first, report the damage. Raises: CorruptRecord."""
    if index:
        bounds = queue.min_offset, queue.end.value
        return Read(Status.NO_MATCHED_MESSAGE, offset + index, *bounds, [], 0, 0)
    log.report_damage(entries.offset(0))
    return Read(Status.MESSAGE_WAS_REMOVING, offset + 1, queue.min_offset, queue.end.value, [], 0, 0)


def _cut_views(view: memoryview, entries: Entries) -> list[memoryview]:
    """Cut the records of `entries` out of the log part from the first to the last one. Neighbours share a view."""
    first = begin = end = entries.begin
    views: list[memoryview] = []
    for i in range(len(entries)):
        offset = entries.offset(i)
        if offset != end:
            views.append(view[begin - first : end - first])
            begin = offset
        end = offset + entries.size(i)
    views.append(view[begin - first : end - first])
    return views


def offset_by_time(log: LogReader, queue: ConsumeQueue, timestamp_ms: int, upper: bool = False) -> int:
    """Return the first queue offset stored at or after a time; the queue's end if all are older. With `upper`, return
    the last one stored at or before that time; the queue's beginning if all are younger.
    """
    # Unlike Java 4.9, which takes the nearer neighbour. Java 5.x does the same as this code.
    low, high = queue.min_offset, queue.end.value
    boundary = timestamp_ms + upper
    while low < high:
        middle = nearest = (low + high) // 2
        while (stored_ms := store_time(log, queue, nearest)) is None and nearest > low:
            nearest -= 1
        if stored_ms is None or stored_ms < boundary:
            low = middle + 1
        else:
            high = nearest
    return max(low - 1, queue.min_offset) if upper else low


def store_time(log: LogReader, queue: ConsumeQueue, queue_offset: int) -> int | None:
    """Return when a message was stored, in ms; None if it does not exist or is damaged."""
    entry = queue.entry(queue_offset)
    raw = log.copy(entry.offset, entry.size) if entry else None
    if entry is None or raw is None or not log.is_verified(entry.offset, entry.size, raw):
        return None
    return store_timestamp_ms(memoryview(raw)) or None  # zero where the disk cannot be read


def record_at(log: LogReader, offset: int, size: int | None = None) -> memoryview | None:
    """Return the record at `offset`, unchecked, in bytes that begin with it; None if there is none."""
    if not log.begin <= offset < log.end:
        return None
    try:
        record, end = log.parse(offset)
    except CorruptRecord:
        return None
    if record is None or end > log.end or (size is not None and size != len(record)):
        return None
    return record if physical_offset(record) == offset else None


def parked_at(log: LogReader, offset: int, size: int | None) -> memoryview | None:
    """Do `MessageStore.parked_at`. The record is checked even if it was before. Raises: CorruptRecord."""
    if offset < log.begin:
        return None
    record = record_at(log, offset, size)
    if record is not None:
        raw = record.obj
        assert isinstance(raw, bytes)
        if is_sound(raw, 0, len(record), offset, offset >= log.crc_from):
            return record
    log.report_damage(offset)
    return None


class _Window:
    """A copy of a part of the log, to search records for properties: a search in bytes is quicker than in a view. Each
    byte is copied once. Of a large record only the properties are copied, unless the record has to be checked.
    """

    __slots__ = (
        "_begin",
        "_copy",
        "_crc_from",
        "_end",
        "_entries",
        "_log",
        "_predicate",
        "_selector",
        "_size",
        "_verified_from",
        "copies",
        "is_damaged",
        "is_exhausted",
        "work",
    )

    def __init__(self, log: LogReader, entries: Entries, selector: Selector, predicate: Predicate, size: int) -> None:
        self._log = log
        self._entries = entries
        self._selector = selector
        self._predicate = predicate
        self._crc_from = log.crc_from
        self._verified_from = log.verified_from
        self._copy = b""
        self._begin = 0
        self._end = 0
        self._size = size  # approximate size of the next copy
        self.copies = 0  # the number of copied parts of the log
        self.work = 0
        self.is_damaged = False  # the last entry found may be wanted, and its record is damaged
        self.is_exhausted = False  # there was more work than MAX_WORK

    @property
    def is_cheap(self) -> bool:
        return self.copies <= _MAX_CHEAP_COPIES and self.work <= MAX_WORK // 4

    def next_wanted(self, first: int) -> int:
        """Return the first entry from `first` on whose message is wanted; the number of entries if there is none.

        A message that is gone counts as wanted, because its reader gets a status for it. If the window `is_exhausted`,
        return the entry to continue at.
        """
        entries, selector, predicate = self._entries, self._selector, self._predicate
        takes_all_tags = selector.takes_all_tags
        weight = selector.weight
        count = len(entries)
        index = first
        while index < count:
            if self.work > MAX_WORK:
                self.is_exhausted = True
                break
            if takes_all_tags or selector.wants(entries.tags_code(index)):
                begin = entries.offset(index)
                end = begin + entries.size(index)
                if end - begin > LARGE:
                    if end - begin != GAP_SIZE and self._is_large_wanted(begin, end - begin):
                        break
                elif (begin < self._begin or end > self._end) and not self._copy_from(index):
                    break
                else:
                    at = begin - self._begin
                    if begin < self._verified_from:
                        self.work += end - begin
                        if not is_sound(self._copy, at, end - begin, begin, begin >= self._crc_from):
                            self.is_damaged = True
                            break
                    properties_end = end - self._begin
                    if begin >= self._crc_from:  # the last property is the CRC then, which no filter asks for
                        properties_end -= PROPERTY_CRC_SIZE
                    properties = properties_at(self._copy, at)
                    self.work += (properties_end - properties) * weight
                    if predicate.holds(self._copy, properties, properties_end):
                        self._size = _MIN_WINDOW_BYTES
                        break
            index += 1
        return index

    def _is_large_wanted(self, begin: int, size: int) -> bool:
        if begin < self._verified_from:
            self.work += size
            record = self._log.copy(begin, size)
            self.is_damaged = record is not None and not self._log.is_verified(begin, size, record)
            if record is None or self.is_damaged:
                return True
        self.copies += 2
        head = self._log.copy(begin, LONGEST_HEAD)
        if head is None:
            return True
        end = body_end(head)
        tail = self._log.copy(begin + end, size - end)
        if tail is None:
            return True
        properties = properties_behind_body(head, tail)
        self.work += len(properties) * self._selector.weight
        return self._predicate.holds(properties, 0, len(properties))

    def _copy_from(self, index: int) -> bool:
        """Copy the record of an entry and the records that closely follow it. Returns False if it is gone."""
        entries = self._entries
        begin = entries.offset(index)
        first_end = begin + entries.size(index)
        last = min(index + self._size // max(first_end - begin, 1) + 1, len(entries)) - 1
        end = first_end
        while last > index:
            end = entries.offset(last) + entries.size(last)
            if begin < end <= begin + 2 * self._size and end - begin <= (last - index) * _MAX_MEAN_STEP_BYTES:
                break
            last = (index + last) // 2
            end = first_end
        self.copies += 1
        copy = self._log.copy(begin, end - begin)
        if copy is None:  # they are not all in one file
            end = first_end
            copy = self._log.copy(begin, end - begin)
            if copy is None:
                return False
        self._copy, self._begin, self._end = copy, begin, end
        self._size = min(2 * self._size, _MAX_WINDOW_BYTES)
        return True


def _out_of_range(offset: int, min_offset: int, max_offset: int) -> Read:
    if max_offset == 0:
        status, next_offset = Status.NO_MESSAGE_IN_QUEUE, 0
    elif offset < min_offset:
        status, next_offset = Status.OFFSET_TOO_SMALL, min_offset
    elif offset == max_offset:
        status, next_offset = Status.OFFSET_OVERFLOW_ONE, offset
    else:
        # Unlike Java 4.9, which begins at 0 again when nothing was ever deleted: that consumes all messages twice.
        status, next_offset = Status.OFFSET_OVERFLOW_BADLY, max_offset
    return Read(status, next_offset, min_offset, max_offset, [], 0, 0)


def _add_range(ranges: list[list[int]], begin: int, end: int) -> None:
    if ranges and ranges[-1][1] == begin:
        ranges[-1][1] = end
    else:
        ranges.append([begin, end])


def _read_selected(
    log: LogReader,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    selector: Selector,
    more_entries: int = 0,
) -> Read:
    """Return the wanted records of the next 800 entries, or of `more_entries` entries, record by record."""
    ranges: list[list[int]] = []
    count, size, status = 0, 0, Status.NO_MATCHED_MESSAGE
    verified_from = log.verified_from
    max_entries = max_count if selector.takes_all else max(1, MAX_SCANNED_ENTRIES // selector.weight)
    entries = queue.read(offset, more_entries or max_entries)
    predicate = selector.predicate
    window = None
    if predicate is not None:
        window = _Window(log, entries, selector, predicate, _MAX_WINDOW_BYTES if more_entries else _MIN_WINDOW_BYTES)
    is_verified = predicate is not None or not entries or entries.begin >= verified_from
    unverified: list[int] = []  # the wanted entries whose records have to be checked
    i = 0
    while i < len(entries):
        if window is not None:
            i = window.next_wanted(i)
            if window.is_damaged or window.is_exhausted or i == len(entries):
                break
        begin, length = entries.offset(i), entries.size(i)
        if window is not None or (length != GAP_SIZE and selector.wants(entries.tags_code(i))):
            if count and (size + length > max_bytes or count == max_count):
                break
            if log.file_with(begin, length) is not None:
                count += 1
                size += length
                if not is_verified:
                    unverified.append(i)
                _add_range(ranges, begin, begin + length)
            elif begin + length > log.end and queue.rebuild(offset + i):
                return _read_selected(log, queue, offset, max_count, max_bytes, selector, more_entries)
            else:
                status = Status.MESSAGE_WAS_REMOVING
        i += 1
    if predicate is not None:
        predicate.leave()
    views = _read_views(log, ranges)
    if log.verified_from > verified_from:  # a part could not be read: each record is checked now
        return _read_selected(log, queue, offset, max_count, max_bytes, selector)
    if unverified and (sound := _count_sound(log, entries, unverified, views)) < len(unverified):
        if sound:
            return _read_selected(log, queue, offset, sound, max_bytes, selector)
        return _at_damage(log, queue, offset, entries, unverified[0])
    if views:
        status = Status.FOUND
    elif window is not None and window.is_damaged and i == 0:
        return _at_damage(log, queue, offset, entries, 0)
    elif status is Status.NO_MATCHED_MESSAGE and not more_entries and window is not None and window.is_cheap:
        return _read_selected(
            log, queue, offset + i, max_count, max_bytes, selector, more_entries=_MORE_ENTRIES_FACTOR * max_entries
        )
    return Read(status, offset + i, queue.min_offset, queue.end.value, views, count, size)


def _read_views(log: LogReader, ranges: list[list[int]]) -> list[memoryview]:
    """Read parts of the log, in its order. Parts near each other are read at once, with the bytes between."""
    views: list[memoryview] = []
    first = 0
    while first < len(ranges):
        begin, end = ranges[first]
        last, room = first + 1, 0
        while last < len(ranges):
            gap = ranges[last][0] - end
            if not 0 <= gap <= _MAX_MEAN_GAP_BYTES or room + gap > _MAX_GAP_BYTES:
                break
            room += gap
            end = ranges[last][1]
            last += 1
        near = ranges[first:last]
        view_of_all = log.view(begin, end - begin)
        if view_of_all is not None:
            views.extend([view_of_all[part[0] - begin : part[1] - begin] for part in near] if room else [view_of_all])
        else:  # they are not all in one file
            views.extend(view for part in near if (view := log.view(part[0], part[1] - part[0])))
        first = last
    return views
