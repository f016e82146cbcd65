"""How far behind something that follows the log is, as time: how long the first record is stored that it lacks.

Bytes say how much is to be done, seconds for how long nobody did it: a disk that hangs and a slave that was cut off are
seen by these, however little is written. It is looked up when somebody asks, and costs the hot path nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.store.message_store import MessageStore


def lag_s(store: MessageStore, offset: int, now_ms: int) -> float:
    """For how long the record at `offset` is stored, in seconds; 0 behind the last one.

    A follower that stands within a record, as Apache's slaves may, lacks that one: it counts from the record behind it.
    """
    if offset >= store.end:
        return 0.0
    record = store.record_at(max(offset, store.begin))
    if record is None:  # the blank end of a file, or the middle of a record
        record = store.record_at(_next_file(store, offset))
    stored_ms = store.newest_ms if record is None else store_timestamp_ms(record)
    return max(now_ms - stored_ms, 0) / 1000


def declare_lags(store: MessageStore, clock: Clock, figures: Figures) -> None:
    """Declare the lags of the disk and the queues."""

    def behind(position: Callable[[], int]) -> Callable[[], float]:
        return lambda: lag_s(store, position(), clock.now_ms())

    figures.gauge(
        "sparrowmq_flush_lag_seconds",
        "age of the oldest message not on disk",
        behind(lambda: store.flushed.value),
    )
    figures.gauge(
        "sparrowmq_dispatch_lag_seconds",
        "age of the oldest message not in its queue",
        behind(lambda: store.dispatched.value),
    )


def _next_file(store: MessageStore, offset: int) -> int:
    size = store.settings.commit_log_file_size
    return (offset // size + 1) * size
