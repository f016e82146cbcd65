"""Sends messages: waiting for the answer, pipelined, one-way, or many in one request.

    result = await mq.send("orders", b"hello", tag="paid", keys=["o-1"], region="eu")
    future = mq.send_soon("orders", b"hello")         # hundreds may be in flight; `await mq.drain()` now and then
    mq.send_nowait("orders", b"hello")                # no answer, no retry
    results = await mq.send_many([Message("orders", body) for body in bodies])

Whatever its way, a message is checked and packed here; `outbox` delivers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from sparrowmq.client.sending import batching
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.outcome import SendResult, SendStatus
from sparrowmq.client.sending.outgoing import Outgoing, Sent
from sparrowmq.client.sending.packed import batch_properties
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.errors import InvalidMessage, MessageTooLarge
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import compression, properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, SysFlag
from sparrowmq.protocol.names import check_topic, is_closed_to_clients
from sparrowmq.protocol.wire.fields import text_of

R = TypeVar("R")
NextId = Callable[[], str]


class Producer:
    """Sends messages in the name of one group. Made by `Client.producer`; a client has one of its own.

    Awaiting calls may be cancelled: nothing is left behind, but whether the message is sent is then open.
    """

    def __init__(self, group: str, outbox: Outbox, next_id: NextId, settings: ProducerSettings) -> None:
        self.group = group
        self._outbox = outbox
        self._next_id = next_id
        self._settings = settings

    async def send(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        properties: dict[str, str] | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **user_properties: object,
    ) -> SendResult:
        """Send one message and wait until the broker has it.

        Args:
            topic: where to, or a whole `Message`; then give no message field here.
            tag: one word that consumers can filter by.
            keys: what the message can be found by later.
            delay_level: 3 is the third of the broker's delays, by default 10 s.
            properties: your own, by name; further keyword arguments are added to them.
            fifo: messages with the same key go to one queue, in order. They are not retried: a retry would
                reorder.
            queue: this very queue. Not retried either.
            timeout_s: for all attempts together.
        Raises:
            InvalidMessage: it cannot be sent as it is.
            NoRoute: nobody knows the topic, and brokers do not create it.
            SendFailed: no attempt was acknowledged; the last error is its cause.
        """
        message = _message(topic, body, tag, keys, delay_level, properties, user_properties)
        await self._outbox.drain()
        return await self._put(self._pack(message, timeout_s), fifo, queue, _result)

    def send_soon(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        properties: dict[str, str] | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        **user_properties: object,
    ) -> asyncio.Future[SendResult]:
        """As `send`, without waiting: the future has the result. No task is made.

        A window of messages is in flight, the others wait for their turn; `await drain()` now and then keeps
        them few.

        Raises:
            InvalidMessage: at once; the errors of sending are the future's.
            SendFailed: at once, when far too many messages wait already.
        """
        message = _message(topic, body, tag, keys, delay_level, properties, user_properties)
        return self._put(self._pack(message, timeout_s), fifo, queue, _result)

    def send_nowait(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        delay_level: int = 0,
        properties: dict[str, str] | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        **user_properties: object,
    ) -> str:
        """Send one message one-way and return its id: no answer, no retry, no word about errors.

        Raises:
            InvalidMessage: it cannot be sent as it is.
            SendFailed: far too many messages wait already.
        """
        message = _message(topic, body, tag, keys, delay_level, properties, user_properties)
        item = self._pack(message, None)
        _address(item, fifo, queue)
        self._outbox.put(item)
        return item.msg_ids[0]

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages in as few requests as the rules of batches allow; the results are in their order.

        Messages of one batch are stored together in one queue, all or none. Delayed ones travel alone.

        Raises:
            as `send`; batches before the failed one are sent, those behind it may be.
        """
        answers: list[asyncio.Future[list[SendResult]]] = []
        for batch in batching.split(messages, self._settings.max_bytes):
            await self._outbox.drain()
            item = self._pack(batch[0], timeout_s) if len(batch) == 1 else self._pack_batch(batch, timeout_s)
            answers.append(self._put(item, fifo, queue, _results))
        return [result for answer in await asyncio.gather(*answers) for result in answer]

    async def drain(self) -> None:
        """Return when the window has room: the back-pressure of `send_soon` and `send_nowait`."""
        await self._outbox.drain()

    async def flush(self) -> None:
        """Return when every message sent so far was answered or has failed."""
        await self._outbox.flush()

    @property
    def unanswered(self) -> int:
        """How many messages wait or are in flight."""
        return self._outbox.unanswered

    # Packing --------------------------------------------------------------------------------------------------------

    def _put(
        self,
        item: Outgoing,
        fifo: str | None,
        queue: MessageQueue | None,
        result: Callable[[Outgoing, Sent], R],
    ) -> asyncio.Future[R]:
        _address(item, fifo, queue)
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        item.future, item.result = future, result
        self._outbox.put(item)
        return future

    def _pack(self, message: Message, timeout_s: float | None) -> Outgoing:
        self._check(message)
        msg_id = self._next_id()
        body, sys_flag = message.body, 0
        if len(body) > self._settings.compress_over_bytes:
            body, sys_flag = _compressed(body)
        return Outgoing(
            message.topic,
            body,
            _properties(message, msg_id),
            sys_flag,
            message.flag,
            timeout_s=timeout_s or self._settings.timeout_s,
            msg_ids=(msg_id,),
        )

    def _pack_batch(self, batch: list[Message], timeout_s: float | None) -> Outgoing:
        parts, ids = [], tuple(self._next_id() for _ in batch)
        for message, msg_id in zip(batch, ids, strict=True):
            self._check(message)
            parts.append(BatchPart(message.body, _properties(message, msg_id).encode(), message.flag))
        return Outgoing(
            batch[0].topic,
            batches.encode(parts),
            batch_properties(wait_stored=batch[0].wait_stored),
            is_batch=True,
            timeout_s=timeout_s or self._settings.timeout_s,
            msg_ids=ids,
        )

    def _check(self, message: Message) -> None:
        if is_closed_to_clients(check_topic(message.topic)):
            raise InvalidMessage(f"topic {message.topic} is written by brokers only; choose another")
        size = len(message.body)
        if not size:
            raise InvalidMessage(
                "the body is empty; consumers of other languages refuse that, send at least a byte"
            )
        if size > self._settings.max_bytes:
            raise MessageTooLarge(
                f"the body has {size} bytes, {self._settings.max_bytes} are allowed; send a reference to it "
                "instead, or raise max_bytes here and maxMessageSize at the broker"
            )


