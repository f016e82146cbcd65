"""A detour: a message waits in a system topic, with its real address among its properties, and is brought back later.

    to Orders[2], DELAY 3  ── park ──  SCHEDULE_TOPIC_XXXX[2], REAL_TOPIC Orders, REAL_QID 2
                           ── restore ──  to Orders[2], no DELAY

Delay levels, retries (a delayed message to a retry topic) and half messages all go this way. Pure functions: no
store here.
Source: CommitLog.asyncPutMessage and ScheduleMessageService.messageTimeup, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages.message import Property


class Restored(NamedTuple):
    """Where a parked message belongs, and its properties there."""

    topic: str
    queue_id: int
    properties: dict[str, str]


def park(topic: str, queue_id: int, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a message that waits elsewhere; `restore` finds its address in them."""
    return {**properties, Property.REAL_TOPIC: topic, Property.REAL_QID: str(queue_id)}


def restore(properties: Mapping[str, str]) -> Restored:
    """The real address of a parked message.

    The address stays in the properties, as Java leaves it there; the delay goes, or the message would be parked
    again.

    Raises:
        InvalidMessage: no address, so it was not parked.
    """
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = properties.get(Property.REAL_QID, "")
    if not topic or not queue_id.isdecimal():
        raise InvalidMessage(f"a parked message has no address: REAL_TOPIC {topic!r}, REAL_QID {queue_id!r}")
    kept = {name: value for name, value in properties.items() if name != Property.DELAY}
    return Restored(topic, int(queue_id), kept)
