"""Sends messages: waiting for the answer, pipelined, one-way, or many in one request.

    result = await mq.send("orders", b"hello", tag="paid", keys="o-1", properties={"region": "eu"})
    future = mq.send_soon("orders", b"hello")         # hundreds may be in flight; `await mq.drain()` now and then
    mq.send_nowait("orders", b"hello")                # no answer, no retry
    results = await mq.send_many([Message("orders", body) for body in bodies])
    async with mq.transaction("orders", b"paid") as transaction: ...

Whatever its way, a message is checked and packed here; `outbox` delivers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeVar, cast

from sparrowmq.client.cluster.namespace import full_queue, plain_queue
from sparrowmq.client.sending import batching
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.outcome import SendResult, SendStatus
from sparrowmq.client.sending.outgoing import Outgoing, Sent
from sparrowmq.client.sending.packed import batch_properties
from sparrowmq.client.sending.producer_settings import ProducerSettings, check_timeout
from sparrowmq.client.sending.transaction import Ends, Transaction
from sparrowmq.client.tracebacks import short_traceback, shortened
from sparrowmq.errors import (
    ConfigError,
    InvalidMessage,
    InvalidName,
    MessageTooLarge,
    SendManyFailed,
    SparrowError,
)
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import compression, properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.delays import Delay, wait_of
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, SysFlag
from sparrowmq.protocol.names import check_topic, is_closed_to_clients, with_namespace, without_namespace
from sparrowmq.protocol.recall_handle import RecallHandle
from sparrowmq.protocol.requests.headers import RecallMessage

R = TypeVar("R")
NextId = Callable[[], str]
Body = bytes | bytearray | memoryview
_SOME_ID: Final = "0" * 32


class Producer:
    """Sends messages in the name of one group. Made by `Client.producer`; a client has one of its own.

    Awaiting calls may be cancelled: nothing is left behind, but whether the message is sent is then open.
    """

    def __init__(
        self,
        group: str,
        outbox: Outbox,
        next_id: NextId,
        settings: ProducerSettings,
        ends: Ends,
        namespace: str = "",
    ) -> None:
        self.group = group
        self._ends = ends
        self._namespace = namespace
        self._outbox = outbox
        self._next_id = next_id
        self._settings = settings

    async def send(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has it.

        Args:
            topic: where to, or a whole `Message`; then give no message field here.
            body: bytes, or what is like them; copied if it can change.
            tag: one word that consumers can filter by.
            keys: what the message can be found by later: one key, or several.
            properties: your own texts, by name.
            delay: deliver it later: "10s", "5m", "2h", a `timedelta`, or one of the broker's levels (3 is 10 s). What
                is no level takes a broker that delivers at any time, as ours and 5.x do.
            deliver_at: deliver it then, on such a broker: a datetime with a time zone. One that has passed is now.
            fifo: messages with the same key go to one queue, in order. What may have been stored is not retried:
                that would reorder.
            queue: this very queue, likewise in order and not retried.
            timeout_s: for all attempts together, from when the message is in the window; by default the
                settings'.
        Raises:
            InvalidMessage, InvalidName: it cannot be sent as it is, or not to a broker that knows delay levels only.
            ConfigError: the time limit is none.
            NoRoute: nobody knows the topic, and brokers do not create it.
            SendFailed: no attempt was acknowledged; the last error is its `cause`.
            ClientClosed: the client is closed, or was not entered.
        """
        __tracebackhide__ = True  # pytest leaves this frame out
        try:
            message = message_of(topic, body, tag, keys, properties, delay, deliver_at)
            return await self._start(message, fifo, queue, timeout_s, is_awaited=True)
        except SparrowError as error:  # as `short_tracebacks` does, without a coroutine more for each message
            raise shortened(error) from None

    def send_soon(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Future[SendResult]:
        """As `send`, without waiting: the future has the result. No task is made.

        A window of messages is in flight, the others wait for their turn; `await drain()` now and then keeps
        them few.

        Raises:
            InvalidMessage, InvalidName, ConfigError: at once; the errors of sending are the future's.
            SendFailed: at once, when far too many messages wait already.
        """
        message = message_of(topic, body, tag, keys, properties, delay, deliver_at)
        return self._start(message, fifo, queue, timeout_s)

    def send_nowait(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
    ) -> str:
        """Send one message one-way and return its id: no answer, no retry, no word about errors.

        Raises:
            InvalidMessage: it cannot be sent as it is.
            SendFailed: far too many messages wait already.
        """
        message = message_of(topic, body, tag, keys, properties, delay, deliver_at)
        return self._start_oneway(message, fifo, queue)

    @short_traceback
    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages in as few requests as the rules of batches allow; the results are in their order.

        Messages of one batch are stored together in one queue, all or none. Delayed ones travel alone. All are
        looked at before the first is sent.

        Raises:
            InvalidMessage, InvalidName, ConfigError: one of them, whose index is told, cannot be sent; none was.
            SendManyFailed: some were not acknowledged; it has the result or the error of each.
            ClientClosed: the client is closed, or was not entered; none was sent.
        """
        batches = list(batching.split(self._checked(messages), self._settings.max_bytes))
        answers: list[asyncio.Future[list[SendResult]]] = []
        try:
            for batch in batches:
                await self._outbox.drain()
                item = (
                    self._pack(batch[0], timeout_s) if len(batch) == 1 else self._pack_batch(batch, timeout_s)
                )
                answers.append(self._put(item, fifo, queue, _results, is_awaited=True))
            await asyncio.wait(answers) if answers else None
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        return _all_results(batches, answers)

    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """A transaction around this message, for `async with`: entering it sends, and nobody sees it before the end.

        Arguments are those of `send`. In `properties`, CHECK_IMMUNITY_TIME_IN_SECONDS puts the broker's first question
        off.

        Raises:
            InvalidMessage: it cannot be sent as it is, or is delayed.
            ConfigError: the group has no check, by which a broker learns the end if it was not told.
        """
        message = message_of(topic, body, tag, keys, properties, None)
        if message.is_delayed:
            raise InvalidMessage("a message of a transaction cannot be delayed; leave its delay out")
        if not self._ends.has_check:
            raise ConfigError(
                f"producer group {self.group} has no check, so a broker that is not told how a transaction ended could "
                f"never know; write one with @mq.check({self.group!r}), or give `mq.producer` its check="
            )
        self._check(message)
        topic = self._full_topic(message.topic)
        return Transaction(topic, message, lambda: self._start_half(message, timeout_s), self._ends)

    @short_traceback
    async def recall(self, sent: SendResult | str) -> None:
        """Take back a message that waits for its time; whoever consumes it never sees it.

        The broker does not say whether there was still such a message: one that was recalled before is no error.

        Args:
            sent: what `send` returned, or its `recall_handle`.
        Raises:
            InvalidMessage: it does not wait for a time, or only by a delay level, which cannot be recalled.
            RemoteError: the broker refuses; code 604 if it was due already.
            NetworkError, ClientClosed: nobody can be asked now.
        """
        handle = sent.recall_handle if isinstance(sent, SendResult) else sent
        if not handle or not isinstance(handle, str):
            raise InvalidMessage(
                "only a message sent with deliver_at=, or with a delay that is no level, can be recalled"
            )
        try:
            said = RecallHandle.parse(handle)
        except ConfigError as error:
            raise InvalidMessage(str(error)) from error
        await self._outbox.ask(
            said.broker_name, said.topic, RecallMessage(said.topic, handle, self._ends.group)
        )

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

    def _start(
        self,
        message: Message,
        fifo: str | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
        *,
        is_awaited: bool = False,
    ) -> asyncio.Future[SendResult]:
        return self._put(self._pack(message, timeout_s), fifo, queue, _result, is_awaited=is_awaited)

    def _start_half(self, message: Message, timeout_s: float | None) -> asyncio.Future[SendResult]:
        item = self._pack(message, timeout_s)
        item.sys_flag |= SysFlag.PREPARED
        item.properties += f"{Property.TRAN_MSG}\x01true\x02{Property.PGROUP}\x01{self._ends.group}\x02"
        return self._put(item, None, None, _result, is_awaited=True)

    def _start_oneway(self, message: Message, fifo: str | None, queue: MessageQueue | None) -> str:
        item = self._pack(message, None)
        self._address(item, fifo, queue)
        self._outbox.put(item)
        return item.msg_ids[0]

    def _put(
        self,
        item: Outgoing,
        fifo: str | None,
        queue: MessageQueue | None,
        result: Callable[[Outgoing, Sent], R],
        *,
        is_awaited: bool = False,
    ) -> asyncio.Future[R]:
        self._address(item, fifo, queue)
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        item.future, item.result = future, result
        self._outbox.put(item, is_awaited=is_awaited)
        return future

    def _pack(self, message: Message, timeout_s: float | None) -> Outgoing:
        self._check(message)
        msg_id = self._next_id()
        body, sys_flag = message.body, 0
        if len(body) > self._settings.compress_over_bytes:
            body, sys_flag = _compressed(body)
        return Outgoing(
            self._full_topic(message.topic),
            body,
            _properties(message, msg_id, self._namespace),
            sys_flag,
            message.flag,
            timeout_s=self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s),
            msg_ids=(msg_id,),
            is_timed=message.is_timed,
        )

    def _pack_batch(self, batch: list[Message], timeout_s: float | None) -> Outgoing:
        parts, ids = [], tuple(self._next_id() for _ in batch)
        for message, msg_id in zip(batch, ids, strict=True):
            self._check(message)
            own = _properties(message, msg_id, self._namespace)
            parts.append(BatchPart(message.body, own.encode(), message.flag))
        return Outgoing(
            self._full_topic(batch[0].topic),
            batches.encode(parts),
            batch_properties(wait_stored=batch[0].wait_stored),
            is_batch=True,
            timeout_s=self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s),
            msg_ids=ids,
        )

    def _checked(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages, each of which can be sent, as far as that can be said before."""
        for index, message in enumerate(messages):
            if not isinstance(message, Message):
                raise InvalidMessage(
                    f"message {index} is {type(message).__name__}, not a Message; none was sent"
                )
            try:
                message.check()
                self._check(message)
                properties.check_size(len(_properties(message, _SOME_ID, self._namespace).encode()))
            except (InvalidMessage, InvalidName) as error:
                error.args = (f"message {index} of those to send: {error}. None of them was sent",)
                raise
            yield message

    def _full_topic(self, topic: str) -> str:
        return with_namespace(self._namespace, topic) if self._namespace else topic

    def _address(self, item: Outgoing, fifo: str | None, queue: MessageQueue | None) -> None:
        """Fix the queue, if the caller of a send cares."""
        if fifo is not None and not isinstance(fifo, str):
            raise InvalidMessage(f"fifo={fifo!r} is not text; use str(key)")
        if queue is not None:
            if not isinstance(queue, MessageQueue):
                raise InvalidMessage(f"queue={queue!r} is no queue; take one of `await mq.queues(topic)`")
            if fifo is not None:
                raise InvalidMessage("give fifo= or queue=, not both")
            if self._full_topic(queue.topic) != item.topic:
                topic = without_namespace(self._namespace, item.topic)
                raise InvalidMessage(
                    f"{queue} does not belong to topic {topic}; take one of `await mq.queues(topic)`"
                )
            item.queue = full_queue(self._namespace, queue) if self._namespace else queue
            item.is_fixed = True
        item.key = fifo
        item.namespace = self._namespace

    def _check(self, message: Message) -> None:
        topic = self._full_topic(message.topic) if self._namespace else message.topic
        if is_closed_to_clients(check_topic(topic)):
            raise InvalidMessage(f"topic {topic} is written by brokers only; choose another")
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


def message_of(
    topic: str | Message,
    body: Body | None,
    tag: str | None,
    keys: str | Sequence[str],
    properties: Mapping[str, str] | None,
    delay: Delay | None,
    deliver_at: datetime | None = None,
) -> Message:
    """What the arguments of a send mean. Raises: InvalidMessage."""
    if isinstance(topic, Message):
        if body is not None or tag or keys or properties or delay is not None or deliver_at is not None:
            raise InvalidMessage(
                "a whole Message was given; put body, tag, keys, properties and delay into it"
            )
        topic.check()
        return topic
    if body is None:
        raise InvalidMessage("no body was given; send(topic, body) needs one")
    own = cast(dict[str, str], properties or {})
    if delay is None and deliver_at is None:
        return Message(topic, cast(bytes, body), tag, keys, own)
    level, delay_ms, deliver_at_ms = wait_of(delay, deliver_at)
    return Message(topic, cast(bytes, body), tag, keys, own, 0, level, True, delay_ms, deliver_at_ms)


def _properties(message: Message, msg_id: str, namespace: str) -> str:
    if message.properties or message.keys or message.is_timed:
        rest = _rendered(message, namespace)
    else:
        rest = _usual_properties(message.tag, message.delay_level, message.wait_stored, namespace)
    return f"{rest}{Property.UNIQ_KEY}\x01{msg_id}\x02"


@lru_cache(maxsize=1024)
def _usual_properties(tag: str | None, delay_level: int, wait_stored: bool, namespace: str) -> str:
    """The properties of messages that have none of their own. Rendering them is a tenth of what a send costs."""
    return _rendered(Message("", b"", tag, delay_level=delay_level, wait_stored=wait_stored), namespace)


def _rendered(message: Message, namespace: str) -> str:
    """Its properties, and the namespace it is sent in. Source: DefaultMQProducerImpl.sendKernelImpl, Java 4.9.8."""
    found = message.wire_properties()
    if namespace:
        found[Property.INSTANCE_ID] = namespace
    return properties.render(found)


def _compressed(body: bytes) -> tuple[bytes, int]:
    """The body to send and its system flag. The kind is left 0: clients up to 4.9 know no other zlib."""
    smaller = compression.compress(body)
    return (smaller, SysFlag.COMPRESSED) if len(smaller) < len(body) else (body, 0)


def _result(item: Outgoing, sent: Sent) -> SendResult:
    return SendResult(
        item.msg_ids[0],
        sent.header.msg_id,
        _queue(item, sent),
        sent.header.queue_offset,
        SendStatus(sent.code),
        sent.header.recall_handle,
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


def _all_results(
    batches: list[list[Message]], answers: list[asyncio.Future[list[SendResult]]]
) -> list[SendResult]:
    """The result of each message. Raises: SendManyFailed."""
    results: list[SendResult | BaseException] = []
    for batch, answer in zip(batches, answers, strict=True):
        error = answer.exception()
        results += answer.result() if error is None else [error] * len(batch)
    stored = [result for result in results if isinstance(result, SendResult)]
    if len(stored) == len(results):
        return stored
    raise SendManyFailed(results)


def _queue(item: Outgoing, sent: Sent) -> MessageQueue:
    """Where it was stored: a broker picks the queue itself when it is asked for one below 0."""
    assert item.queue is not None, "it was sent to a queue"
    queue = item.queue
    if queue.queue_id != sent.header.queue_id:
        queue = MessageQueue(item.topic, queue.broker_name, sent.header.queue_id)
    return plain_queue(item.namespace, queue) if item.namespace else queue
