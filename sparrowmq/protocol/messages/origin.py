"""The place that a message came from, which consumers see instead of the retry topic."""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import DLQ, RETRY


def with_origin(properties: Mapping[str, str], message: StoredMessage) -> dict[str, str]:
    """Return properties for a copy of the message in a retry or dead-letter topic, with the place of the original.

    A message of such a topic keeps the place that it names. Unlike Java: other messages do not. Otherwise a producer
    could write RETRY_TOPIC itself, and consumers would take its message for one of a topic where it may not send.
    """
    place = {Property.RETRY_TOPIC: message.topic, Property.ORIGIN_MESSAGE_ID: message.offset_id}
    return {**place, **properties} if message.topic.startswith((RETRY, DLQ)) else {**properties, **place}
