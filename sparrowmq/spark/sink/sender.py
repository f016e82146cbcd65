"""Sends many messages and returns when every one of them is stored: that none is lost.

Messages for one queue are put together to batch messages (SEND_BATCH_MESSAGE): one request, one append, one sync for
some hundred rows. Rows that must stay in order, because they name a queue or a sharding key, have one batch under way
per queue; all others go to the topic's queues in turn, many batches at once. A delayed message cannot be in a batch
and goes alone.

A batch that failed is sent again, whole: so rows can be there twice, never not at all. Others that are under way are
left alone: a busy answer concerns one batch, and of a connection that ended the answers that came before its end hold.

What a broker will never take ends the task, or goes to `on_refused`: then the messages of a refused batch are sent one
by one, as one of them may be the reason.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from sparrowmq.client.cluster.blocking_network import BlockingLink, BlockingNetwork, reply_header
from sparrowmq.client.cluster.routes import Route
from sparrowmq.client.sending.queue_choice import RoundRobin
from sparrowmq.client.sending.send_request import SendContent, batch_properties
from sparrowmq.client.sending.send_result import LESS_SAFE, is_retriable
from sparrowmq.errors import BrokerUnreachable, InvalidMessage, NetworkError, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import V5_0_0, ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import check_topic
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.protocol.wire.header import Request
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.sink.envelopes import Envelopes
from sparrowmq.spark.worker import may_go_elsewhere

_BATCH_PROPERTIES: Final = batch_properties(wait_stored=True)


@dataclass(slots=True)
class QueueBatch:
    """The messages of one request to one queue. One that is `loose` may go to another queue instead."""

    queue: MessageQueue
    is_loose: bool = False
    pieces: list[bytes | memoryview] = field(default_factory=list)  # its body, each of whole messages
    count: int = 0
    size_bytes: int = 0
    # Of the request that carries it, where requests are counted; the same when it is sent again.
    number: int = -1

    def add(self, message: bytes | memoryview, count: int = 1) -> None:
        self.pieces.append(message)
        self.count += count
        self.size_bytes += len(message)

    @property
    def content(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def parts(self) -> list[BatchPart]:
        return batches.decode(self.content)

    def encode(self) -> SendContent:
        """As it goes over the wire. A message alone needs no envelope, which would count against the broker's limit."""
        topic = self.queue.topic
        if self.count == 1:
            body, properties, flag = self.parts[0]
            return SendContent(topic, bytes(body), bytes(properties).decode(), flag=flag)
        return SendContent(topic, self.content, _BATCH_PROPERTIES, is_batch=True)


@dataclass(frozen=True, slots=True)
class _RequestInFlight:
    """A request under way; `link` is None when not even sending worked."""

    batch: QueueBatch
    request: Request[Any]
    link: BlockingLink | None
    opaque: int = 0


OnRefused = Callable[[BatchPart, MessageQueue, RemoteError], None]


