"""The types of messages that a topic takes.

A topic's attribute `message.type` is checked at the gRPC port only, as in Java: clients of 4.x send what they like.
Source: TopicMessageType, TopicConfig and DefaultTopicMessageTypeValidator, Java 5.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

MESSAGE_TYPE: Final = "message.type"  # the attribute of a topic


class MessageType(StrEnum):
    UNSPECIFIED = "UNSPECIFIED"
    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    MIXED = "MIXED"


_OF_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


def type_of_topic(attributes: Mapping[str, str] | None) -> MessageType:
    """Return the type of a topic with these attributes; NORMAL, if they name none that is known."""
    name = (attributes or {}).get(MESSAGE_TYPE, MessageType.NORMAL)
    return MessageType(name) if name in tuple(MessageType) else MessageType.NORMAL


def accepted_types(topic: MessageType) -> tuple[MessageType, ...]:
    """Return the types of messages that a topic takes, as a route of 5.x lists them; none for UNSPECIFIED."""
    if topic is MessageType.MIXED:
        return _OF_MIXED
    return () if topic is MessageType.UNSPECIFIED else (topic,)
