"""Read a queue: from queue offsets to records in the log, as they lie there, uncopied.

Messages of one queue that were sent in one go lie side by side in the log, so most reads are one range of it:
one pread for the entries, one sum to see that they leave no room between them, one view. All else (tag
filters, other queues' messages between, limits on size) goes record by record, and joins neighbours to one
view again.
Source: DefaultMessageStore.getMessage, Java 4.9.8; where it and 5.3 differ, a comment says so.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.protocol.selector import Selector
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.entries import GAP_SIZE, Entries

MAX_SCANNED_ENTRIES: Final = 800  # of one read, when none matches: the loop has others to serve


class Status(Enum):
    """What came of a read; the names are Java's GetMessageStatus, and go to clients as remarks."""

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
    """What was read.

    Attributes:
        next_offset: where to read on: past all that was looked at, even if nothing of it was wanted.
        views: the records, in pieces of the log; they stay good as long as they are held.
        size: of the views together, in bytes.
    """

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
        self.next_offset = next_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.views = views
        self.count = count
        self.size = size


def read(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    max_count: int,
    max_bytes: int,
    selector: Selector,
) -> Read:
    """Up to `max_count` messages from queue offset `offset` on; the first one even if it is larger than `max_bytes`."""
    if queue is None:
        return Read(Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
    min_offset, max_offset = queue.min_offset, queue.end.value
    if not min_offset <= offset < max_offset:
        return _outside(offset, min_offset, max_offset)
    if selector.takes_all:
        entries = queue.read(offset, max_count)
        count, size = len(entries), entries.size_bytes
        if count and size <= max_bytes and size < GAP_SIZE:
            # All of it is wanted, so one look at the log does, from the first record to the last.
            first = entries.begin
            whole = log.view(first, entries.end - first)
            if whole is not None:
                views = [whole] if len(whole) == size else _cut(whole, entries)
                return Read(Status.FOUND, offset + count, min_offset, max_offset, views, count, size)
    return _select(log, queue, offset, max(max_count, 1), max_bytes, selector)


def _cut(whole: memoryview, entries: Entries) -> list[memoryview]:
    """The records of `entries` out of the part of the log from the first of them to the last; neighbours in one."""
    first = begin = end = entries.begin
    views: list[memoryview] = []
    for i in range(len(entries)):
        offset = entries.offset(i)
        if offset != end:
            views.append(whole[begin - first : end - first])
            begin = offset
        end = offset + entries.size(i)
    views.append(whole[begin - first : end - first])
    return views


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp_ms: int, upper: bool = False) -> int:
    """The first queue offset stored at or after a time, the queue's end if all are older.

    With `upper` the last one stored at or before that time, the queue's beginning if all are younger.
    """
    # Unlike Java 4.9, which takes the nearer neighbour; this is what 5.x does.
    low, high = queue.min_offset, queue.end.value
    boundary = timestamp_ms + upper
    while low < high:
        middle = found = (low + high) // 2
        while (stored_ms := store_time(log, queue, found)) is None and found > low:
            found -= 1
        if stored_ms is None or stored_ms < boundary:
            low = middle + 1
        else:
            high = found
    return max(low - 1, queue.min_offset) if upper else low


def store_time(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> int | None:
    """When a message was stored, in ms; None if it is not there."""
    entry = queue.entry(queue_offset)
    view = log.view(entry.offset, entry.size) if entry else None
    return store_timestamp_ms(view) if view else None


def _wants_record(log: CommitLog, selector: Selector, offset: int, size: int) -> bool:
    """Whether a message is wanted whose entry is; one that is gone counts as wanted, for its reader is told."""
    if not selector.needs_record:
        return True
    record = log.view(offset, size)
    return record is None or selector.wants_record(record)


def _outside(offset: int, min_offset: int, max_offset: int) -> Read:
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


def _select(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    selector: Selector,
) -> Read:
    ranges: list[list[int]] = []
    count = size = 0
    status = Status.NO_MATCHED_MESSAGE
    entries = queue.read(offset, max_count if selector.takes_all else MAX_SCANNED_ENTRIES)
    for i in range(len(entries)):
        begin, length, code = entries.offset(i), entries.size(i), entries.tags_code(i)
        if length != GAP_SIZE and selector.wants(code) and _wants_record(log, selector, begin, length):
            if count and (size + length > max_bytes or count == max_count):
                break
            if log.begin <= begin and begin + length <= log.end:
                count += 1
                size += length
                if ranges and ranges[-1][1] == begin:
                    ranges[-1][1] += length
                else:
                    ranges.append([begin, begin + length])
            else:
                status = Status.MESSAGE_WAS_REMOVING
        offset += 1
    views = [view for begin, end in ranges if (view := log.view(begin, end - begin))]
    if views:
        status = Status.FOUND
    return Read(status, offset, queue.min_offset, queue.end.value, views, count, size)
