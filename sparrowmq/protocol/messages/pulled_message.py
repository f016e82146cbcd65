"""A message of a pull's answer. What only some programs read is decoded when it is read for the first time.

    | head ......................... | body ........ | tail: topic, properties |
      offset, flags: numbers at once    bytes at once    text on first use

The three parts are copies, so a message that is kept does not keep the whole answer, which may have 256 KiB.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.kernel.record_layout import QUEUE_ID_AT
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties

_QUEUE_ID_END: Final = QUEUE_ID_AT + 4
_LONGEST: Final = 255  # bytes of a topic in a record of version 1


class PulledMessage:
    """A sound record in its parts. Made by `decode_all`.

    Attributes:
        queue_offset, store_size, sys_flag, reconsume_times, body: as in `StoredMessage`.
    """

    __slots__ = (
        "_head",
        "_stored",
        "_tail",
        "body",
        "queue_offset",
        "reconsume_times",
        "store_size",
        "sys_flag",
    )

    def __init__(
        self,
        queue_offset: int,
        store_size: int,
        sys_flag: int,
        reconsume_times: int,
        body: bytes,
        head: bytes,
        tail: bytes,
    ) -> None:
        self.queue_offset = queue_offset
        self.store_size = store_size
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.body = body
        self._head = head
        self._tail = tail
        self._stored: StoredMessage | None = None

    @property
    def stored(self) -> StoredMessage:
        """All fields, decoded with the first use."""
        stored = self._stored
        if stored is None:
            whole = self._head + self.body + self._tail
            stored = self._stored = record.decode(whole, check_crc=False)
        return stored

    @property
    def topic(self) -> str:
        """The topic, found without decoding the rest."""
        return record.topic_behind_body(self._head, self._tail)

    def queue_if_plain(self, start: bytes, name: bytes) -> bytes | None:
        """The id of its queue, as the record has it, if its topic is as `topic_start` says, and the name not mentioned.

        None also for a plain record of version 2, whose topic begins otherwise.
        """
        tail = self._tail
        if not tail.startswith(start) or name in tail:
            return None
        return self._head[QUEUE_ID_AT:_QUEUE_ID_END]

    @property
    def tags(self) -> str | None:
        """The tags, found without decoding the rest."""
        return Properties.decode(record.properties_behind_body(self._head, self._tail)).tags

    @property
    def queue_id(self) -> int:
        """The queue that has the record, found without decoding the rest."""
        return int.from_bytes(self._head[QUEUE_ID_AT:_QUEUE_ID_END], "big")

    def mentions(self, name: bytes) -> bool:
        """Return whether the bytes are anywhere in its topic or properties. Without them it has no such property."""
        return name in self._tail


def topic_start(topic: str) -> bytes:
    """Return the bytes behind the body of a record with this topic. Those of records of version 2 are others."""
    raw = topic.encode()
    return bytes([min(len(raw), _LONGEST)]) + raw
