"""The message store as a part of the broker: its task and its figures.

When a write or a sync fails, the broker refuses messages, and goes on serving reads until it is stopped:

    the store fails ── waiting requests get the error ── name servers learn that clients cannot send here
                    ── parts that store something end (`while_writable`); the others, and reads, go on
                    ── at the stop the broker raises the failure: its exit status is 1
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from sparrowmq.broker.part import Part, Task
from sparrowmq.errors import StoreFailed
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_NEVER: Final = 1 << 63  # an offset that no log reaches


def storage(
    store: MessageStore, turn: Turn, figures: Figures, on_failure: Callable[[], object] = lambda: None
) -> Part:
    """Return the part; add the store's figures.

    Args:
        on_failure: called once, when the store has failed.
    """
    figures.gauge("sparrowmq_log_begin_offset", "where the log begins", lambda: store.begin)
    figures.gauge("sparrowmq_log_end_offset", "where the log ends", lambda: store.end)
    at_start = store.end
    figures.gauge("sparrowmq_stored_bytes", "bytes stored since the start", lambda: store.end - at_start)
    figures.gauge(
        "sparrowmq_flush_behind_bytes", "bytes not on disk yet", lambda: store.end - store.flushed.value
    )
    figures.gauge(
        "sparrowmq_dispatch_behind_bytes",
        "bytes not in the queues yet",
        lambda: store.end - store.dispatched.value,
    )
    figures.gauge("sparrowmq_oldest_message_ms", "time of the oldest message, or -1", lambda: _oldest(store))
    scrubber = store.scrubber
    figures.gauge("sparrowmq_scrub_rounds", "complete checks of the log for damage", lambda: scrubber.rounds)
    figures.gauge("sparrowmq_scrub_bytes", "bytes checked for damage", lambda: scrubber.checked_bytes)
    figures.gauge("sparrowmq_log_damages", "damaged places in the log", lambda: len(scrubber.damaged))
    figures.gauge("sparrowmq_newest_message_ms", "time of the newest message, or 0", lambda: store.newest_ms)
    figures.gauge("sparrowmq_store_failed", "1 after a failed write or sync", lambda: int(has_failed(store)))
    return Part(
        tasks=(
            Task("store", lambda: store.run(turn), needs_writing=False),
            Task("disk", lambda: _await_failure(store, on_failure)),
        )
    )


def has_failed(store: MessageStore) -> bool:
    """Whether a write or a sync has failed, so the store takes no more messages."""
    return store.flushed.error is not None


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


def _oldest(store: MessageStore) -> int:
    record = store.record_at(store.begin)
    return store_timestamp_ms(record) if record is not None else -1
