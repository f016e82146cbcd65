"""The records of a queue from an offset on, as a start reads the broker's own queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sparrowmq.errors import BadStore
from sparrowmq.protocol.messages import record
from sparrowmq.store.message_store import MessageStore

_READ: Final = 512
_READ_BYTES: Final = 4 << 20


def records_from(store: MessageStore, topic: str, queue_id: int, offset: int) -> Iterator[memoryview]:
    """Yield the records of a queue up to its end, or none if there is no such queue. Raises: BadStore."""
    queue = store.queues.get(topic, queue_id)
    if queue is None:
        return
    offset = max(offset, queue.min_offset)
    while offset < queue.max_offset:
        found = store.read(topic, queue_id, offset, _READ, _READ_BYTES)
        if found.next_offset <= offset:
            raise BadStore(f"{topic}[{queue_id}] cannot be read at offset {offset}")
        for view in found.views:
            yield from record.walk(view)
        offset = found.next_offset
