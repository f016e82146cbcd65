"""The messages of one producer that are not answered, and the accumulator that makes batches of them.

    accumulated (this turn) -> waiting (the window is full) -> in flight -> answered

    send_soon ── nothing in flight ────────────────────────────────────────> alone, at once
              ── something in flight ─> accumulated ── the turn ends ──────> one batch for each topic
                                                    └─ the batch is full ──>

While others are in flight, a message that waits for the end of the turn loses nothing: it would wait in the socket. So
a producer in a hurry makes large batches, and a quiet one makes none, as in Nagle's algorithm.

`take` is the short way of plain messages: without a `Message`, its checks, or a task. It takes only topics and tags
that the long way has checked before. So all rules are in the long way. Source: the idea of autoBatch, Java 5.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be

from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.client.message_ids import MessageIds
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_id import ReservedIds

MAX_BODY_BYTES: Final = 4096  # a larger body gains little by company
MAX_PROPERTIES_BYTES: Final = 8192
MAX_BATCH_BYTES: Final = 128 * 1024
OVERHEAD_BYTES: Final = 512  # memory of a waiting message besides its body
_OVERHEAD_PER_MESSAGE_BYTES: Final = 22  # overhead of a message in a batch, without body and properties
_BODY_OFFSET: Final = 20
_MAX_LEARNED: Final = 1024
_KEYS: Final = b"KEYS\x01"
_VALUE_END: Final = b"\x02"


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
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.waiting = 0
        self.waiting_bytes = 0
        self.accumulated = 0
        self.accumulated_bytes = 0

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
    """The messages of one batch: what is sent of each, and who waits for it."""

    __slots__ = ("_writer", "body_bytes", "futures", "msg_ids", "size_bytes", "timeout_s", "topic")

    def __init__(self, topic: str, timeout_s: float) -> None:
        self.topic = topic
        self.timeout_s = timeout_s
        self._writer = BytesWriter()
        self.msg_ids: list[str] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.size_bytes = 0
        self.body_bytes = 0

    def append(self, body: bytes, head: bytes, msg_id: str, future: asyncio.Future[SendResult]) -> None:
        """Add a message. Its properties are `head` and the end of the last one: the message's id."""
        writer, body_size, properties_size = self._writer, len(body), len(head) + len(msg_id) + len(_VALUE_END)
        frame_size = _OVERHEAD_PER_MESSAGE_BYTES + body_size + properties_size
        write_i32_be(writer, frame_size)  # as in protocol/messages/batch.py
        write_i32_be(writer, 0)
        write_i32_be(writer, 0)
        write_i32_be(writer, 0)
        write_i32_be(writer, body_size)
        writer.write(body)
        write_i16_be(writer, properties_size)
        writer.write(head)
        writer.write(msg_id.encode())
        writer.write(_VALUE_END)
        self.msg_ids.append(msg_id)
        self.futures.append(future)
        self.size_bytes += frame_size
        self.body_bytes += body_size

    def encode(self) -> bytes:
        """The body of the batch."""
        return self._writer.getvalue()

    def single_body(self) -> bytes:
        """The body of the only message."""
        return self._writer.getvalue()[_BODY_OFFSET : _BODY_OFFSET + self.body_bytes]

    def single_properties(self) -> bytes:
        """The properties of the only message."""
        return self._writer.getvalue()[_OVERHEAD_PER_MESSAGE_BYTES + self.body_bytes :]

    def is_abandoned(self) -> bool:
        """Return whether all senders have given up."""
        return all(future.done() for future in self.futures)

    def succeed(self, offset_ids: list[str], queue: MessageQueue, first_offset: int, status: SendStatus) -> None:
        """Give each sender its result, as of a single message. A batch that is one record has one offset id."""
        is_one_record = len(offset_ids) != len(self.futures)
        for index, future in enumerate(self.futures):
            if not future.done():
                offset_id = offset_ids[0] if is_one_record else offset_ids[index]
                result = SendResult(self.msg_ids[index], offset_id, queue, first_offset + index, status)
                future.set_result(result)