def _message(
    topic: str | Message,
    body: bytes | None,
    tag: str | None,
    keys: Sequence[str],
    delay_level: int,
    given: dict[str, str] | None,
    user_properties: dict[str, object],
) -> Message:
    if isinstance(topic, Message):
        if body is not None or tag or keys or delay_level or given or user_properties:
            raise InvalidMessage("a whole Message was given; put body, tag, keys and properties into it")
        return topic
    if body is None:
        raise InvalidMessage("no body was given; send(topic, body) needs one")
    named = {**(given or {}), **{name: text_of(value) for name, value in user_properties.items()}}
    return Message(topic, body, tag, keys, named, 0, delay_level)


def _properties(message: Message, msg_id: str) -> str:
    if message.properties or message.keys:
        rest = properties.render(message.wire_properties())
    else:
        rest = _usual_properties(message.tag, message.delay_level, message.wait_stored)
    return f"{rest}{Property.UNIQ_KEY}\x01{msg_id}\x02"


@lru_cache(maxsize=1024)
def _usual_properties(tag: str | None, delay_level: int, wait_stored: bool) -> str:
    """The properties of messages that have none of their own. Rendering them is a tenth of what a send costs."""
    message = Message("", b"", tag, delay_level=delay_level, wait_stored=wait_stored)
    return properties.render(message.wire_properties())


def _compressed(body: bytes) -> tuple[bytes, int]:
    """The body to send and its system flag. The kind is left 0: clients up to 4.9 know no other zlib."""
    smaller = compression.compress(body)
    return (smaller, SysFlag.COMPRESSED) if len(smaller) < len(body) else (body, 0)


def _address(item: Outgoing, fifo: str | None, queue: MessageQueue | None) -> None:
    """Fix the queue, if the caller of a send cares."""
    if queue is not None:
        if fifo is not None:
            raise InvalidMessage("give fifo= or queue=, not both")
        if queue.topic != item.topic:
            raise InvalidMessage(
                f"{queue} does not belong to topic {item.topic}; take one of `await mq.queues(topic)`"
            )
        item.queue, item.is_fixed = queue, True
    item.key = fifo


def _result(item: Outgoing, sent: Sent) -> SendResult:
    return SendResult(
        item.msg_ids[0],
        sent.header.msg_id,
        _queue(item, sent),
        sent.header.queue_offset,
        SendStatus(sent.code),
    )


def _results(item: Outgoing, sent: Sent) -> list[SendResult]:
    offset_ids = sent.header.msg_id.split(",")
    if len(offset_ids) != len(item.msg_ids):
        # A 5.x broker that keeps a batch as one record answers one offset id.
        offset_ids = offset_ids[:1] * len(item.msg_ids)
    queue, first, status = _queue(item, sent), sent.header.queue_offset, SendStatus(sent.code)
    return [
        SendResult(msg_id, offset_id, queue, first + index, status)
        for index, (msg_id, offset_id) in enumerate(zip(item.msg_ids, offset_ids, strict=True))
    ]


def _queue(item: Outgoing, sent: Sent) -> MessageQueue:
    """Where it was stored: a broker picks the queue itself when it is asked for one below 0."""
    assert item.queue is not None, "it was sent to a queue"
    if item.queue.queue_id == sent.header.queue_id:
        return item.queue
    return MessageQueue(item.topic, item.queue.broker_name, sent.header.queue_id)
