"""The content of a send request, and the request on its way through the send queue: one message, or a batch.

SendContent     topic, body, properties and flags, before the queue is known
SendRequest     ... with its time limit, its attempts, and the future of its sender
BatchRequest    ... an accumulated batch: one request, and a result or an error for each sender
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from sparrowmq.client.cluster.network import plain_queue
from sparrowmq.client.cluster.routes import TEMPLATE_QUEUES, Route
from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import ClientClosed, InvalidMessage, NoRoute, RemoteError, SendFailed, SparrowError
from sparrowmq.kernel.batch_layout import OVERHEAD_BYTES
from sparrowmq.kernel.gathering import Batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, Property
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessageReply, SendMessageV2
from sparrowmq.protocol.wire.header import text_of
from sparrowmq.remoting.request_in_flight import Response

WAIT_PROPERTY: Final = f"{Property.WAIT}\x01true\x02"
_STORED_AT: Final = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)
SendAnswer = Response[SendMessageReply]


@dataclass(slots=True, eq=False)
class SendContent:
    """A message or a batch as it is sent, before its queue is known. The rendered `properties` of a batch hold for all
    its messages. Only brokers that deliver at any time can take it if `is_timed`.
    """

    topic: str
    body: bytes
    properties: str
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    is_timed: bool = False

    def request(self, group: str, queue: MessageQueue, now_ms: int) -> SendMessageV2:
        """The header of its request in the name of a producer group; `body` goes with it."""
        kind = SendBatchMessage if self.is_batch else SendMessageV2
        return kind(
            producer_group=group,
            topic=self.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=TEMPLATE_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=now_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=False,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.is_batch,
            broker_name=queue.broker_name,
        )


def batch_properties(*, wait_stored: bool) -> str:
    """The properties of a batch. As in Java 5 without UNIQ_KEY: 4.9's broker would give that to every message."""
    return properties.render({Property.WAIT: text_of(wait_stored)})


def _no_result(_item: SendRequest, _answer: SendAnswer) -> None:
    return None


@dataclass(slots=True, eq=False)
class SendRequest(SendContent):
    """One message, or one batch, on its way.

    Attributes:
        future: gets the value that `make_result` makes of the answer; None for one-way messages, which get no answer.
        started, sent_at: the time when it entered the window, and when its last attempt was sent.
        failed_brokers: brokers where attempts failed, the last one at the end. Unlike Java, which avoids only the last
            one: two failing brokers of three would get all attempts between them.
        count: the places that it takes in the window.
        is_in_doubt: an attempt may have stored it, and only the answer was lost.
        keeps_queue: its topic is ordered, so that a retry goes to the same queue, before the messages behind it.
        is_recognised: the producer is idempotent, and the broker of the last attempt recognises a repeated message.
    """

    timeout_s: float = 0.0
    msg_ids: tuple[str, ...] = ()
    key: str | None = None
    queue: MessageQueue | None = None
    is_fixed: bool = False
    future: asyncio.Future[Any] | None = None
    make_result: Callable[[SendRequest, SendAnswer], Any] = _no_result
    started_at: float = 0.0
    sent_at: float = 0.0
    deadline: float = 0.0
    attempts: int = 0
    unreachable_count: int = 0
    failed_brokers: tuple[str, ...] = ()
    has_lane: bool = False
    is_in_doubt: bool = False
    keeps_queue: bool = False
    is_recognised: bool = False
    namespace: str = ""
    count: int = 1

    @property
    def is_oneway(self) -> bool:
        """Return whether no sender waits for an answer."""
        return self.future is None

    @property
    def is_ordered(self) -> bool:
        """Return whether its key or its sender fixes the queue. Such messages keep their order."""
        return self.is_fixed or self.key is not None

    @property
    def needs_same_broker(self) -> bool:
        """Return whether only the broker of the last attempt knows if it has the message: another would double it."""
        return self.is_recognised and self.is_in_doubt

    @property
    def is_abandoned(self) -> bool:
        """Return whether its sender has given up."""
        return self.future is not None and self.future.done()

    @property
    def cost_bytes(self) -> int:
        """The memory that it takes while it waits."""
        return len(self.body) + OVERHEAD_BYTES

    def ordered_queue(self, route: Route) -> MessageQueue:
        """Choose the queue of an ordered message. Raises: NoRoute, there is none."""
        self.keeps_queue = bool(route.fixed)
        if self.is_fixed and self.queue is not None:
            return self.queue
        if not route.keyed:
            raise no_queue_error(self.topic)
        return by_key(self.key or "", route.keyed)

    def note_failed_broker(self, broker_name: str) -> None:
        """The next attempt goes to another broker, if there is one."""
        self.failed_brokers = (*(name for name in self.failed_brokers if name != broker_name), broker_name)

    def succeed(self, answer: SendAnswer) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self.make_result(self, answer))

    def fail(self, error: BaseException, is_reported: bool = False) -> None:
        """Let the send fail. With `is_reported` the client reports it, so asyncio does not report each message."""
        if self.future is not None and not self.future.done():
            set_error(self.future, self.failure(error), is_reported)

    def failure(self, error: BaseException) -> SparrowError:
        if isinstance(error, NoRoute | ClientClosed | InvalidMessage):
            return error
        target = f" to {plain_queue(self.namespace, self.queue)}" if self.queue else ""
        fate = "was not acknowledged at the first attempt"
        if self.attempts != 1:
            fate = f"was not acknowledged after {self.attempts} attempts" if self.attempts else "was not sent"
        advice = "It is not stored: keep it and send it again later"
        if self.is_in_doubt:
            advice = "Keep it and send it again later; consumers must expect it twice, as only the answer may be lost"
        elif isinstance(error, RemoteError) and error.code == ResponseCode.MESSAGE_ILLEGAL:
            advice = "It is not stored, and would be refused again: change the message"
        if self.keeps_queue:
            advice = f"It waited for its queue, as the topic is ordered. {advice}"
        return SendFailed(f"the message{target} {fate}: {error}. {advice}", self.is_in_doubt, error)