class Accumulator:
    """The messages of one producer that wait for the end of this turn."""

    __slots__ = (
        "_full_topics",
        "_heads",
        "_ids",
        "_is_close_due",
        "_loop_affinity",
        "_max_batch",
        "_max_body_bytes",
        "_max_bytes",
        "_open_batches",
        "_reserved_ids",
        "_send",
        "_timeout_s",
        "_window",
    )

    def __init__(
        self,
        send: Callable[[Batch], object],
        settings: ProducerSettings,
        window: Window,
        ids: MessageIds,
        loop_affinity: LoopAffinity,
    ) -> None:
        self._loop_affinity = loop_affinity
        self._send = send
        self._window = window
        self._ids = ids
        self._reserved_ids: ReservedIds | None = None
        self._timeout_s = settings.timeout_s
        self._max_batch = min(settings.max_batch, settings.window)
        self._max_bytes = min(settings.max_bytes, MAX_BATCH_BYTES)
        max_body_bytes = min(settings.max_bytes, settings.compress_over_bytes, MAX_BODY_BYTES)
        self._max_body_bytes = max_body_bytes if self._max_batch > 1 else 0
        self._full_topics: dict[str, str] = {}  # the name that brokers know, by the name that the program uses
        self._heads: dict[str | None, bytes] = {}  # the properties up to the message's id, by tag
        self._open_batches: dict[str, Batch] = {}
        self._is_close_due = False

    def take(
        self, topic: object, body: object, arguments: Mapping[str, object], is_awaited: bool
    ) -> asyncio.Future[SendResult] | None:
        """Take a plain message, and return the future of its result. None: it needs the long way."""
        window = self._window
        if window.is_shut or type(body) is not bytes or type(topic) is not str:
            return None
        full_topic = self._full_topics.get(topic)
        size = len(body)
        if full_topic is None or not 0 < size <= self._max_body_bytes:
            return None
        tag: object = None
        key: object = None
        if arguments:
            for name, value in arguments.items():
                if name == "tag":
                    tag = value
                elif name == "keys" and isinstance(value, str) and _is_plain_key(value):
                    key = value
                else:
                    return None
        if tag is not None and not isinstance(tag, str):
            return None
        head = self._heads.get(tag)
        if head is None:
            return None
        if not is_awaited and not window.has_room_for_waiting(size + OVERHEAD_BYTES):
            return None
        if get_ident() != self._loop_affinity.thread or not self._loop_affinity.loop.is_running():
            return None
        if isinstance(key, str):
            head = _KEYS + key.encode() + _VALUE_END + head
        reserved = self._reserved_ids
        if reserved is None or not self._open_batches or reserved.left == 0:
            reserved = self._reserved_ids = self._ids.reserve()
        msg_id = reserved.next()
        if window.in_flight > 0 or self._open_batches:
            return self.add(full_topic, body, head, msg_id, self._timeout_s)
        batch = Batch(full_topic, self._timeout_s)
        future: asyncio.Future[SendResult] = self._loop_affinity.loop.create_future()
        batch.append(body, head, msg_id, future)
        self._send(batch)
        return future

    def fits(self, body: bytes, properties: str, is_awaited: bool) -> bool:
        """Return whether others are in flight, and a message is small enough for a batch and may wait."""
        size = len(body)
        return (
            self._window.may_accumulate
            and size <= self._max_body_bytes
            and len(properties) * 4 <= MAX_PROPERTIES_BYTES
            and (is_awaited or self._window.has_room_for_waiting(size + OVERHEAD_BYTES))
        )

    def learn(self, topic: str, full_topic: str, tag: str | None, head: bytes) -> None:
        """Take the short way for plain messages of this topic with this tag, which were checked."""
        for learned in (self._full_topics, self._heads):
            if len(learned) >= _MAX_LEARNED:
                learned.clear()
        self._full_topics[topic] = full_topic
        self._heads[tag] = head

    def add(
        self, full_topic: str, body: bytes, head: bytes, msg_id: str, timeout_s: float
    ) -> asyncio.Future[SendResult]:
        """Add a message, as in `Batch.append`. It leaves at the end of the turn, or when its batch is full."""
        loop = self._loop_affinity.loop
        size = len(body)
        frame_size = _OVERHEAD_PER_MESSAGE_BYTES + size + len(head) + len(msg_id) + len(_VALUE_END)
        batch = self._open_batches.get(full_topic)
        if batch is not None and (batch.timeout_s != timeout_s or batch.size_bytes + frame_size > self._max_bytes):
            self._close(batch)
            batch = None
        if batch is None:
            batch = self._open_batches[full_topic] = Batch(full_topic, timeout_s)
            if not self._is_close_due:
                self._is_close_due = True
                loop.call_soon(self.close)
        future: asyncio.Future[SendResult] = loop.create_future()
        batch.append(body, head, msg_id, future)
        self._window.accumulated += 1
        self._window.accumulated_bytes += size + OVERHEAD_BYTES
        if len(batch.futures) >= self._max_batch:
            self._close(batch)
        return future

    def flush_topic(self, full_topic: str) -> None:
        """Send what is accumulated of a topic, because a message after it leaves now."""
        batch = self._open_batches.get(full_topic)
        if batch is not None:
            self._close(batch)

    def close(self) -> None:
        """Send all that is accumulated: the turn ends."""
        self._is_close_due = False
        while self._open_batches:
            self._close(next(iter(self._open_batches.values())))

    def _close(self, batch: Batch) -> None:
        del self._open_batches[batch.topic]
        count = len(batch.futures)
        self._window.accumulated -= count
        self._window.accumulated_bytes -= batch.body_bytes + count * OVERHEAD_BYTES
        self._send(batch)


def _is_plain_key(key: str) -> bool:
    return type(key) is str and len(key) < 256 and key.isascii() and key.isprintable() and key != "" and " " not in key
