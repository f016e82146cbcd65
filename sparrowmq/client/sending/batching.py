"""Splits messages into batches that a broker accepts: one topic, one durability, no delay, 4 MiB, 4096 messages.

Nothing is refused: what may not be in a batch (a delayed message) is a batch of one, and is sent as a single
message.
Source: MessageBatch.generateFromList and the ListSplitter of Apache's examples, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from sparrowmq.client.sending.packing import Prepared
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.names import RETRY

LOG_OVERHEAD_BYTES: Final = 20
MAX_COUNT: Final = 4096  # a broker stores them in four parts, some 6 ms each, and takes other requests between


def split(messages: Iterable[Prepared], max_bytes: int) -> Iterator[list[Prepared]]:
    """Split messages into runs of neighbours that may travel together, in order."""
    batch: list[Prepared] = []
    room_bytes = max_bytes
    for each in messages:
        size, is_full = size_bytes(each.message), len(batch) == MAX_COUNT
        if batch and (size > room_bytes or is_full or not _go_together(batch[-1].message, each.message)):
            yield batch
            batch, room_bytes = [], max_bytes
        batch.append(each)
        room_bytes -= size
    if batch:
        yield batch


def size_bytes(message: Message) -> int:
    """The size of a message in a batch, as Apache's splitter counts it."""
    texts = sum(len(name) + len(value) for name, value in message.properties.items())
    return len(message.topic) + len(message.body) + texts + LOG_OVERHEAD_BYTES


def _go_together(one: Message, other: Message) -> bool:
    return (
        one.topic == other.topic
        and one.wait_stored == other.wait_stored
        and not one.is_delayed
        and not other.is_delayed
        and not one.topic.startswith(RETRY)
    )
