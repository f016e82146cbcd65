"""Sends messages: waiting for the answer, pipelined, one-way, or many in one request.

    result = await mq.send("orders", b"hello", tag="paid", keys="o-1", properties={"region": "eu"})
    future = mq.send_soon("orders", b"hello")         # hundreds may be in flight; `await mq.drain()` now and then
    mq.send_nowait("orders", b"hello")                # no answer, no retry
    results = await mq.send_many([Message("orders", body) for body in bodies])
    async with mq.transaction("orders", b"paid") as transaction: ...

`encoder` checks and encodes each message, hooks see it, and `send_queue` delivers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TypeVar, Unpack

from sparrowmq.client.arguments import check_names
from sparrowmq.client.loop_affinity import checks_loop, running_loop
from sparrowmq.client.message_ids import MessageIds
from sparrowmq.client.sending.accumulator import Accumulator
from sparrowmq.client.sending.encoder import MessageEncoder, PreparedMessage, is_plain, split_into_batches, without_wait
from sparrowmq.client.sending.producer_settings import (
    DEFAULT_GROUP,
    OWN_GROUP,
    Body,
    MessageArguments,
    OnewayArguments,
    ProducerSettings,
    SendArguments,
    SendCall,
    check_timeout,
    make_send_call,
)
from sparrowmq.client.sending.send_hooks import SendHookCalls, SendHooks
from sparrowmq.client.sending.send_queue import SendQueue
from sparrowmq.client.sending.send_request import SendAnswer, SendRequest, batch_request, result_of, results_of
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.client.sending.transaction import Transaction, TransactionEnds
from sparrowmq.client.tracebacks import short_traceback, shortened
from sparrowmq.errors import ConfigError, InvalidMessage, SendManyFailed, SparrowError
from sparrowmq.kernel.gathering import Batch
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, SysFlag
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.headers import RecallMessage

R = TypeVar("R")


@checks_loop("recall", "drain", "flush")
class Producer:
    """Sends messages in the name of one group. Made by `Client.producer`; a client has one of its own.

    Awaiting calls may be cancelled: nothing is left behind, but whether the message is sent is then open. `group` is
    the name that the program knows. `hooks` see every message before it is packed, and its outcome.
    """

    def __init__(
        self,
        group: str,
        send_queue: SendQueue,
        ids: MessageIds,
        settings: ProducerSettings,
        transaction_ends: TransactionEnds,
        namespace: str = "",
        hooks: Sequence[SendHooks] = (),
    ) -> None:
        self.group = group
        self._loop_affinity = transaction_ends.loop_affinity
        self._transaction_ends = transaction_ends
        self._send_queue = send_queue
        self._settings = settings
        self._encoder = MessageEncoder(settings, ids.next, namespace)
        self._hooks = SendHookCalls(hooks) if hooks else None

        def put_batch(batch: Batch) -> None:
            send_queue.put_batch(batch_request(batch, namespace))

        self._accumulator = Accumulator(put_batch, settings, send_queue.window, ids, self._loop_affinity)
        send_queue.accumulator = self._accumulator

    async def send(
        self, topic: str | Message, body: Body | None = None, **arguments: Unpack[SendArguments]
    ) -> SendResult:
        """Send one message and wait until the broker has it.

        Args:
            topic: the topic, or a whole `Message`; then give no message field here.
            body: bytes, a bytearray or a memoryview; or a value that a handler can take, such as a dataclass, a Struct,
                a model of pydantic, a dict, a list or text. Such a value is written now; see typed_bodies.py.
            tag: one word that consumers can filter by.
            keys: one key, or several, by which the message can be found later.
            properties: your own texts, by name.
            delay: deliver it later: "10s", "5m", "2h" or a `timedelta`. Delays for which brokers have no level need
                a broker that delivers at any time, such as ours or one of 5.x.
            delay_level: one of the broker's delay levels instead; 3 is 10 s by default.
            deliver_at: deliver it at this time, on such a broker: a datetime with a time zone. A past time means now.
            fifo: messages with the same key go to one queue, in the order of the calls. On a topic created with
                `ordered=True` that queue stays the same: the send waits for its broker, also with retries. On a plain
                topic keys move when a broker goes away or comes back, and a message that may be stored is not retried.
            queue: the queue, likewise in order.
            timeout_s: the limit for all attempts together, from the time when the message enters the window; with
                `fifo` or `queue` from the time when the message before it is answered or given up. By default that of
                the settings.
        Raises:
            InvalidMessage, InvalidName: the message cannot be sent, or not to a broker that has delay levels only.
            ConfigError: the time limit is not a number above 0.
            NoRoute: the topic does not exist, and brokers do not create it.
            SendFailed: no attempt was acknowledged; the last error is its `cause`.
            ClientClosed: the client is closed, or was not entered.
        """
        __tracebackhide__ = True  # pytest leaves this frame out
        try:
            if self._hooks is None:
                future = self._accumulator.take(topic, body, arguments, True)
                if future is not None:
                    return await future
            check_names("send", arguments, SendArguments)
            call = make_send_call(topic, body, **arguments)
            return await self._put_with_hooks(call, partial(self._put_one, is_awaited=True))
        except SparrowError as error:  # as `short_tracebacks` does, without a coroutine more for each message
            raise shortened(error) from None

    def send_soon(
        self, topic: str | Message, body: Body | None = None, **arguments: Unpack[SendArguments]
    ) -> asyncio.Future[SendResult]:
        """Send as `send` does, without waiting: the future has the result. No task is made.

        A window of messages is in flight, and the others wait. Call `await drain()` now and then to keep them few.
        Raises: InvalidMessage, InvalidName, ConfigError, raised at once; SendFailed, raised at once when far too many
        messages wait. The future has the errors of sending.
        """
        if self._hooks is None:
            future = self._accumulator.take(topic, body, arguments, False)
            if future is not None:
                return future
        check_names("send_soon", arguments, SendArguments)
        return self._put_with_hooks(make_send_call(topic, body, **arguments), self._put_one)

    def send_nowait(self, topic: str | Message, body: Body | None = None, **arguments: Unpack[OnewayArguments]) -> str:
        """Send one message one-way and return its id: no answer, no retry, no report of errors.
        Raises: InvalidMessage, the message cannot be sent; SendFailed, far too many messages wait.
        """
        check_names("send_nowait", arguments, OnewayArguments)
        return self._put_with_hooks(make_send_call(topic, body, **arguments), self._put_oneway)

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

        Messages of one batch are stored together in one queue, all or none. A delayed message is sent alone. All
        messages are checked before the first is sent.
        Raises: InvalidMessage, InvalidName, ConfigError, a message cannot be sent, the error has its index, and none
        was sent; SendManyFailed, some were not acknowledged, and the error has the result or the error of each;
        ClientClosed.
        """
        if not isinstance(messages, Iterable):
            raise InvalidMessage(f"messages={messages!r}: give a list of Messages")

        def send(messages: Iterable[Message]) -> Coroutine[None, None, list[SendResult]]:
            return self._send_many(messages, fifo, queue, timeout_s)

        return await (send(messages) if self._hooks is None else self._hooks.around_many(messages, send))

    def transaction(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        timeout_s: float | None = None,
        **arguments: Unpack[MessageArguments],
    ) -> Transaction:
        """A transaction with this message, for `async with`: entering sends it, consumers see it after the commit.

        Arguments are those of `send`. In `properties`, CHECK_IMMUNITY_TIME_IN_SECONDS delays the broker's first
        question.
        Raises: InvalidMessage, the message cannot be sent, or is delayed; ConfigError, the program named no producer
        group, or the group has no check, which brokers ask when they do not get the end.
        """
        check_names("transaction", arguments, MessageArguments)
        message = make_send_call(topic, body, **arguments).message
        if message.is_delayed:
            raise InvalidMessage("a message of a transaction cannot be delayed; leave its delay out")
        if self.group == DEFAULT_GROUP:
            raise ConfigError(OWN_GROUP)
        if not self._transaction_ends.has_check:
            raise ConfigError(
                f"producer group {self.group} has no check, which a broker asks when it does not get the end of a "
                f"transaction; write one with @mq.check({self.group!r}), or give `mq.producer` its check="
            )
        self._encoder.check(message)
        full_topic, call = self._encoder.full_topic(message.topic), SendCall(message, None, None, timeout_s)
        return Transaction(
            full_topic, message, lambda: self._put_with_hooks(call, self._put_half), self._transaction_ends
        )

    @short_traceback
    async def recall(self, sent: SendResult | str) -> None:
        """Take back a message that waits for its time, by the result of `send` or its `recall_handle`; consumers never
        see it.

        The broker does not report whether it still had the message. Recalling a message twice is no error.
        Raises: InvalidMessage, the message waits for no time, or only by a delay level, which cannot be recalled;
        RemoteError, the broker refuses, code 604 if the message was due already. With FLUSH_SLAVE_TIMEOUT and
        FLUSH_DISK_TIMEOUT it has stored the recall, but a failure may undo it: recall again.
        """
        handle = sent.recall_handle if isinstance(sent, SendResult) else sent
        if not handle or not isinstance(handle, str):
            raise InvalidMessage(
                "only a message sent with deliver_at=, or with a delay that is not a level, can be recalled"
            )
        try:
            recall_handle = RecallHandle.parse(handle)
        except ConfigError as error:
            raise InvalidMessage(str(error)) from error
        await self._send_queue.ask(
            recall_handle.broker_name,
            recall_handle.topic,
            RecallMessage(recall_handle.topic, handle, self._transaction_ends.group),
        )

    async def drain(self) -> None:
        """Wait until the window has room: the back-pressure of `send_soon` and `send_nowait`."""
        await self._send_queue.drain()

    async def flush(self) -> None:
        """Wait until every message that was sent is answered or has failed."""
        await self._send_queue.flush()

    @property
    def unanswered(self) -> int:
        """The number of messages that wait or are in flight."""
        return self._send_queue.unanswered

    def _put_with_hooks(self, call: SendCall, put: Callable[[SendCall], R]) -> R:
        """Put a message into the send queue. Every single message passes here, so hooks are called here."""
        if self._hooks is None:
            return put(call)
        return self._hooks.around(call, put, is_half=put == self._put_half)

    def _put_one(self, call: SendCall, *, is_awaited: bool = False) -> asyncio.Future[SendResult]:
        message = call.message
        prepared = self._encoder.prepare(message)
        is_usual = not message.keys and not message.properties
        may_accumulate = call.fifo is None and call.queue is None
        if may_accumulate and (is_usual or self._send_queue.window.may_accumulate) and is_plain(message):
            self._loop_affinity.check()
            topic, timeout_s = self._encoder.full_topic(message.topic), call.timeout_s
            properties = without_wait(prepared.properties)
            head = properties[: -len(prepared.msg_id) - 1].encode()
            if is_usual:
                self._accumulator.learn(message.topic, topic, message.tag, head)
            if self._accumulator.fits(message.body, properties, is_awaited):
                limit_s = self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s)
                return self._accumulator.take_checked(topic, message.body, head, prepared.msg_id, limit_s)
        item = self._encoder.encode_message(prepared, call.timeout_s)
        return self._put(item, call.fifo, call.queue, result_of, is_awaited=is_awaited)

    def _put_half(self, call: SendCall) -> asyncio.Future[SendResult]:
        item = self._encoder.encode_message(self._encoder.prepare(call.message), call.timeout_s)
        item.sys_flag |= SysFlag.PREPARED
        item.properties += f"{Property.TRAN_MSG}\x01true\x02{Property.PGROUP}\x01{self._transaction_ends.group}\x02"
        return self._put(item, None, None, result_of, is_awaited=True)

    def _put_oneway(self, call: SendCall) -> str:
        item = self._encoder.encode_message(self._encoder.prepare(call.message), None)
        self._encoder.set_queue(item, call.fifo, call.queue)
        self._loop_affinity.check()
        self._accumulator.flush_topic(item.topic)
        self._send_queue.put(item)
        return item.msg_ids[0]

    async def _send_many(
        self, messages: Iterable[Message], fifo_key: str | None, queue: MessageQueue | None, timeout_s: float | None
    ) -> list[SendResult]:
        self._loop_affinity.check()
        encoder = self._encoder
        batches = list(split_into_batches(encoder.prepare_all(messages), self._settings.max_bytes))
        answers: list[asyncio.Future[list[SendResult]]] = []
        try:
            for batch in batches:
                await self._send_queue.drain()
                is_single = len(batch) == 1
                item = (
                    encoder.encode_message(batch[0], timeout_s) if is_single else encoder.encode_batch(batch, timeout_s)
                )
                answers.append(self._put(item, fifo_key, queue, results_of, is_awaited=True))
            await asyncio.wait(answers) if answers else None
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise
        return _all_results(batches, answers)

    def _put(
        self,
        item: SendRequest,
        fifo_key: str | None,
        queue: MessageQueue | None,
        make_result: Callable[[SendRequest, SendAnswer], R],
        *,
        is_awaited: bool = False,
    ) -> asyncio.Future[R]:
        self._encoder.set_queue(item, fifo_key, queue)
        loop = running_loop()
        if loop is not self._loop_affinity.loop:
            raise self._loop_affinity.refusal()
        future: asyncio.Future[R] = loop.create_future()
        item.future, item.make_result = future, make_result
        self._accumulator.flush_topic(item.topic)
        self._send_queue.put(item, is_awaited=is_awaited)
        return future


def _all_results(
    batches: list[list[PreparedMessage]], answers: list[asyncio.Future[list[SendResult]]]
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
