"""The message store as a part of the broker: it runs, its failure ends the broker, and it tells how it is."""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.part import Part, Task
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.stats import Figures
from sparrowmq.store.message_store import MessageStore
from sparrowmq.turn import Turn

_NEVER: Final = 1 << 63  # an offset that no log reaches


def storage(store: MessageStore, turn: Turn, figures: Figures) -> Part:
    """The part, with the store's figures."""
    figures.gauge("log_begin_offset", "offset of the oldest byte that is kept", lambda: store.begin)
    figures.gauge("log_end_offset", "offset behind the newest message", lambda: store.end)
    at_start = store.end
    figures.gauge("stored_bytes", "bytes stored since the start", lambda: store.end - at_start)
    figures.gauge(
        "flush_behind_bytes", "bytes that are not on disk yet", lambda: store.end - store.flushed.value
    )
    figures.gauge(
        "dispatch_behind_bytes",
        "bytes that queues do not know yet",
        lambda: store.end - store.dispatched.value,
    )
    figures.gauge(
        "oldest_message_ms", "when the oldest message was stored; -1 without any", lambda: _oldest(store)
    )
    figures.gauge(
        "newest_message_ms", "when the newest message was stored; 0 without any", lambda: store.newest_ms
    )
    return Part(
        tasks=(
            Task("store", lambda: store.run(turn)),
            # Fails when a write or sync fails, and so ends the broker.
            Task("disk", lambda: store.written.reached(_NEVER)),
        )
    )


def _oldest(store: MessageStore) -> int:
    record = store.record_at(store.begin)
    return store_timestamp_ms(record) if record is not None else -1
