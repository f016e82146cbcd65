"""Messages to send that wait for the end of a turn: each is encoded straight into the body of its batch.

    put ── plain ──> Batch ── the turn ends, or it is full ──> ready ──> one request, or a message alone
        ── else ───> the long way, which has all rules

`put` takes only topics and tags that the long way has checked before, as `learn` says. It changes nothing before
all is checked. Futures are only kept for their senders. batches.py has the layout of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparrowmq.kernel.batch_layout import (
    ADDED,
    ATTEND,
    HEAD_BYTES,
    LONG_WAY,
    MAX_PROPERTIES_BYTES,
    NEEDS_IDS,
    OVERHEAD_BYTES,
    RESERVED,
)
from sparrowmq.kernel.cursor import Out

_OVERHEAD_PER_MESSAGE_BYTES = HEAD_BYTES + 2  # of a message in a batch, without body and properties
_MAX_LEARNED = 1024
_MAX_KEY_CHARS = 255
_KEYS, _VALUE_END = b"KEYS\x01", b"\x02"


class ReservedIds:
    """Unique ids of one millisecond, which are made when they are needed; RESERVED of them.

    Attributes:
        left: how many there are.
    """

    __slots__ = ("_counter", "_head", "left")

    def __init__(self, head: str, counter: int) -> None:
        self._head = head
        self._counter = counter
        self.left = RESERVED

    def next(self) -> str:
        """Return the next one, while some are `left`."""
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        self.left -= 1
        return f"{self._head}{counter:04X}"


class Window:
    """The messages of one producer: in flight, waiting for the window, and accumulated in this turn. `in_flight_bytes`
    counts bodies; the other bytes are the memory that messages take. A shut window takes no more.
    """

    __slots__ = (
        "accumulated",
        "accumulated_bytes",
        "in_flight",
        "in_flight_bytes",
        "is_shut",
        "size",
        "size_bytes",
        "waiting",
        "waiting_bytes",
        "waiting_limit_bytes",
    )

    def __init__(self, size: int, size_bytes: int, waiting_limit_bytes: int) -> None:
        self.size = size
        self.size_bytes = size_bytes
        self.waiting_limit_bytes = waiting_limit_bytes
        self.is_shut = False
        self.in_flight = self.in_flight_bytes = 0
        self.waiting = self.waiting_bytes = 0
        self.accumulated = self.accumulated_bytes = 0

    @property
    def may_accumulate(self) -> bool:
        """Whether a message may wait for the end of the turn: others are in flight, or it could leave at once."""
        return self.in_flight > 0 and not self.is_shut

    @property
    def is_open(self) -> bool:
        """Whether a message may enter now."""
        return self.in_flight < self.size and self.in_flight_bytes < self.size_bytes

    @property
    def has_room(self) -> bool:
        """Whether a message would be sent by the end of this turn."""
        return (
            self.waiting == 0
            and self.in_flight + self.accumulated < self.size
            and self.in_flight_bytes < self.size_bytes
        )

    @property
    def unanswered(self) -> int:
        """The messages that are accumulated, wait, or are in flight."""
        return self.accumulated + self.waiting + self.in_flight

    def has_room_for_waiting(self, cost_bytes: int) -> bool:
        """Return whether a message that takes so much memory may wait."""
        return self.waiting_bytes + self.accumulated_bytes + cost_bytes <= self.waiting_limit_bytes

    def add_waiting(self, count: int, cost_bytes: int) -> None:
        """Messages wait; negative numbers are of those that have waited."""
        self.waiting += count
        self.waiting_bytes += cost_bytes

    def add_in_flight(self, count: int, body_bytes: int) -> None:
        """Messages are in flight; negative numbers are of those that leave."""
        self.in_flight += count
        self.in_flight_bytes += body_bytes


class Batch:
    """The messages of one batch: what is sent of each, and who waits for it.

    Attributes:
        content: the body of the batch, once it is `encoded`.
        size_bytes, body_bytes: of the content, and of the bodies in it.
    """

    __slots__ = ("_out", "body_bytes", "content", "futures", "msg_ids", "size_bytes", "timeout_s", "topic")

    def __init__(self, topic: str, timeout_s: float) -> None:
        self.topic = topic
        self.timeout_s = timeout_s
        self._out = Out()
        self.content = b""
        self.msg_ids: list[str] = []
        self.futures: list[Any] = []
        self.size_bytes = self.body_bytes = 0

    def append(self, body: bytes, head: bytes, msg_id: str, future: Any) -> None:
        """Add a message. Its properties are `head` and the end of the last one: the message's id."""
        out, raw_id, body_size = self._out, msg_id.encode(), len(body)
        properties_size = len(head) + len(raw_id) + 1
        frame_size = _OVERHEAD_PER_MESSAGE_BYTES + body_size + properties_size
        out.i32(frame_size)
        out.i64(0)
        out.i32(0)
        out.i32(body_size)
        out.raw(body)
        out.i16(properties_size)
        out.raw(head)
        out.raw(raw_id)
        out.raw(_VALUE_END)
        self.msg_ids.append(msg_id)
        self.futures.append(future)
        self.size_bytes += frame_size
        self.body_bytes += body_size

    def encoded(self) -> bytes:
        """The body of the batch, to which nothing is added any more."""
        if not self.content:
            self.content = self._out.take()
        return self.content

    def single_body(self) -> bytes:
        """The body of the only message."""
        return self.encoded()[HEAD_BYTES : HEAD_BYTES + self.body_bytes]

    def single_properties(self) -> bytes:
        """The properties of the only message."""
        return self.encoded()[_OVERHEAD_PER_MESSAGE_BYTES + self.body_bytes :]

    def succeed(
        self, make: Callable[..., object], offset_ids: Sequence[str], queue: object, first_offset: int, status: object
    ) -> None:
        """Give each sender the result that `make` makes, as of a single message.

        Args:
            make: takes the message's id, its offset id, its queue, its offset, and its status.
            offset_ids: those of the messages; one for all if the batch is one record.
        """
        is_one_record = len(offset_ids) != len(self.futures)
        offset = first_offset
        for index in range(len(self.futures)):
            future = self.futures[index]
            if not future.done():
                offset_id = offset_ids[0] if is_one_record else offset_ids[index]
                future.set_result(make(self.msg_ids[index], offset_id, queue, offset, status))
            offset += 1


