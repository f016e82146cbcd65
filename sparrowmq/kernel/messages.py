"""Received messages: one object for each record of an answer, and those of a queue that are not settled yet.

    answer ── receive ──> messages ── UnsettledMessages.add, deliver ──> handlers ── ack ──> the queue's front moves on

    | head ......................... | body ........ | tail: topic, properties |
      offset, flags: numbers at once    bytes at once    text on first use

A message keeps copies of its parts, so a message that is kept does not keep the whole answer, which may have 256 KiB.
What a message gets by `deliver`, as its queue and its owner, is only kept here and given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Any, TypeVar

from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.record_layout import (
    MAGIC_AT,
    MAGIC_V1,
    PROPERTIES_SIZE_FIELD,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)
from sparrowmq.kernel.records import Buffer, Record, next_problem

_COMPRESSED = 1  # a bit of the system flag, as in message.SysFlag
_SOUND = 0  # of Record.find
_NO_THREAD = -1
_QUEUE_ID_END = QUEUE_ID_AT + 4
_TAGS = b"\x02TAGS\x01"
_VALUE_END = b"\x02"


class HomeThread:
    """The thread in which acknowledgements take effect at once.

    Attributes:
        thread: its number, as of `threading.get_ident`; -1 if there is none.
    """

    __slots__ = ("thread",)

    def __init__(self) -> None:
        self.thread = _NO_THREAD


class DoneCount:
    """The number of messages that were acknowledged, of several queues: `done`."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = 0


