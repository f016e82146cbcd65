"""The lag of a follower of the log as time: the age of the first record that it lacks.

Bytes measure the work that is left; seconds measure how long it has waited. Seconds show a disk that hangs or a slave
without connection even if few messages arrive. The lag is computed on request, and costs the hot path nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.store.message_store import MessageStore


def lag_s(store: MessageStore, offset: int, now_ms: int) -> float:
    """Return the age of the record at `offset`, in seconds; 0 after the last record.

    The offset of Apache's slaves may be within a record. They lack that record, but their lag counts from the next one.
    """
    if offset >= store.end:
        return 0.0
    record = store.record_at(max(offset, store.begin))
    if record is None:  # the blank end of a file, or the middle of a record
        record = store.record_at(_next_file(store, offset))
    stored_ms = store.newest_ms if record is None else store_timestamp_ms(record)
    return max(now_ms - stored_ms, 0) / 1000


def declare_lags(store: MessageStore, clock: Clock, figures: Figures) -> None:
    """Declare the lag gauges of the disk and the queues."""

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