class Gather:
    """The open batches of one producer, one for each topic.

    Attributes:
        ready: the batches that have to leave now.
    """

    __slots__ = (
        "_full_topics",
        "_heads",
        "_ids",
        "_max_batch",
        "_max_body_bytes",
        "_max_bytes",
        "_open_batches",
        "_timeout_s",
        "_window",
        "ready",
    )

    def __init__(self, window: Window, timeout_s: float, max_batch: int, max_bytes: int, max_body_bytes: int) -> None:
        self._window = window
        self._timeout_s = timeout_s
        self._max_batch = max_batch
        self._max_bytes = max_bytes
        self._max_body_bytes = max_body_bytes
        self._full_topics: dict[str, str] = {}  # the name that brokers know, by the name that the program uses
        self._heads: dict[str | None, bytes] = {}  # the properties up to the message's id, by tag
        self._open_batches: dict[str, Batch] = {}
        self._ids = ReservedIds("", 0)
        self._ids.left = 0
        self.ready: list[Batch] = []

    def put(self, topic: object, body: object, arguments: dict[str, Any], is_awaited: bool, future: object) -> int:
        """Take a plain message, of which `future` gets the result.

        Args:
            arguments: what the program gave besides, by name.
            is_awaited: its sender waits for the result, so it is always let in.
        Returns: LONG_WAY if it is not plain, and NEEDS_IDS if it has to come again after `use_ids`: it was not taken.
            ADDED, or ATTEND if there are `ready` batches, or the first one was opened.
        """
        window = self._window
        if window.is_shut or type(body) is not bytes or type(topic) is not str:
            return LONG_WAY
        full_topic = self._full_topics.get(topic)
        size = len(body)
        if full_topic is None or size == 0 or size > self._max_body_bytes:
            return LONG_WAY
        tag: Any = None
        key: Any = None
        for name, value in arguments.items():
            if name == "tag":
                tag = value
            elif name == "keys" and type(value) is str and _is_plain_key(value):
                key = value
            else:
                return LONG_WAY
        if tag is not None and not isinstance(tag, str):
            return LONG_WAY
        head = self._heads.get(tag)
        if head is None or (not is_awaited and not window.has_room_for_waiting(size + OVERHEAD_BYTES)):
            return LONG_WAY
        if key is not None:
            head = _KEYS + key.encode() + _VALUE_END + head
        if len(head) > MAX_PROPERTIES_BYTES:
            return LONG_WAY
        has_open = len(self._open_batches) > 0
        if self._ids.left == 0 or (self._ids.left != RESERVED and not has_open):
            return NEEDS_IDS
        msg_id = self._ids.next()
        if window.in_flight > 0 or has_open:
            return self.add(full_topic, body, head, msg_id, self._timeout_s, future)
        batch = Batch(full_topic, self._timeout_s)
        batch.append(body, head, msg_id, future)
        self.ready.append(batch)
        return ATTEND

    def use_ids(self, ids: ReservedIds) -> None:
        """Take fresh ids for the messages that come next."""
        self._ids = ids

    def learn(self, topic: str, full_topic: str, tag: str | None, head: bytes) -> None:
        """Take the short way for plain messages of this topic with this tag, which were checked."""
        if len(self._full_topics) >= _MAX_LEARNED:
            self._full_topics.clear()
        if len(self._heads) >= _MAX_LEARNED:
            self._heads.clear()
        self._full_topics[topic] = full_topic
        self._heads[tag] = head

    def add(self, full_topic: str, body: bytes, head: bytes, msg_id: str, timeout_s: float, future: object) -> int:
        """Add a message that was checked, as in `Batch.append`. Returns: ADDED or ATTEND, as `put`."""
        outcome = ADDED
        batch = self._open_batches.get(full_topic)
        if batch is not None and (
            batch.timeout_s != timeout_s
            or batch.size_bytes + _OVERHEAD_PER_MESSAGE_BYTES + len(body) + len(head) + len(msg_id) + 1
            > self._max_bytes
        ):
            self.close_topic(full_topic)
            batch = None
        if batch is None:
            batch = Batch(full_topic, timeout_s)
            self._open_batches[full_topic] = batch
            outcome = ATTEND
        batch.append(body, head, msg_id, future)
        self._window.accumulated += 1
        self._window.accumulated_bytes += len(body) + OVERHEAD_BYTES
        if len(batch.futures) >= self._max_batch:
            self.close_topic(full_topic)
            outcome = ATTEND
        return outcome

    def has_open_batches(self) -> bool:
        return len(self._open_batches) > 0

    def close_topic(self, full_topic: str) -> None:
        """Make the batch of a topic ready, if there is one."""
        batch = self._open_batches.pop(full_topic, None)
        if batch is not None:
            count = len(batch.futures)
            self._window.accumulated -= count
            self._window.accumulated_bytes -= batch.body_bytes + count * OVERHEAD_BYTES
            self.ready.append(batch)

    def close_all(self) -> None:
        """Make all batches ready."""
        for full_topic in list(self._open_batches):
            self.close_topic(full_topic)


def _is_plain_key(key: str) -> bool:
    return 0 < len(key) <= _MAX_KEY_CHARS and key.isascii() and key.isprintable() and " " not in key