class Sender:
    """Sends for one task; `finish` sends the last messages. `on_refused` gets messages that a broker never takes."""

    def __init__(self, network: BlockingNetwork, options: SinkOptions) -> None:
        self._network = network
        self._options = options
        self._routes: dict[str, Route] = {}
        self._turns = RoundRobin()
        self._loose_batches: dict[str, QueueBatch] = {}
        self._ordered_batches: dict[MessageQueue, QueueBatch] = {}
        self._in_flight: deque[_RequestInFlight] = deque()
        self._has_any_time: dict[str, bool] = {}  # whether brokers deliver at any time
        self.stored = 0  # messages that a broker confirmed
        self.on_refused: OnRefused | None = None

    def put(self, topic: str, part: BatchPart) -> None:
        """A message to any queue of a topic. Raises: SendFailed, NoRoute."""
        message = batches.encode((part,))
        self._loose_batch(topic, len(message)).add(message)

    def put_in_order(self, queue: MessageQueue, part: BatchPart) -> None:
        """A message to one queue, behind everything that was put there before. Raises: SendFailed."""
        message = batches.encode((part,))
        self._ordered_batch(queue, len(message)).add(message)

    def put_all(self, topic: str, messages: Envelopes) -> None:
        """As many `put`. Raises: SendFailed, NoRoute."""
        self._put_all(messages, lambda size_bytes: self._loose_batch(topic, size_bytes))

    def put_all_in_order(self, queue: MessageQueue, messages: Envelopes) -> None:
        """As many `put_in_order`. Raises: SendFailed."""
        self._put_all(messages, lambda size_bytes: self._ordered_batch(queue, size_bytes))

    def put_alone(self, queue: MessageQueue, part: BatchPart) -> None:
        """A message that must not be in a batch. Raises: SendFailed."""
        if queue in self._ordered_batches:
            self._send_in_order(queue)
        self._send(_batch_of_one(queue, part))

    def check_any_time(self, queue: MessageQueue) -> None:
        """Check that the broker of a queue delivers messages at any time. Raises: InvalidMessage; SendFailed."""
        broker = queue.broker_name
        if broker not in self._has_any_time:
            self._has_any_time[broker] = self._network.retrying(lambda: self._delivers_at_any_time(queue))
        if not self._has_any_time[broker]:
            raise InvalidMessage(
                f"broker {broker} delivers after its delay levels only, as brokers before 5.0 do, and would deliver "
                "a row with a deliverTimestamp at once; write a delayLevel"
            )

    def _delivers_at_any_time(self, queue: MessageQueue) -> bool:
        link, request = self._network.link(queue), HeartBeat()
        reply = link.wait(link.send(request, Heartbeat(client_id=self._options.group).encode()))
        return (reply.version or 0) >= V5_0_0 or reply_header(request, reply).timer_max_delay_sec is not None

    def finish(self) -> None:
        """Return when everything is stored. Raises: SendFailed, NoRoute."""
        while self._loose_batches or self._ordered_batches or self._in_flight:  # what is refused may make more
            while self._loose_batches:
                self._send(self._loose_batches.pop(next(iter(self._loose_batches))))
            for queue in list(self._ordered_batches):
                self._send_in_order(queue)
            while self._in_flight:
                self._await_oldest()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages; for a new topic those of the template it is made from.

        Those of an ordered topic are always the same: a row whose broker is away waits for it. Raises: InvalidName, no
        topic can have this name; NoRoute, the topic does not exist, and no broker makes topics by itself;
        NetworkError, its brokers stayed away for all retries; SendFailed, it takes no messages.
        """
        return self._route(topic).keyed

    def any_queue(self, topic: str) -> MessageQueue:
        """The topic's queue whose turn it is, of a broker that is there. Raises: as `queues`."""
        queues, route = self.queues(topic), self._route(topic)
        present = [queue for queue in queues if queue in route.writable] if route.fixed else None
        return self._turns.next(present or queues)

    def queue_instead(self, batch: QueueBatch) -> MessageQueue:
        """Choose another queue for a batch that was not stored. Raises: as `queues`."""
        return self.any_queue(batch.queue.topic)

    def _route(self, topic: str) -> Route:
        route = self._routes.get(topic)
        if route is None:
            check_topic(topic)
            route = self._network.retrying(lambda: self._network.route_for_sending(topic))
            if not route.writable:
                raise SendFailed(f"no queue of topic {topic} takes messages; check its permission with updateTopicPerm")
            self._routes[topic] = route
        return route

    def _put_all(self, messages: Envelopes, batch_for: Callable[[int], QueueBatch]) -> None:
        begin = 0
        while begin < len(messages):
            batch = batch_for(messages.size_of(begin))  # which has room for one, or holds none
            rows = self._options.batch_rows - batch.count
            end = messages.end_of(begin, rows, self._options.batch_bytes - batch.size_bytes)
            batch.add(messages.cut(begin, end), end - begin)
            begin = end

    def _loose_batch(self, topic: str, size_bytes: int) -> QueueBatch:
        while (batch := self._loose_batches.get(topic)) is not None and not self._fits(batch, size_bytes):
            self._send(self._loose_batches.pop(topic))
        if batch is None:
            batch = self._loose_batches[topic] = QueueBatch(self.any_queue(topic), is_loose=True)
        return batch

    def _ordered_batch(self, queue: MessageQueue, size_bytes: int) -> QueueBatch:
        batch = self._ordered_batches.get(queue)
        if batch is not None and not self._fits(batch, size_bytes):
            self._send_in_order(queue)
            batch = None
        if batch is None:
            batch = self._ordered_batches[queue] = QueueBatch(queue)
        return batch

    def _fits(self, batch: QueueBatch, size_bytes: int) -> bool:
        if batch.count >= self._options.batch_rows:
            return False
        return batch.size_bytes + size_bytes <= self._options.batch_bytes

    def _send_in_order(self, queue: MessageQueue) -> None:
        while any(request.batch.queue == queue for request in self._in_flight):
            self._await_oldest()
        self._send(self._ordered_batches.pop(queue))

    def _send(self, batch: QueueBatch) -> None:
        while len(self._in_flight) >= self._options.max_in_flight:
            self._await_oldest()
        self._in_flight.append(self._start(batch))

    def _start(self, batch: QueueBatch) -> _RequestInFlight:
        request, body = self._request(batch, time.time_ns() // 1_000_000)
        try:
            link = self._network.link(batch.queue)
            return _RequestInFlight(batch, request, link, link.send(request, body))
        except (NetworkError, NoRoute):
            return _RequestInFlight(batch, request, None)

    def _request(self, batch: QueueBatch, now_ms: int) -> tuple[Request[Any], bytes]:
        encode = batch.encode()
        return encode.request(self._options.group, batch.queue, now_ms), encode.body

    def _on_confirmed(self, batch: QueueBatch) -> None:
        self.stored += batch.count

    def _await_oldest(self) -> None:
        """Wait until the oldest batch is stored, sending it again if need be."""
        in_flight, failures = self._in_flight.popleft(), 0
        refusing_brokers: set[str] = set()
        while (error := self._outcome(in_flight)) is not None:
            if self._is_illegal(error):
                self._refuse(in_flight.batch, error)
                return
            if may_go_elsewhere(error):
                refusing_brokers.add(in_flight.batch.queue.broker_name)
                in_flight = self._send_elsewhere(in_flight.batch, refusing_brokers, error)
                continue
            failures += 1
            try:
                self._network.recover(error, failures)
            except (NetworkError, RemoteError) as last_error:
                batch = in_flight.batch
                raise SendFailed(
                    f"{batch.count} messages to {batch.queue} were not stored: {last_error}"
                ) from last_error
            if in_flight.batch.is_loose:
                self._routes.clear()
                in_flight.batch.queue = self.queue_instead(in_flight.batch)
            in_flight = self._start(in_flight.batch)
        self._on_confirmed(in_flight.batch)

    def _is_illegal(self, error: Exception) -> TypeGuard[RemoteError]:
        """Whether the broker would always refuse the same messages, and `on_refused` takes them."""
        is_refusal = isinstance(error, RemoteError) and error.code == ResponseCode.MESSAGE_ILLEGAL
        return is_refusal and self.on_refused is not None

    def _refuse(self, batch: QueueBatch, error: RemoteError) -> None:
        if batch.count > 1:
            for part in batch.parts:
                self._in_flight.appendleft(self._start(_batch_of_one(batch.queue, part, is_loose=batch.is_loose)))
                self._await_oldest()
        elif self.on_refused is not None:
            self.on_refused(batch.parts[0], batch.queue, error)

    def _send_elsewhere(self, batch: QueueBatch, refusing_brokers: set[str], error: Exception) -> _RequestInFlight:
        other_queues = [queue for queue in self.queues(batch.queue.topic) if queue.broker_name not in refusing_brokers]
        if not batch.is_loose or not other_queues:
            raise SendFailed(f"the broker refuses messages to {batch.queue}: {error}") from error
        batch.queue = self._turns.next(other_queues)
        return self._start(batch)

    def _outcome(self, in_flight: _RequestInFlight) -> NetworkError | RemoteError | None:
        """Return an error that a retry may solve. Raises: SendFailed for others."""
        if in_flight.link is None:
            return BrokerUnreachable(in_flight.batch.queue.broker_name, "no connection could be made")
        try:
            reply_header(in_flight.request, in_flight.link.wait(in_flight.opaque, self._options.send_timeout_ms / 1000))
        except (NetworkError, RemoteError) as error:
            if is_retriable(error) or (isinstance(error, RemoteError) and error.code in LESS_SAFE):
                return error
            if self._is_illegal(error):
                return error
            raise self._refusal(in_flight.batch.queue, error) from error
        return None

    def _refusal(self, queue: MessageQueue, error: NetworkError | RemoteError) -> SendFailed:
        return SendFailed(f"the broker refuses messages to {queue}: {error}")


def _batch_of_one(queue: MessageQueue, part: BatchPart, *, is_loose: bool = False) -> QueueBatch:
    batch = QueueBatch(queue, is_loose)
    batch.add(batches.encode((part,)))
    return batch
