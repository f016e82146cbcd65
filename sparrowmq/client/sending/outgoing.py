"""One message, or one batch, on its way through the outbox."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from sparrowmq.client.cluster.network import plain_queue
from sparrowmq.client.cluster.routes import Route
from sparrowmq.client.sending.gathering import OVERHEAD_BYTES
from sparrowmq.client.sending.outcome import SendResult, SendStatus
from sparrowmq.client.sending.packed import Packed
from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.errors import ClientClosed, InvalidMessage, NoRoute, RemoteError, SendFailed, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import SendMessageReply
from sparrowmq.remoting.request_in_flight import Response

_PLACES: Final = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*", re.ASCII)

Sent = Response[SendMessageReply]


def _nothing(_item: Outgoing, _sent: Sent) -> None:
    return None


@dataclass(slots=True, eq=False)
class Outgoing(Packed):
    """One message, or one batch, on its way.

    Attributes:
        msg_ids: the unique id of each message.
        future: gets the value that `result` makes of the answer; None for one-way messages, which get no answer.
        key: messages with the same key go to one queue.
        is_fixed: `queue` was given by the caller.
        queue: its queue, once that is chosen.
        started, sent_at: the time when it entered the window, and when its last attempt was sent.
        unreachable: the number of failed connections.
        failed_brokers: brokers where attempts failed, the last one at the end. Unlike Java, which avoids only the last
            one: two failing brokers of three would get all attempts between them.
        count: the places that it takes in the window.
        namespace: results leave it out of the topic.
        is_in_doubt: an attempt may have stored it, and only the answer was lost.
        stays: its topic is ordered, so that a retry goes to the same queue, before the messages behind it.
        is_recognised: the producer is idempotent, and the broker of the last attempt recognises a repeated message.
    """

    timeout_s: float = 0.0
    msg_ids: tuple[str, ...] = ()
    key: str | None = None
    queue: MessageQueue | None = None
    is_fixed: bool = False
    future: asyncio.Future[Any] | None = None
    result: Callable[[Outgoing, Sent], Any] = _nothing
    started: float = 0.0
    sent_at: float = 0.0
    deadline: float = 0.0
    attempts: int = 0
    unreachable: int = 0
    failed_brokers: tuple[str, ...] = ()
    has_lane: bool = False
    is_in_doubt: bool = False
    stays: bool = False
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
    def must_stay(self) -> bool:
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
        self.stays = bool(route.fixed)
        if self.is_fixed and self.queue is not None:
            return self.queue
        if not route.keyed:
            raise no_queue(self.topic)
        return by_key(self.key or "", route.keyed)

    def failed_at(self, broker_name: str) -> None:
        """The next attempt goes to another broker, if there is one."""
        self.failed_brokers = (*(name for name in self.failed_brokers if name != broker_name), broker_name)

    def succeed(self, sent: Sent) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(self.result(self, sent))

    def fail(self, error: BaseException, is_told: bool = False) -> None:
        """Let the send fail. With `is_told` the client reports it, so asyncio does not report each message."""
        if self.future is not None and not self.future.done():
            set_error(self.future, self.failure(error), is_told)

    def failure(self, error: BaseException) -> SparrowError:
        if isinstance(error, NoRoute | ClientClosed | InvalidMessage):
            return error
        to = f" to {plain_queue(self.namespace, self.queue)}" if self.queue else ""
        return SendFailed(f"the message{to} {self._fate()}: {error}. {self._advice(error)}", self.is_in_doubt, error)

    def _fate(self) -> str:
        if not self.attempts:
            return "was not sent"
        tries = f"after {self.attempts} attempts" if self.attempts > 1 else "at the first attempt"
        return f"was not acknowledged {tries}"

    def _advice(self, error: BaseException) -> str:
        return f"{self._fixed_place()}{self._keeping(error)}"

    def _fixed_place(self) -> str:
        return "It waited for its queue, as the topic is ordered. " if self.stays else ""

    def _keeping(self, error: BaseException) -> str:
        if self.is_in_doubt:
            return "Keep it and send it again later; consumers must expect it twice, as only the answer may be lost"
        if isinstance(error, RemoteError) and error.code == ResponseCode.MESSAGE_ILLEGAL:
            return "It is not stored, and would be refused again: change the message"
        return "It is not stored: keep it and send it again later"


def set_error(future: asyncio.Future[Any], error: SparrowError, is_told: bool) -> None:
    future.set_exception(error)
    if is_told:
        future.exception()


def result_of(item: Outgoing, sent: Sent) -> SendResult:
    """The result of a single message."""
    return SendResult(
        item.msg_ids[0],
        sent.header.msg_id,
        stored_in(item, sent),
        sent.header.queue_offset,
        SendStatus(sent.code),
        sent.header.recall_handle,
    )


def results_of(item: Outgoing, sent: Sent) -> list[SendResult]:
    """The results of the messages of a batch."""
    offset_ids = sent.header.msg_id.split(",")
    if len(offset_ids) != len(item.msg_ids):
        # A 5.x broker that keeps a batch as one record answers one offset id.
        offset_ids = offset_ids[:1] * len(item.msg_ids)
    queue, first, status = stored_in(item, sent), sent.header.queue_offset, SendStatus(sent.code)
    results = [
        SendResult(msg_id, offset_id, queue, first + index, status)
        for index, (msg_id, offset_id) in enumerate(zip(item.msg_ids, offset_ids, strict=True))
    ]
    return _apart(results, sent.header.stored_at) if sent.header.stored_at is not None else results


def _apart(results: list[SendResult], stored_at: str) -> list[SendResult]:
    """The results of a repeated batch whose messages are not in a row, because a crash had cut it."""
    places = [place.split(":") for place in stored_at.split(",")]
    if len(places) != len(results) or not _PLACES.fullmatch(stored_at):
        return results
    return [
        replace(
            each,
            queue=MessageQueue(each.queue.topic, each.queue.broker_name, int(queue_id)),
            offset=int(offset),
        )
        for each, (queue_id, offset) in zip(results, places, strict=True)
    ]


def stored_in(item: Outgoing, sent: Sent) -> MessageQueue:
    """The queue where it was stored. A broker chooses the queue itself when the request names one below 0."""
    assert item.queue is not None, "it was sent to a queue"
    queue = item.queue
    if queue.queue_id != sent.header.queue_id:
        queue = MessageQueue(item.topic, queue.broker_name, sent.header.queue_id)
    return plain_queue(item.namespace, queue) if item.namespace else queue


def no_queue(topic: str) -> NoRoute:
    """The error when a topic is known, but none of its queues takes messages."""
    return NoRoute(topic, None)
