"""Cold reads: a thread reads messages that left the page cache, so that the event loop does not wait for the disk.

    pull ──┬─ near the queue's end, or cached ───────────────────────── read on the loop
           └─ cold ── a thread reads the records once ── cached now ── read on the loop

A read from a disk takes 1 to 10 ms, and on the loop every client would wait for it. Only consumers with a lag of more
than `NEAR` messages pay for the check, about 3 us for a pull. Their queue entries are still read on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import Entries

NEAR: Final = 1024  # messages before the queue's end: the system has seldom dropped them from its cache
_BATCH: Final = 32  # messages of a usual pull


def cold_read(log: LogReader, queue: ConsumeQueue, offset: int, size: int) -> Callable[[], None] | None:
    """The function that caches the next messages of a queue, for a thread; None if they are cached already. `size`:
    bytes that the reader wants.
    """
    if not queue.min_offset <= offset < queue.end.value - NEAR:
        return None
    entries = queue.read(offset, _BATCH)
    if len(entries) and _is_cached(log, entries, 0) and _is_cached(log, entries, len(entries) - 1):
        return None  # as nearly always: no other entry is looked at
    places = [(entry.offset, entry.size) for entry in entries if not entry.is_gap]
    if not places or (log.is_cached(places[0][0]) and log.is_cached(places[-1][0])):
        return None
    return partial(_cache, log, places, size)


def _is_cached(log: LogReader, entries: Entries, index: int) -> bool:
    return not entries.is_gap(index) and log.is_cached(entries.offset(index))


def _cache(log: LogReader, places: list[tuple[int, int]], size: int) -> None:
    for offset, record_size in places:
        log.cache(offset, record_size)
        size -= record_size
        if size <= 0:
            return
    # Small messages: what follows them in the log is likely to be wanted too.
    log.cache(sum(places[-1]), size)
