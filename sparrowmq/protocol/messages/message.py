"""Messages: as an application sends them, and as a store keeps them.

A producer sends a `Message`, a consumer gets a `StoredMessage`. Values that RocketMQ itself adds are properties, beside
those of the application; their names are in property_names.py.
Source: Message, MessageExt, MessageConst and MessageSysFlag, Java 4.9.8 and 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, cast

import msgspec

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol import hosts
from sparrowmq.protocol.java_numbers import INT32 as INT32
from sparrowmq.protocol.java_numbers import Long
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.delay_fields import MAX_TIME_MS, Delay, wait_of
from sparrowmq.protocol.messages.message_id import offset_id
from sparrowmq.protocol.messages.property_names import RESERVED
from sparrowmq.protocol.messages.property_names import Property as Property
from sparrowmq.protocol.messages.typed_bodies import CONTENT_TYPE, Body, encode
from sparrowmq.protocol.names import DLQ, RETRY

KEY_SEPARATOR = " "
_NO_KEYS: Final[tuple[str, ...]] = ()
_ONE_DELAY: Final = "give one of delay, deliver_at, delay_level, delay_ms and deliver_at_ms"


class KeptTag(str):
    """The tag of a stored message. Copies keep it, even if no filter can ask for it."""

    __slots__ = ()


@dataclass(slots=True, init=False)
class Message:
    """A message to send.

    Args:
        body: bytes, or a value that is written as text or JSON, see typed_bodies.py. Then the property `contentType`
            says which, unless `properties` have one.
        delay: as "10s" or a timedelta; becomes a delay level if there is one, and else `delay_ms`.
        deliver_at: the delivery time, a datetime with a time zone.
    Attributes:
        body: bytes.
        tag: one word for consumers' filters: without blanks, "|" and "&&", and not "*".
        keys: one key or several, to find the message later. A key must not contain a blank.
        properties: the application's own. Names that RocketMQ itself uses are refused.
        flag: a number for the application's own use, an int32.
        delay_level: 0 for no delay; 3 is the third level of the broker's `messageDelayLevel`, by default 10 s.
        delay_ms: any other delay, on brokers that deliver at any time (5.x and ours).
        deliver_at_ms: the delivery time in ms since 1970, on the same brokers.
        wait_stored: wait for the broker's durability (disk, slaves) before the answer.
    Raises:
        InvalidMessage: a field has a wrong type, a delay is negative, or there are two delays.
    """

    topic: str
    body: bytes
    tag: str | None
    keys: str | Sequence[str]
    properties: dict[str, str]
    flag: int
    delay_level: int
    wait_stored: bool
    delay_ms: int
    deliver_at_ms: int

    def __init__(
        self,
        topic: str,
        body: Body,
        tag: str | None = None,
        keys: str | Sequence[str] = _NO_KEYS,
        properties: dict[str, str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        wait_stored: bool = True,
        delay_ms: int = 0,
        deliver_at_ms: int = 0,
        *,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        if delay is not None or deliver_at is not None:
            if delay_level or delay_ms or deliver_at_ms:
                raise InvalidMessage(_ONE_DELAY)
            delay_level, delay_ms, deliver_at_ms = wait_of(delay, deliver_at)
        self.topic = topic
        self.body = cast(bytes, body)  # `check` makes it bytes.
        self.tag = tag
        self.keys = keys
        self.properties = {} if properties is None else properties
        self.flag = flag
        self.delay_level = delay_level
        self.wait_stored = wait_stored
        self.delay_ms = delay_ms
        self.deliver_at_ms = deliver_at_ms
        self.check()

    def check(self) -> None:
        """Check fields that were assigned later. Raises: InvalidMessage, as above."""
        if not isinstance(self.topic, str):
            raise InvalidMessage(f"the topic is {_kind(self.topic)}, not text")
        if self.tag is not None:
            if not isinstance(self.tag, str):
                raise InvalidMessage(f"the tag is {_kind(self.tag)}, not text; give one word")
            if type(self.tag) is not KeptTag:
                check_tag(self.tag)
        if self.keys or (self.keys is not _NO_KEYS and self.keys != ""):
            self.keys = _keys(self.keys)
        if self.properties or type(self.properties) is not dict:
            _check_texts(self.properties)
        if type(self.body) is not bytes:
            self._encode_body()
        if type(self.flag) is not int or not -INT32 <= self.flag <= INT32:
            raise InvalidMessage(f"flag={self.flag!r} is not a whole number of 32 bits")
        if type(self.delay_level) is not int or not 0 <= self.delay_level <= INT32:
            raise InvalidMessage(f"delay_level={self.delay_level!r}: levels begin with 1; 0 is no delay")
        if type(self.wait_stored) is not bool:
            raise InvalidMessage(f"wait_stored={self.wait_stored!r}: give True or False")
        if self.delay_ms != 0 or self.deliver_at_ms != 0:
            self._check_time()

    @property
    def is_timed(self) -> bool:
        """Whether it needs a broker that delivers at any time."""
        return self.delay_ms != 0 or self.deliver_at_ms != 0

    @property
    def is_delayed(self) -> bool:
        """Whether it has a delay or a delivery time."""
        return self.delay_level != 0 or self.is_timed

    def _check_time(self) -> None:
        for name in ("delay_ms", "deliver_at_ms"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= MAX_TIME_MS:
                raise InvalidMessage(f"{name}={value!r} is no time in ms")
        if (self.delay_level != 0) + (self.delay_ms != 0) + (self.deliver_at_ms != 0) > 1:
            raise InvalidMessage(_ONE_DELAY)

    def _encode_body(self) -> None:
        body: object = self.body
        if isinstance(body, Message | StoredMessage):
            raise InvalidMessage(f"the body is a whole {_kind(body)}; send its `body`")
        self.body, content_type = encode(body)
        if content_type:
            self.properties = {CONTENT_TYPE: content_type, **self.properties}

    def _render_properties(self) -> str:
        """Render all properties for sending: the application's, then RocketMQ's own.

        Raises: InvalidMessage, a name is reserved, a key contains a blank, or a text cannot be sent.
        """
        reserved = self.properties.keys() & RESERVED
        if reserved:
            raise InvalidMessage(f"property {min(reserved)!r} belongs to RocketMQ; choose another name")
        if any(not key or KEY_SEPARATOR in key for key in self.keys):
            raise InvalidMessage(f"keys {list(self.keys)!r}: each must have a character, and none a blank")
        found = dict(self.properties)
        if self.keys:
            found[Property.KEYS] = KEY_SEPARATOR.join(self.keys)
        if self.tag:
            found[Property.TAGS] = self.tag
        if self.delay_level:
            found[Property.DELAY] = str(self.delay_level)
        if self.delay_ms:
            found[Property.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms:
            found[Property.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        found[Property.WAIT] = "true" if self.wait_stored else "false"
        text = properties.check(found)
        if not text.isascii():
            _check_unicode(found)
        return text


@lru_cache(maxsize=4096)
def check_tag(tag: str) -> None:
    """Check that a filter can ask for a tag. Raises: InvalidMessage.

    Filters separate tags by "||", strip blanks, and mean every message by "*"; `check_tags` refuses "|" and "&&" in a
    tag. Java's client of 5.x refuses blank tags and any "|". That of 4.x sends everything, and consumers that filter
    never get such a message.
    Source: MessageBuilderImpl.setTag, Java 5.
    """
    if tag.split() != [tag] or "|" in tag or "&&" in tag or tag == "*":
        raise InvalidMessage(
            f"tag={tag!r}: no filter can ask for this tag; give one word without blanks, '|' and '&&', or leave the "
            "tag out"
        )


def _kind(value: object) -> str:
    return type(value).__name__


def _keys(keys: object) -> Sequence[str]:
    if keys is None:
        return _NO_KEYS
    if isinstance(keys, str):
        return (keys,)
    if isinstance(keys, Sequence) and all(isinstance(key, str) for key in keys):
        return keys
    raise InvalidMessage(f"keys={keys!r}: give one key, or a sequence of them, as text")


def _check_texts(own: object) -> None:
    if not isinstance(own, Mapping):
        raise InvalidMessage(f"properties are {_kind(own)}, not a mapping of names to values")
    for name, value in own.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidMessage(
                f"property {name!r} is {value!r}: names and values must be text; use str(value), or the body"
            )
        if not value:
            raise InvalidMessage(f"property {name!r} is empty, and consumers drop empty properties; leave it out")


def _check_unicode(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise InvalidMessage(
                f"{name!r} has half of a surrogate pair in {value!r}, which is no text; fix the program that made it"
            ) from None


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message from a store. Hosts are `ip:port`; `body` is as stored, perhaps compressed (see `sys_flag`).

    A struct, not a dataclass: consumers make one for each message, and a struct costs a tenth. Reference counting is
    enough for it (`gc=False`), because it cannot be part of a cycle.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    body: bytes
    properties: dict[str, str]

    @property
    def tags(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(Property.KEYS, "").split()

    @property
    def unique_key(self) -> str | None:
        """The producer's id; None if the producer gave none."""
        return self.properties.get(Property.UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        """The id with the message's place: its broker and log offset."""
        return offset_id(hosts.pack(self.store_host), self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id to show and to log: the unique key, or the offset id if there is none."""
        return self.unique_key or self.offset_id

    def copy_for(self, topic: str, body: bytes) -> Message:
        """The same message to send to a topic, without the properties that servers wrote; `body` as it was sent."""
        own = {name: value for name, value in self.properties.items() if name not in RESERVED}
        return Message(topic, body, KeptTag(self.tags) if self.tags else None, self.keys, own, self.flag)

    def __str__(self) -> str:
        return f"{self.topic}[{self.queue_id}]@{self.queue_offset} {shown(self.message_id)} {len(self.body)} bytes"


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """One queue of a topic on one broker. Sorts as in Java: by topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: Long

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}[{self.queue_id}]"


class SysFlag:
    """Bits of a message's system flag."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    NOT_TRANSACTION: Final = 0x0
    PREPARED: Final = 0x4
    COMMIT: Final = 0x8
    ROLLBACK: Final = 0xC
    TRANSACTION_MASK: Final = 0xC
    BORN_V6: Final = 0x10
    STORE_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_LZ4: Final = 0x100
    COMPRESSION_ZSTD: Final = 0x200
    COMPRESSION_ZLIB: Final = 0x300
    COMPRESSION_MASK: Final = 0x700  # 0 with COMPRESSED set is zlib: what clients up to 4.9 send
    OF_BODY: Final = COMPRESSED | COMPRESSION_MASK  # the form of the body, which a copy keeps
    # The bits that a sender may set. A broker sets the others itself: readers trust them, and look for several messages
    # in the body of an inner batch, or for the end of a transaction.
    OF_SENDER: Final = OF_BODY | MULTI_TAGS | PREPARED


class PullFlag:
    """Bits of a pull request's system flag."""

    COMMIT_OFFSET: Final = 0x1
    SUSPEND: Final = 0x2
    SUBSCRIPTION: Final = 0x4
    CLASS_FILTER: Final = 0x8
    LITE_PULL: Final = 0x10


class Perm:
    """Bits of a topic's permission."""

    INHERIT: Final = 0x1
    WRITE: Final = 0x2
    READ: Final = 0x4
    PRIORITY: Final = 0x8
    READ_WRITE: Final = 0x6


def with_origin(properties: Mapping[str, str], message: StoredMessage) -> dict[str, str]:
    """Return properties for a copy of the message in a retry or dead-letter topic, with the place of the original.

    A message of such a topic keeps the place that it names. Unlike Java: other messages do not. Otherwise a producer
    could write RETRY_TOPIC itself, and consumers would take its message for one of a topic where it may not send.
    """
    place = {Property.RETRY_TOPIC: message.topic, Property.ORIGIN_MESSAGE_ID: message.offset_id}
    return {**place, **properties} if message.topic.startswith((RETRY, DLQ)) else {**properties, **place}
