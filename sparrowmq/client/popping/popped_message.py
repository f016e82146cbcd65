"""A popped message, its receipt, with which it is acknowledged, and the answer of a pop, which makes both.

pop --> Receipt of queue 0 <-- message, message, ...        all messages of one queue share one
    --> Receipt of queue 1 <-- message, ...
change of the invisible time --> a Receipt for this message alone

The first message of a queue makes its receipt. A broker of ours says how many messages of each queue come. Of others,
each message costs a look at its head. A message of a retry topic may have a handle of its own in its property POP_CK.
Source: MQClientAPIImpl.processPopResponse, Java 5.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from sparrowmq.client.cluster.network import plain_queue
from sparrowmq.client.consuming.received_message import Owner, ReceivedMessage
from sparrowmq.errors import ConfigError
from sparrowmq.kernel.messages import deliver, topic_start
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import receipt_handle
from sparrowmq.protocol.messages.message import MessageQueue, Property
from sparrowmq.protocol.requests.pop_headers import PopMessageReply

_POP_CK: Final = Property.POP_CK.encode()


class Receipt(NamedTuple):
    """The right to acknowledge messages of one queue, until they become visible again.

    Attributes:
        topic: the full name of the topic that was popped.
        handle: the one of this message, or of the first of those that share the receipt.
        visible_s: the time of the clock at which the messages become visible again.
        is_own: it is the receipt of one message only.
        text: the handle as the broker gave it; "" if it was made here.
    """

    topic: str
    handle: receipt_handle.ReceiptHandle
    clock: Clock
    visible_s: float
    is_own: bool = False
    text: str = ""

    @staticmethod
    def own(topic: str, text: str, handle: receipt_handle.ReceiptHandle, clock: Clock) -> Receipt:
        """The receipt of one message, which is invisible from now on."""
        visible_s = clock.monotonic() + handle.invisible_ms / 1000
        return Receipt(topic, handle, clock, visible_s, is_own=True, text=text)


class PoppedMessage(ReceivedMessage):
    """A message that was delivered by a pop.

    Attributes:
        _receipt: renewed when its invisible time is changed.
        _is_spent: the message was acknowledged, or given back.
        _is_dead: a copy of it is in the dead-letter queue, so it needs no other copy.
        _reject_lock: held by the call that makes this copy, and acknowledges the message; made by the first call.
    """

    __slots__ = ("__dict__",)  # few messages need one
    _receipt: Receipt
    _is_dead = False
    _reject_lock: asyncio.Lock | None = None

    @property
    def _handle(self) -> receipt_handle.ReceiptHandle:
        handle, offset = self._receipt.handle, self._handle_offset
        return handle if handle.queue_offset == offset else handle._replace(queue_offset=offset)

    @property
    def _handle_offset(self) -> int:
        receipt = self._receipt
        return receipt.handle.queue_offset if receipt.is_own else self.offset

    @property
    def _handle_text(self) -> str:
        return self._receipt.text or str(self._handle)

    @property
    def _remaining_s(self) -> float:
        """The seconds until it becomes visible; negative ones if another consumer may have it."""
        return self._receipt.visible_s - self._receipt.clock.monotonic()

    @property
    def is_current(self) -> bool:
        """Return whether the message is still invisible to other consumers."""
        return super().is_current and self._remaining_s > 0

    def _renew(self, text: str, handle: receipt_handle.ReceiptHandle) -> None:
        self._receipt = Receipt.own(self._receipt.topic, text, handle, self._receipt.clock)


def check_popped(message: object) -> PoppedMessage:
    """The message. Raises: ConfigError, it was not popped."""
    if not isinstance(message, PoppedMessage):
        raise ConfigError(f"{message!r} was not received by a simple consumer; give a message of `receive`")
    return message


def check_unspent(message: object, consequence: str) -> PoppedMessage:
    """The message. Raises: ConfigError, it was not popped, or is settled already, with the consequence."""
    popped_message = check_popped(message)
    if popped_message._is_spent:
        raise ConfigError(f"{message!r} is settled already, so {consequence}")
    return popped_message


_QueueAndReceipt = tuple[MessageQueue, Receipt]


class PoppedFrom(NamedTuple):
    """A topic at one broker: any of its queues there."""

    topic: str
    broker_name: str


class PopAnswer:
    """The header of one answer. Raises: ConfigError, the header is invalid."""

    def __init__(self, place: PoppedFrom, group: str, header: PopMessageReply, clock: Clock, namespace: str) -> None:
        self._place = place
        self._group = group
        self._header = header
        self._clock = clock
        self._namespace = namespace
        self._starts = {
            key: popped_queue.start_offset
            for key, popped_queue in receipt_handle.popped_queues(header.start_offset_info).items()
        }
        counts = header.order_count_info
        self._counts = receipt_handle.OrderCounts.parse(counts) if counts else None
        self._message_counts = receipt_handle.queue_counts(header.queue_counts)
        self._by_queue: dict[tuple[receipt_handle.Kind, int], _QueueAndReceipt] = {}

    def give_receipts(self, messages: Sequence[PoppedMessage], owner: Owner) -> None:
        """Give the messages of the answer their queues and receipts. Raises: ConfigError, a handle is invalid."""
        if self._are_plain(messages):
            self._give_by_count(messages, owner)
        else:
            self._give_one_by_one(messages, owner)
        if self._counts is not None:
            for message in messages:
                self._count_deliveries(message, self._counts)

    def _are_plain(self, messages: Sequence[PoppedMessage]) -> bool:
        """Whether all are of the popped topic itself, as many of each queue as the broker says."""
        numbers, starts = self._message_counts, self._starts
        return (
            len(numbers) == len(starts)
            and all(numbers)
            and sum(numbers) == len(messages)
            and all(kind is receipt_handle.Kind.NORMAL for kind, _ in starts)
        )

    def _give_by_count(self, messages: Sequence[PoppedMessage], owner: Owner) -> None:
        begin = 0
        for key, count in zip(self._starts, self._message_counts, strict=True):
            queue, receipt = self._share_of_queue(key, messages[begin].offset)
            deliver(messages[begin : begin + count], queue, None, owner, self._namespace, receipt)
            begin += count

    def _give_one_by_one(self, messages: Sequence[PoppedMessage], owner: Owner) -> None:
        start = topic_start(self._place.topic)
        # Queue and receipt by queue id, for messages of the popped topic itself.
        plain_queues: dict[bytes, _QueueAndReceipt] = {}
        for message in messages:
            plain_queue_id = message._queue_if_plain(start, _POP_CK)
            queue_and_receipt = None if plain_queue_id is None else plain_queues.get(plain_queue_id)
            if queue_and_receipt is None:
                queue_and_receipt = self._queue_and_receipt(message)
                if plain_queue_id is not None:
                    plain_queues[plain_queue_id] = queue_and_receipt
            queue, receipt = queue_and_receipt
            deliver((message,), queue, None, owner, self._namespace, receipt)

    def _queue_and_receipt(self, message: PoppedMessage) -> _QueueAndReceipt:
        """The queue and the receipt of a message."""
        key = (receipt_handle.Kind.of(message._topic()), message._queue_id())
        text = message.properties.get(Property.POP_CK) if message._mentions(_POP_CK) else None
        if text is not None:
            handle = receipt_handle.handle_in_record(text, self._header.pop_time, is_listed=key in self._starts)
            if handle is not None:
                return self._queue_of(handle), Receipt.own(self._place.topic, text, handle, self._clock)
        return self._share_of_queue(key, message.offset)

    def _share_of_queue(self, key: tuple[receipt_handle.Kind, int], offset: int) -> _QueueAndReceipt:
        if key not in self._by_queue:
            handle = self._handle(*key, offset)
            visible_s = self._clock.monotonic() + handle.invisible_ms / 1000
            receipt = Receipt(self._place.topic, handle, self._clock, visible_s)
            self._by_queue[key] = self._queue_of(handle), receipt
        return self._by_queue[key]

    def _handle(self, kind: receipt_handle.Kind, queue_id: int, offset: int) -> receipt_handle.ReceiptHandle:
        header, start = self._header, self._starts.get((kind, queue_id), offset)
        times = (header.pop_time, header.invisible_time, header.revive_qid)
        return receipt_handle.ReceiptHandle(start, *times, kind, self._place.broker_name, queue_id, offset)

    def _queue_of(self, handle: receipt_handle.ReceiptHandle) -> MessageQueue:
        topic = handle.kind.topic_of(self._place.topic, self._group)
        return plain_queue(self._namespace, MessageQueue(topic, self._place.broker_name, handle.queue_id))

    def _count_deliveries(self, message: PoppedMessage, counts: receipt_handle.OrderCounts) -> None:
        """Count the former deliveries of an ordered pop, which the record does not know."""
        handle = message._handle
        former_deliveries = counts.of(handle.kind, handle.queue_id, handle.queue_offset)
        message.reconsume_times = max(message.reconsume_times, former_deliveries)
