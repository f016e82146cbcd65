"""Messages: as an application sends them, and as a store keeps them.

`Message` is what a producer takes, `StoredMessage` what a consumer gets. Everything that RocketMQ itself
adds travels as properties beside the application's own; their names are in property_names.py.
Source: Message, MessageExt, MessageConst and MessageSysFlag, Java 4.9.8 and 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message_id import offset_id
from sparrowmq.protocol.messages.property_names import RESERVED
from sparrowmq.protocol.messages.property_names import Property as Property

KEY_SEPARATOR = " "


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        keys: what the message can be found by later; they must not hold blanks.
        properties: the application's own; names that RocketMQ uses itself are refused.
        delay_level: 0 is at once; 3 is the third of the broker's `messageDelayLevel`, by default 10 s.
        wait_stored: whether the broker answers only when the message is as safe as it is set up to make it.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_stored: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.body, (bytes, bytearray, memoryview)):
            raise InvalidMessage(f"the body is {type(self.body).__name__}, not bytes; use text.encode()")
        if isinstance(self.keys, str):
            self.keys = self.keys.split(KEY_SEPARATOR)

    def wire_properties(self) -> dict[str, str]:
        """All properties as they are sent: the application's, then RocketMQ's own.

        Raises:
            InvalidMessage: a name is reserved, a key holds a blank, or a text cannot be carried.
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
        found[Property.WAIT] = "true" if self.wait_stored else "false"
        properties.check(found)
        return found


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message from a store. Hosts are `ip:port`; `body` is as stored, perhaps compressed (see `sys_flag`).

    A struct, not a dataclass: consumers make one for each message, and a struct costs a tenth. It can be left
    to reference counting (`gc=False`) because nothing in it can refer back.
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
        """The id that the producer gave; None from a producer that gives none."""
        return self.properties.get(Property.UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        """The id that says where the message lies."""
        return offset_id(hosts.pack(self.store_host), self.physical_offset)

    @property
    def message_id(self) -> str:
        """The id to show and to log: the unique key, or else the offset id."""
        return self.unique_key or self.offset_id

    def __str__(self) -> str:
        return f"{self.topic}[{self.queue_id}]@{self.queue_offset} {self.message_id} {len(self.body)} bytes"


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """One queue of a topic on one broker; sorts as Java's does: by topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: int

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
