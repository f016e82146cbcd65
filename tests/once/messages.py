"""Messages as consumers get them, without a broker."""

from __future__ import annotations

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage


def received(
    unique: str | None = "U-1", topic: str = "orders", place: int = 1000, **properties: str
) -> ReceivedMessage:
    """A message with this unique key, stored at a place of the log."""
    if unique is not None:
        properties["UNIQ_KEY"] = unique
    stored = StoredMessage(
        topic, 0, 5, place, 200, 0, 0, 0, 1, "10.0.0.1:5", 2, "10.0.0.2:10911", 0, 0, b"{}", properties
    )
    return ReceivedMessage(stored, MessageQueue(topic, "a", 0))
