"""Sends many messages and returns when every one of them is stored: the at-least-once half of the sink.

Messages for one queue are put together to batch messages (SEND_BATCH_MESSAGE): one request, one append, one sync for
some hundred rows. Rows that must stay in order, because they name a queue or a sharding key, have one batch under way
per queue; all others go to the topic's queues in turn, many batches at once. A delayed message cannot be in a batch
and goes alone.

A batch that failed is sent again, whole: so rows can be there twice, never not at all.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from sparrowmq.errors import BrokerUnreachable, NetworkError, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessageV2
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.wire import Cluster, Link, answer

TEMPLATE_QUEUES: Final = 4  # defaultTopicQueueNums of Java's producer
_OVERHEAD_BYTES: Final = 22  # of a message in a batch
# Stored, but not as safely as the broker is told to: not yet on disk, or not yet on a slave.
_NOT_SAFE_YET: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)


@dataclass(slots=True)
class Parcel:
    """What goes out as one request: messages of one queue. One that is `loose` may go to another queue instead."""

    queue: MessageQueue
    is_loose: bool = False
    is_alone: bool = False
    parts: list[BatchPart] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, part: BatchPart) -> None:
        self.parts.append(part)
        self.size_bytes += _size_bytes(part)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A parcel under way; `link` is None when not even sending worked."""

    parcel: Parcel
    request: SendMessageV2
    link: Link | None
    opaque: int = 0


class Sender:
    """Sends for one task. `finish` must be called, or the last messages stay behind."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._turns = count(random.randrange(1 << 16))  # tasks do not all begin with the same queue
        self._loose: dict[str, Parcel] = {}
        self._ordered: dict[MessageQueue, Parcel] = {}
        self._under_way: deque[_Sent] = deque()
        self.stored = 0  # messages that a broker confirmed

    def put(self, topic: str, part: BatchPart) -> None:
        """A message to any queue of a topic. Raises: SendFailed, NoRoute."""
        parcel = self._loose.get(topic)
        if parcel is not None and not self._fits(parcel, part):
            self._send(self._loose.pop(topic))
            parcel = None
        if parcel is None:
            parcel = self._loose[topic] = Parcel(self.any_queue(topic), is_loose=True)
        parcel.add(part)

    def put_in_order(self, queue: MessageQueue, part: BatchPart) -> None:
        """A message to one queue, behind everything that was put there before. Raises: SendFailed."""
        parcel = self._ordered.get(queue)
        if parcel is not None and not self._fits(parcel, part):
            self._send_in_order(queue)
            parcel = None
        if parcel is None:
            parcel = self._ordered[queue] = Parcel(queue)
        parcel.add(part)

    def put_alone(self, queue: MessageQueue, part: BatchPart) -> None:
        """A message that must not be in a batch. Raises: SendFailed."""
        if queue in self._ordered:
            self._send_in_order(queue)
        self._send(Parcel(queue, is_alone=True, parts=[part]))

    def finish(self) -> None:
        """Return when everything is stored. Raises: SendFailed, NoRoute."""
        for parcel in self._loose.values():
            self._send(parcel)
        self._loose.clear()
        for queue in list(self._ordered):
            self._send_in_order(queue)
        while self._under_way:
            self._settle_first()

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that take messages; for a new topic those of the template it is made from.

        Raises:
            NoRoute: the topic does not exist, and no broker makes topics by itself.
            SendFailed: nobody may write to it.
        """
        found = self._queues.get(topic)
        if found is None:
            found = self._cluster.retrying(lambda: self._find_queues(topic), also_without_route=True)
            if not found:
                raise SendFailed(
                    f"no queue of topic {topic} takes messages; check its permission with updateTopicPerm"
                )
            self._queues[topic] = found
        return found

    def any_queue(self, topic: str) -> MessageQueue:
        """The topic's queue whose turn it is. Raises: as `queues`."""
        queues = self.queues(topic)
        return queues[next(self._turns) % len(queues)]

    def _find_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return self._cluster.route(topic).writable
        except NoRoute:
            try:
                template = self._cluster.route(DEFAULT_TOPIC).writable
            except NoRoute:
                raise NoRoute(topic, ";".join(self._options.name_servers)) from None
            return tuple(
                MessageQueue(topic, each.broker_name, each.queue_id)
                for each in template
                if each.queue_id < TEMPLATE_QUEUES
            )

    def _fits(self, parcel: Parcel, part: BatchPart) -> bool:
        if len(parcel.parts) >= self._options.batch_rows:
            return False
        return parcel.size_bytes + _size_bytes(part) <= self._options.batch_bytes

    def _send_in_order(self, queue: MessageQueue) -> None:
        while any(sent.parcel.queue == queue for sent in self._under_way):
            self._settle_first()
        self._send(self._ordered.pop(queue))

    def _send(self, parcel: Parcel) -> None:
        while len(self._under_way) >= self._options.max_in_flight:
            self._settle_first()
        self._under_way.append(self._start(parcel))

    def _start(self, parcel: Parcel) -> _Sent:
        request, body = _request(parcel, self._options.group)
        try:
            link = self._cluster.link(parcel.queue)
            return _Sent(parcel, request, link, link.send(request, body))
        except (NetworkError, NoRoute):
            return _Sent(parcel, request, None)

    def _settle_first(self) -> None:
        """Wait until the oldest parcel is stored, sending it again if need be."""
        sent, failures = self._under_way.popleft(), 0
        while (error := self._outcome(sent)) is not None:
            failures += 1
            try:
                self._cluster.recover(error, failures)
            except (NetworkError, RemoteError) as last:
                parcel = sent.parcel
                raise SendFailed(
                    f"{len(parcel.parts)} messages to {parcel.queue} were not stored: {last}"
                ) from last
            if sent.parcel.is_loose:
                self._queues.clear()
                sent.parcel.queue = self.any_queue(sent.parcel.queue.topic)
            sent = self._start(sent.parcel)
        self.stored += len(sent.parcel.parts)

    def _outcome(self, sent: _Sent) -> NetworkError | RemoteError | None:
        """What went wrong and may go right the next time. Raises: SendFailed for what will not."""
        if sent.link is None:
            return BrokerUnreachable(sent.parcel.queue.broker_name, "no connection could be made")
        try:
            answer(sent.request, sent.link.wait(sent.opaque, self._options.send_timeout_ms / 1000))
        except NetworkError as error:
            return error
        except RemoteError as error:
            if error.retriable or error.code in _NOT_SAFE_YET:
                return error
            raise SendFailed(f"the broker refuses messages to {sent.parcel.queue}: {error}") from error
        return None


def _size_bytes(part: BatchPart) -> int:
    return len(part.body) + len(part.properties) + _OVERHEAD_BYTES


def _request(parcel: Parcel, group: str) -> tuple[SendMessageV2, bytes]:
    kind = SendMessageV2 if parcel.is_alone else SendBatchMessage
    first = parcel.parts[0]
    request = kind(
        producer_group=group,
        topic=parcel.queue.topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=TEMPLATE_QUEUES,
        queue_id=parcel.queue.queue_id,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=first.flag if parcel.is_alone else 0,
        properties=bytes(first.properties).decode() if parcel.is_alone else "WAIT\x01true\x02",
        batch=not parcel.is_alone,
        broker_name=parcel.queue.broker_name,
    )
    return request, bytes(first.body) if parcel.is_alone else batch.encode(parcel.parts)