@dataclass(slots=True, eq=False)
class BatchRequest(SendRequest):
    """Messages that travel as one batch, or an accumulated message that stayed alone. `Batch` has their senders."""

    batch: Batch = field(default_factory=lambda: Batch("", 0.0))

    @property
    def is_oneway(self) -> bool:
        return False

    @property
    def is_abandoned(self) -> bool:
        return all(future.done() for future in self.batch.futures)

    @property
    def cost_bytes(self) -> int:
        return len(self.body) + self.count * OVERHEAD_BYTES

    def succeed(self, answer: SendAnswer) -> None:
        header = answer.header
        if header.stored_at is not None:
            for future, result in zip(self.batch.futures, results_of(self, answer), strict=True):
                if not future.done():
                    future.set_result(result)
            return
        queue, status = stored_queue(self, answer), SendStatus(answer.code)
        self.batch.succeed(SendResult, header.msg_id.split(","), queue, header.queue_offset, status)

    def fail(self, error: BaseException, is_reported: bool = False) -> None:
        for future in self.batch.futures:
            if not future.done():
                set_error(future, self.failure(error), is_reported)

    def singles(self) -> Iterator[SendRequest]:
        """The messages that are still wanted, each for itself, with the time and the attempts that are left."""
        batch = self.batch
        for part, msg_id, future in zip(batches.decode(self.body), batch.msg_ids, batch.futures, strict=True):
            if not future.done():
                yield SendRequest(
                    self.topic,
                    bytes(part.body),
                    WAIT_PROPERTY + bytes(part.properties).decode(),
                    timeout_s=self.timeout_s,
                    msg_ids=(msg_id,),
                    future=future,
                    make_result=result_of,
                    started_at=self.started_at,
                    deadline=self.deadline,
                    attempts=self.attempts - 1,
                    queue=self.queue,
                    is_in_doubt=self.is_in_doubt,
                    is_recognised=self.is_recognised,
                    namespace=self.namespace,
                )


def batch_request(batch: Batch, namespace: str) -> BatchRequest:
    """The accumulated messages as one request: a batch, or a single message."""
    count = len(batch.futures)
    is_batch = count > 1
    return BatchRequest(
        batch.topic,
        batch.encoded() if is_batch else batch.single_body(),
        "" if is_batch else WAIT_PROPERTY + batch.single_properties().decode(),
        is_batch=is_batch,
        timeout_s=batch.timeout_s,
        msg_ids=tuple(batch.msg_ids),
        namespace=namespace,
        count=count,
        batch=batch,
    )


def set_error(future: asyncio.Future[Any], error: SparrowError, is_reported: bool) -> None:
    future.set_exception(error)
    if is_reported:
        future.exception()


def result_of(item: SendRequest, answer: SendAnswer) -> SendResult:
    """The result of a single message."""
    return SendResult(
        item.msg_ids[0],
        answer.header.msg_id,
        stored_queue(item, answer),
        answer.header.queue_offset,
        SendStatus(answer.code),
        answer.header.recall_handle,
    )


def results_of(item: SendRequest, answer: SendAnswer) -> list[SendResult]:
    """The results of the messages of a batch."""
    offset_ids = answer.header.msg_id.split(",")
    if len(offset_ids) != len(item.msg_ids):
        # A 5.x broker that keeps a batch as one record answers one offset id.
        offset_ids = offset_ids[:1] * len(item.msg_ids)
    queue, first, status = stored_queue(item, answer), answer.header.queue_offset, SendStatus(answer.code)
    results = [
        SendResult(msg_id, offset_id, queue, first + index, status)
        for index, (msg_id, offset_id) in enumerate(zip(item.msg_ids, offset_ids, strict=True))
    ]
    return _results_at(results, answer.header.stored_at) if answer.header.stored_at is not None else results


def _results_at(results: list[SendResult], stored_at: str) -> list[SendResult]:
    """The results of a repeated batch whose messages are not in a row, because a crash had cut it."""
    places = [place.split(":") for place in stored_at.split(",")]
    if len(places) != len(results) or not _STORED_AT.fullmatch(stored_at):
        return results
    return [
        replace(
            result, queue=MessageQueue(result.queue.topic, result.queue.broker_name, int(queue_id)), offset=int(offset)
        )
        for result, (queue_id, offset) in zip(results, places, strict=True)
    ]


def stored_queue(item: SendRequest, answer: SendAnswer) -> MessageQueue:
    """The queue where it was stored. A broker chooses the queue itself when the request names one below 0."""
    assert item.queue is not None, "it was sent to a queue"
    queue = item.queue
    if queue.queue_id != answer.header.queue_id:
        queue = MessageQueue(item.topic, queue.broker_name, answer.header.queue_id)
    return plain_queue(item.namespace, queue) if item.namespace else queue


def no_queue_error(topic: str) -> NoRoute:
    """The error when a topic is known, but none of its queues takes messages."""
    return NoRoute(topic, None)