class DeliveredMessage:
    """A message at its consumer. `receive` makes several of the kind of a subclass.

    Attributes:
        queue, offset: its place.
        reconsume_times: the number of failed deliveries before this one.
        store_size: the bytes that it has in the broker's log.
        _stored_body: the body as it is stored, perhaps compressed.
        _rest: its record without the body, which stood at `_body_at`; empty if it was not made of a record.
        _settle: takes the outcome; None if the message is settled.
        _is_spent: whether a popped message was acknowledged or given back.
        _stored, _owner, _namespace, _receipt, _options: kept for the subclass.
    """

    __slots__ = (
        "_after",
        "_before",
        "_body",
        "_body_at",
        "_holder",
        "_is_spent",
        "_namespace",
        "_options",
        "_owner",
        "_receipt",
        "_rest",
        "_settle",
        "_stored",
        "_stored_body",
        "_sys_flag",
        "offset",
        "queue",
        "reconsume_times",
        "store_size",
    )

    _after: DeliveredMessage | None
    _before: DeliveredMessage | None
    _body: bytes | None
    _holder: UnsettledMessages | None
    queue: Any
    _namespace: str
    _options: Any
    _owner: Any
    _receipt: Any
    _settle: Any
    _stored: Any

    def _begin(self, offset: int, store_size: int, sys_flag: int, reconsume_times: int, body: bytes) -> None:
        """Set what is known at once, and everything else to nothing."""
        self.offset = offset
        self.store_size = store_size
        self.reconsume_times = reconsume_times
        self._sys_flag = sys_flag
        self._stored_body = body
        self._body = None if sys_flag & _COMPRESSED else body
        self._rest = b""
        self._body_at = 0
        self._is_spent = False
        self._namespace = ""
        self._after = self._before = self._holder = None
        self.queue = self._options = self._owner = self._receipt = self._settle = self._stored = None

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises: RemoteProtocolError, the compressed body is damaged or far too large."""
        if self._body is None:
            self._body = self._decompressed()
        return self._body

    @property
    def is_unsettled(self) -> bool:
        """Return whether it was neither acknowledged nor given back."""
        return self._settle is not None

    def ack(self) -> None:
        """Acknowledge it: the group goes on behind it. Settling a message twice has no effect."""
        settle = self._settle
        if settle is None:
            return
        self._settle = None
        holder = self._holder
        if holder is not None and holder.takes_acks(get_ident()):
            holder.stats.done += 1
            holder.remove(self)
        else:
            self._ack_by(settle)

    def _ack_by(self, settle: Any) -> None:
        """Acknowledge it the long way, which a subclass knows."""
        raise NotImplementedError

    def _decompressed(self) -> bytes:
        """The body as it was sent, of a compressed one. A subclass knows how."""
        raise NotImplementedError

    def _record(self) -> bytes:
        """Its record."""
        return self._rest[: self._body_at] + self._stored_body + self._rest[self._body_at :]

    def _queue_id(self) -> int:
        """The queue that has the record."""
        return In(self._rest).i32(QUEUE_ID_AT)

    def _topic(self) -> str:
        """The topic of the record."""
        rest = In(self._rest)
        begin, end = self._topic_at(rest), self._properties_at(rest) - PROPERTIES_SIZE_FIELD
        return str(rest.slice(begin, end), "utf-8", "replace")

    def _tags(self) -> str | None:
        """The tags: the last ones that are not empty."""
        rest = In(self._rest)
        properties = _VALUE_END + rest.slice(self._properties_at(rest), rest.size) + _VALUE_END
        at = properties.rfind(_TAGS)
        while at >= 0:
            begin = at + len(_TAGS)
            end = properties.find(_VALUE_END, begin)
            if end > begin:
                return str(properties[begin:end], "utf-8", "replace")
            at = properties.rfind(_TAGS, 0, at + 1)
        return None

    def _mentions(self, name: bytes) -> bool:
        """Return whether the bytes are anywhere in its topic or properties. Without them it has no such property."""
        return name in self._rest[self._body_at :]

    def _queue_if_plain(self, start: bytes, name: bytes) -> bytes | None:
        """The id of its queue, as the record has it, if its topic is as `topic_start` says, and the name not mentioned.

        None also for a plain record of version 2, whose topic begins otherwise.
        """
        tail = self._rest[self._body_at :]
        if not tail.startswith(start) or name in tail:
            return None
        return self._rest[QUEUE_ID_AT:_QUEUE_ID_END]

    def _topic_at(self, rest: In) -> int:
        size_field = TOPIC_SIZE_FIELD_V1 if rest.i32(MAGIC_AT) == MAGIC_V1 else TOPIC_SIZE_FIELD_V2
        return self._body_at + size_field

    def _properties_at(self, rest: In) -> int:
        begin = self._topic_at(rest)
        topic_size = rest.u8(begin - 1) if begin - self._body_at == 1 else rest.u16(begin - 2)
        return begin + topic_size + PROPERTIES_SIZE_FIELD


M = TypeVar("M", bound=DeliveredMessage)


def receive(kind: type[M], records: Buffer, messages: list[M], damaged: list[int]) -> str | None:
    """Make a message of each of several records end to end, as in the body of an answer.

    Args:
        kind: the class of the messages.
        damaged: gets the log offset of each record whose body does not fit its CRC instead.
    Returns: why the next bytes are no complete record; None at the end.
    """
    record = Record(In(records))
    source = record.source
    at, end = 0, source.size
    while at < end:
        fault = record.find(at, end)
        if fault != _SOUND:
            return next_problem(record, fault, end)
        if record.has_sound_body():
            message = kind.__new__(kind)
            message._begin(
                source.i64(at + QUEUE_OFFSET_AT),
                record.size,
                source.i32(at + SYS_FLAG_AT),
                record.reconsume_times(),
                source.slice(record.body_at, record.body_end),
            )
            message._body_at = record.body_at - at
            message._rest = source.without(at, record.body_at, record.body_end, record.end)
            messages.append(message)
        else:
            damaged.append(record.offset())
        at = record.end
    return None


def deliver(
    messages: Sequence[DeliveredMessage],
    queue: object,
    settle: object,
    owner: object,
    namespace: str,
    receipt: object = None,
) -> None:
    """Give messages their queue, the callable that takes their outcome, their owner, and their common receipt."""
    for message in messages:
        message._receipt = receipt
        message.queue = queue
        message._settle = settle
        message._owner = owner
        message._namespace = namespace


class UnsettledMessages:
    """The messages of one queue that were pulled, and are not settled.

    Each of them is linked to the next one, so one is taken out in the same time however many there are.

    Attributes:
        next_offset: the offset behind the last one that was pulled.
        is_owned: whether settled messages are committed.
        is_watched: whether a task waits for a change: then no acknowledgement takes effect at once.
        home: the thread in which acknowledgements take effect at once; None if they have to take the long way.
        stats: counts the acknowledged messages.
    """

    __slots__ = (
        "_first",
        "_last",
        "home",
        "is_owned",
        "is_watched",
        "next_offset",
        "stats",
        "unsettled_bytes",
        "unsettled_count",
    )

    _first: DeliveredMessage | None
    _last: DeliveredMessage | None
    home: HomeThread | None
    stats: Any

    def __init__(self, next_offset: int, stats: DoneCount) -> None:
        self.next_offset = next_offset
        self.stats = stats
        self.is_owned = True
        self.is_watched = False
        self.unsettled_count = self.unsettled_bytes = 0
        self.home = None
        self._first = self._last = None

    @property
    def commit_offset(self) -> int:
        """The offset up to which everything is settled."""
        return self.next_offset if self._first is None else self._first.offset

    @property
    def last_unsettled_offset(self) -> int:
        """The offset of the last message that is not settled; the next offset without one."""
        return self.next_offset if self._last is None else self._last.offset

    @property
    def unsettled_messages(self) -> list[Any]:
        messages: list[Any] = []
        message = self._first
        while message is not None:
            messages.append(message)
            message = message._after
        return messages

    def takes_acks(self, thread: int) -> bool:
        """Return whether an acknowledgement in this thread takes effect at once."""
        home = self.home
        return home is not None and home.thread == thread and self.is_owned and not self.is_watched

    def add(self, messages: Sequence[DeliveredMessage]) -> None:
        """Add messages of no queue. Their offsets are above those of the former ones, because answers come in order."""
        for message in messages:
            last = self._last
            message._holder = self
            message._before = last
            if last is None:
                self._first = message
            else:
                last._after = message
            self._last = message
            self.unsettled_count += 1
            self.unsettled_bytes += message.store_size

    def remove(self, message: DeliveredMessage) -> bool:
        """Take a message out. Return whether it was there."""
        if message._holder is not self:
            return False
        before, after = message._before, message._after
        if before is None:
            self._first = after
        else:
            before._after = after
        if after is None:
            self._last = before
        else:
            after._before = before
        message._before = message._after = message._holder = None
        self.unsettled_count -= 1
        self.unsettled_bytes -= message.store_size
        return True

    def remove_all(self, messages: Sequence[DeliveredMessage]) -> int:
        """Take messages out. Return how many of them were there."""
        count = 0
        for message in messages:
            count += self.remove(message)
        return count


def ack_at_once(messages: Sequence[M]) -> list[M]:
    """Acknowledge messages. Return those that are not settled, and have to take the long way."""
    thread = get_ident()
    others = []
    for message in messages:
        holder = message._holder
        if message._settle is None:
            continue
        if holder is not None and holder.takes_acks(thread):
            message._settle = None
            holder.stats.done += 1
            holder.remove(message)
        else:
            others.append(message)
    return others


def mark_spent(messages: Sequence[DeliveredMessage], is_spent: bool) -> None:
    for message in messages:
        message._is_spent = is_spent


def unspent_of(messages: Sequence[M]) -> list[M]:
    """Return the messages that are not acknowledged yet."""
    return [message for message in messages if not message._is_spent]


def runs_of(messages: Sequence[DeliveredMessage]) -> list[tuple[int, int]]:
    """Return the begin and end of each run: its messages share a receipt, and no offset is between them."""
    runs: list[tuple[int, int]] = []
    receipt: object = None
    begin = index = offset = 0
    for message in messages:
        if message._receipt is not receipt or message.offset != offset:
            if index > begin:
                runs.append((begin, index))
            begin, receipt, offset = index, message._receipt, message.offset
        index += 1
        offset += 1
    if index > begin:
        runs.append((begin, index))
    return runs


def topic_start(topic: str) -> bytes:
    """Return the bytes behind the body of a record with this topic. Those of records of version 2 are others."""
    raw = topic.encode()
    return bytes([min(len(raw), 255)]) + raw
