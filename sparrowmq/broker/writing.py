"""How every message enters the store: properties completed, detours taken, one append.

    send ─┐
    send back ─┤── Writer.put ── delayed? park it in SCHEDULE_TOPIC_XXXX ── store.append
    delay due ─┘

Whoever stores a message goes through here, so that a message looks the same wherever it came from.
Source: SendMessageProcessor and CommitLog.asyncPutMessage, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker import detour
from sparrowmq.clock import Clock
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages import properties as property_text
from sparrowmq.protocol.messages.message import Property
from sparrowmq.protocol.messages.properties import VALUE_END
from sparrowmq.protocol.messages.record import Buffer
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.subscription import java_hash
from sparrowmq.store.message_store import Appended, MessageStore, Part

# The record adds 20 bytes of checksum to the properties; all together have an int16 length.
MAX_PROPERTIES_BYTES = property_text.MAX_SIZE_BYTES - 20


_TAGS: Final = property_text.mark(Property.TAGS)
_KEYS: Final = property_text.mark(Property.KEYS)
_UNIQUE_KEY: Final = property_text.mark(Property.UNIQ_KEY)
_DELAY: Final = property_text.mark(Property.DELAY)
_WAITS: Final = f"{property_text.mark(Property.WAIT)}true{VALUE_END}"
_CLUSTER: Final = property_text.mark(Property.CLUSTER)
_NO_KEYS: Final[tuple[str, ...]] = ()


class Writer:
    """Appends messages as the broker stores them."""

    def __init__(self, store: MessageStore, cluster: str, delays: DelayLevels, clock: Clock) -> None:
        self._store = store
        self._cluster = f"{Property.CLUSTER}\x01{cluster}\x02"
        self._delays = delays
        self._clock = clock

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str,
        flag: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> Appended:
        """Append one message; `properties` is their string form, as it came.

        Raises:
            RemoteError: MESSAGE_ILLEGAL, the properties are too long or the delay is no number.
            StoreFailed, DiskFull: nothing was stored.
        """
        text = property_text.marked(properties)
        tags_code = tags_code_of(text)
        if _DELAY in text and (level := self._level(text)) > 0:
            tags_code = self._clock.now_ms() + self._delays.delay_ms(level)
            text = property_text.marked(
                property_text.render(detour.park(topic, queue_id, property_text.parse(properties)))
            )
            topic, queue_id = SCHEDULE_TOPIC, level - 1
        return self._store.append(
            topic,
            queue_id,
            body,
            self._stored(text),
            born_timestamp_ms,
            born_host,
            flag,
            sys_flag,
            tags_code,
            keys_of(text),
            property_text.value(text, _UNIQUE_KEY),
            reconsume_times,
        )

    def part(
        self,
        body: Buffer,
        properties: str,
        flag: int,
        sys_flag: int,
        born_timestamp_ms: int,
        born_host: bytes,
    ) -> Part:
        """One message of a batch, as `put` would store it; batches are never delayed.

        Raises:
            RemoteError: MESSAGE_ILLEGAL, the properties are too long.
        """
        text = property_text.marked(properties)
        return Part(
            body,
            self._stored(text),
            born_timestamp_ms,
            born_host,
            flag,
            sys_flag,
            tags_code_of(text),
            keys_of(text),
            property_text.value(text, _UNIQUE_KEY),
        )

    def _stored(self, text: str) -> bytes:
        """The properties as they are stored: without the wish to wait, with the cluster's name, which Go needs."""
        text = text.replace(_WAITS, VALUE_END, 1)
        if _CLUSTER not in text:
            text += self._cluster
        stored = text[1:].encode("utf-8", "surrogatepass")
        if len(stored) > MAX_PROPERTIES_BYTES:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties take {len(stored)} bytes; at most {MAX_PROPERTIES_BYTES} can be stored, use the body",
            )
        return stored

    def _level(self, text: str) -> int:
        """The delay level, 0 for none. Raises: RemoteError, it is no number."""
        level = property_text.value(text, _DELAY) or "0"
        try:
            return self._delays.clamp(int(level))
        except ValueError:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the delay level {level!r} is not a number; the first level is 1",
            ) from None


def tags_code_of(text: str) -> int:
    """What the consume queue keeps of the tags in a marked string: Java's string hash, 0 without tags."""
    tags = property_text.value(text, _TAGS)
    return java_hash(tags) if tags else 0


def keys_of(text: str) -> tuple[str, ...]:
    """The keys in a marked string that are indexed, besides the unique key."""
    keys = property_text.value(text, _KEYS)
    return tuple(keys.split()) if keys else _NO_KEYS
