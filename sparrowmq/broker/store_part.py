"""The message store as a part of the broker: its task and its figures.

When a write or a sync fails, or the disk has no room for a start, the broker refuses messages, and goes on serving
reads until it is stopped:

    a start without room on the disk ── the store begins as failed ── once there is room, `Broker.serve` returns, and
                                        a member with failover starts another broker (member_start.py)
    the store fails ── waiting requests get the error ── name servers learn that clients cannot send here
                    ── parts that store something end (`while_writable`); the others, and reads, go on
                    ── at the stop the broker raises the failure: its exit status is 1
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.store_conditions import set_aside, store_probes
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.store.log.flush import ROOM_BYTES
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_ROOM_PERIOD_S: Final = 1.0
_NEVER: Final = 1 << 63  # an offset that no log reaches


def storage(
    store: MessageStore,
    turn: Turn,
    clock: Clock,
    figures: Figures,
    on_failure: Callable[[], object] = lambda: None,
) -> Part:
    """Return the part; add the store's figures.

    Args:
        on_failure: called once, when the store has failed.
    """
    figures.gauge("sparrowmq_log_begin_offset", "where the log begins", lambda: store.begin)
    figures.gauge("sparrowmq_log_end_offset", "where the log ends", lambda: store.end)
    count_at_start, bytes_at_start = store.appender.added()
    figures.counted(
        "sparrowmq_messages_stored_total",
        "messages stored: of producers, and retries, delayed and half messages",
        lambda: store.appender.added()[0] - count_at_start,
    )
    figures.gauge(
        "sparrowmq_stored_bytes",
        "bytes of the messages stored since the start",
        lambda: store.appender.added()[1] - bytes_at_start,
    )
    figures.gauge("sparrowmq_flush_behind_bytes", "bytes not on disk yet", lambda: store.end - store.flushed.value)
    figures.gauge(
        "sparrowmq_dispatch_behind_bytes",
        "bytes not in the queues yet",
        lambda: store.end - store.dispatched.value,
    )
    _declare_times(store, figures)
    scrubber = store.scrubber
    figures.gauge("sparrowmq_scrub_rounds", "complete checks of the log for damage", lambda: scrubber.rounds)
    figures.gauge("sparrowmq_scrub_bytes", "bytes checked for damage", lambda: scrubber.checked_bytes)
    figures.gauge("sparrowmq_log_damages", "damaged places in the log", lambda: len(scrubber.damaged))
    figures.gauge("sparrowmq_set_aside_bytes", "bytes in the folder set-aside", lambda: set_aside(store)[0])
    figures.gauge(
        "sparrowmq_set_aside_forked",
        "parts of the log in set-aside that no other broker had",
        lambda: set_aside(store)[1],
    )
    figures.gauge("sparrowmq_store_failed", "1 after a failed write or sync", lambda: int(has_failed(store)))
    return Part(
        tasks=(
            Task("store", lambda: store.run(turn), needs_writing=False),
            Task("disk", lambda: _await_failure(store, on_failure)),
        ),
        probes=store_probes(store, clock),
    )


def _declare_times(store: MessageStore, figures: Figures) -> None:
    """Declare times in seconds since 1970. A time that does not exist has no series."""

    figures.gauges(
        "sparrowmq_oldest_message_timestamp_seconds",
        "store time of the oldest message",
        (),
        lambda: _moment(_oldest(store)),
    )
    figures.gauges(
        "sparrowmq_newest_message_timestamp_seconds",
        "store time of the newest message",
        (),
        lambda: _moment(store.newest_ms),
    )
    figures.gauges(
        "sparrowmq_index_lacks_from_timestamp_seconds",
        "time from which on the index lacks keys",
        (),
        lambda: _moment(store.filling.lacks_from_ms),
    )


def _moment(time_ms: int) -> Rows:
    return [((), time_ms / 1000)] if time_ms > 0 else []


def has_failed(store: MessageStore) -> bool:
    """Whether a write or a sync has failed, so the store takes no more messages."""
    return store.flushed.error is not None


def was_full(store: MessageStore) -> bool:
    """Whether the disk had no room to open the store, so it only serves reads until another start."""
    failure = store.flushed.error
    return failure is not None and isinstance(failure.__cause__, DiskFull)


class FreedRoom:
    """Notices that a full disk has got room for a start, from now on. Create it as soon as the store is open.

    The log may be on another disk than the rest of the store. Then the fuller one counts.
    """

    def __init__(self, store: MessageStore) -> None:
        layout = store.settings.layout
        self._path = min((layout.root, layout.commit_log), key=_free_bytes)
        self._needed_bytes = _free_bytes(self._path) + ROOM_BYTES

    def has_come(self) -> bool:
        if _free_bytes(self._path) < self._needed_bytes:
            return False
        log.warning("the disk has room again: the broker starts again")
        return True


async def room(freed: FreedRoom | None, clock: Clock) -> None:
    """Return when a disk that was full has got room for a start; never if it was not full."""
    if freed is None:
        await asyncio.get_running_loop().create_future()
    while freed is not None and not freed.has_come():
        await clock.sleep(_ROOM_PERIOD_S)


async def while_writable(work: Coroutine[Any, Any, object], name: str) -> None:
    """Do work that ends when the store has failed, while the broker goes on."""
    try:
        await work
    except* StoreFailed:
        log.warning("%s ends with the store, which takes nothing any more; what is stored is served", name)


async def _await_failure(store: MessageStore, on_failure: Callable[[], object]) -> None:
    try:
        await store.written.reached(_NEVER)
    finally:
        if has_failed(store):
            on_failure()


def _free_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def _oldest(store: MessageStore) -> int:
    record = store.record_at(store.begin)
    return store_timestamp_ms(record) if record is not None else -1
