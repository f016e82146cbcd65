"""A redirect: a message waits in a system topic, with its real address in its properties, and is restored later.

    to Orders[2], DELAY 3  ── divert ──   SCHEDULE_TOPIC_XXXX[2], REAL_TOPIC Orders, REAL_QID 2
                           ── restore ──  to Orders[2]

Delay levels, delivery at any time and half messages use redirects: `Writer` tries each before it stores a message. A
restored message keeps its real address and DELAY in its properties, because Java leaves both there, and programs read
them. So `Writer` does not try the redirect again from which the message comes back.
Source: CommitLog.asyncPutMessage and ScheduleMessageService.messageTimeup, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, mark, render
from sparrowmq.protocol.messages.property_names import Property

REAL_TOPIC: Final = mark(Property.REAL_TOPIC)
REAL_QID: Final = mark(Property.REAL_QID)
_REAL: Final = "\x02REAL_"  # the common beginning of both
_QUEUE_IDS: Final = {str(number): number for number in range(256)}  # the usual ids: a look-up is faster than `int`


class Redirect:
    """A reason for messages to wait in a system topic.

    Every message of this redirect has the property of `mark`; others cost one search. `divert` returns False, without a
    change, if a message need not wait. `restore` raises InvalidMessage for one that was not diverted. A message without
    room for the `reserved_bytes` that are added later is refused.
    """

    __slots__ = ("divert", "mark", "on_stored", "reserved_bytes", "restore")

    def __init__(
        self,
        mark: str,
        divert: Callable[[Entry], bool],
        restore: Callable[[StoredMessage], Entry],
        reserved_bytes: int = 0,
        on_stored: Callable[[Entry, Placed], None] | None = None,
    ) -> None:
        self.mark = mark
        self.divert = divert
        self.restore = restore
        self.reserved_bytes = reserved_bytes
        self.on_stored = on_stored


def move(entry: Entry, topic: str, queue_id: int) -> None:
    """Move a message to a queue of a system topic. `restore` finds the real address in its properties."""
    properties = entry.properties
    if properties.has(_REAL):
        properties.remove(Property.REAL_TOPIC)
        properties.remove(Property.REAL_QID)
    properties.add(f"{Property.REAL_TOPIC}\x01{entry.topic}\x02{Property.REAL_QID}\x01{entry.queue_id}\x02")
    entry.topic, entry.queue_id = topic, queue_id


def restore(message: StoredMessage) -> Entry:
    """Return a diverted message with its real address. Raises: InvalidMessage, it has none, so it was not diverted."""
    properties = message.properties
    topic, queue_id = address(properties.get(Property.REAL_TOPIC), properties.get(Property.REAL_QID))
    return readdress(message, topic, queue_id, Properties(render(properties)))


def address(topic: str | None, queue_id: str | None) -> tuple[str, int]:
    """Return the topic and the queue of REAL_TOPIC and REAL_QID. Raises: InvalidMessage, one is missing or invalid."""
    if topic and queue_id is not None:
        known = _QUEUE_IDS.get(queue_id, -1)
        if known >= 0:
            return topic, known
        number = whole_number(queue_id)
        if number is not None:
            return topic, number
    raise InvalidMessage(f"a diverted message has no address: REAL_TOPIC {topic!r}, REAL_QID {queue_id!r}")


def readdress(
    message: StoredMessage, topic: str, queue_id: int, properties: Properties, reconsume_times: int | None = None
) -> Entry:
    return Entry(
        topic,
        queue_id,
        message.body,
        properties,
        message.born_timestamp_ms,
        hosts.pack(message.born_host),
        message.flag,
        message.sys_flag,
        message.reconsume_times if reconsume_times is None else reconsume_times,
    )
