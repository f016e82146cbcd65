"""A detour: a message waits in a system topic, with its real address among its properties, and is brought back later.

    to Orders[2], DELAY 3  ── park ──  SCHEDULE_TOPIC_XXXX[2], REAL_TOPIC Orders, REAL_QID 2
                           ── restore ──  to Orders[2]

Delay levels, delivery at any time and half messages go this way. A `Detour` is the pair of functions, and `Writer`
asks each before it stores a message. The address stays among the properties, and DELAY too: Java leaves both
there, and programs read them. So what comes back is not asked about the detour that it comes from.
Source: CommitLog.asyncPutMessage and ScheduleMessageService.messageTimeup, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, mark, render
from sparrowmq.protocol.messages.property_names import Property

REAL_TOPIC: Final = mark(Property.REAL_TOPIC)
REAL_QID: Final = mark(Property.REAL_QID)
_REAL: Final = "\x02REAL_"  # how both begin
_QUEUE_IDS: Final = {
    str(number): number for number in range(256)
}  # all that are usual: to look is faster than `int`


class Detour:
    """A reason for which messages wait elsewhere.

    Args:
        mark: of the property that every message for it has (`properties.mark`), so that others cost one search.
        park: moves a message to where it waits; returns False, and has changed nothing, if it need not wait.
        restore: the message as it is to be stored when its time has come. Raises: InvalidMessage, it was not parked.
        room: bytes of properties that are added on the way: what lacks them is refused before it waits.
        parked: is called as soon as a parked message is stored.
    """

    __slots__ = ("mark", "park", "parked", "restore", "room")

    def __init__(
        self,
        mark: str,
        park: Callable[[Entry], bool],
        restore: Callable[[StoredMessage], Entry],
        room: int = 0,
        parked: Callable[[Entry, Placed], None] | None = None,
    ) -> None:
        self.mark = mark
        self.park = park
        self.restore = restore
        self.room = room
        self.parked = parked


def move(entry: Entry, topic: str, queue_id: int) -> None:
    """Let a message wait in a queue of a system topic; `restore` finds its address in its properties."""
    properties = entry.properties
    if properties.has(_REAL):
        properties.remove(Property.REAL_TOPIC)
        properties.remove(Property.REAL_QID)
    properties.add(f"{Property.REAL_TOPIC}\x01{entry.topic}\x02{Property.REAL_QID}\x01{entry.queue_id}\x02")
    entry.topic, entry.queue_id = topic, queue_id


def restore(message: StoredMessage) -> Entry:
    """A parked message on its way to its real address.

    Raises:
        InvalidMessage: it has none, so it was not parked.
    """
    found = message.properties
    topic, queue_id = address(found.get(Property.REAL_TOPIC), found.get(Property.REAL_QID))
    return again(message, topic, queue_id, Properties(render(found)))


def address(topic: str | None, queue_id: str | None) -> tuple[str, int]:
    """Topic and queue that REAL_TOPIC and REAL_QID tell. Raises: InvalidMessage, they do not."""
    if topic and queue_id is not None:
        known = _QUEUE_IDS.get(queue_id, -1)
        if known >= 0:
            return topic, known
        if queue_id.isdecimal():
            return topic, int(queue_id)
    raise InvalidMessage(f"a parked message has no address: REAL_TOPIC {topic!r}, REAL_QID {queue_id!r}")


def again(
    message: StoredMessage,
    topic: str,
    queue_id: int,
    properties: Properties,
    reconsume_times: int | None = None,
) -> Entry:
    """A stored message on its way to another place; born as it was."""
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
