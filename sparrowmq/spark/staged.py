"""The exactly-once half of the sink: a task stages its rows, and the driver commits the batch.

    tasks    StageBatch ... ── rows that nobody sees, by attempt ──┐
    driver   CommitBatch [attempts that reported] ────────────────>┴── the broker publishes these, once

Whatever Spark repeats comes to nothing: a task's other attempts are not named, a batch that was committed is not staged
or committed again, and a driver that is still alive when the query was started again elsewhere is refused
(`broker/staging.py`). One broker decides, so all rows of a query go to queues of one broker: option brokerName.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from sparrowmq.client.cluster.blocking import BlockingNetwork
from sparrowmq.client.sending.outcome import LESS_SAFE, may_go_right_again
from sparrowmq.errors import InvalidMessage, NetworkError, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from sparrowmq.protocol.wire.header import Request
from sparrowmq.spark.identity import Writing
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.sender import QueueBatch, Sender

log = logging.getLogger(__name__)


class Attempt(msgspec.Struct, frozen=True):
    """What a task's attempt has staged: so many requests, for `topic` among others."""

    writing: Writing
    name: str
    requests: int
    topic: str


class StagedSender(Sender):
    """Stages for one attempt at a task."""

    def __init__(self, network: BlockingNetwork, options: SinkOptions, writing: Writing) -> None:
        super().__init__(network, options)
        self._writing = writing
        self._name = uuid.uuid4().hex
        self._begun = 0
        self._staged = 0
        self._topic = ""

    @property
    def attempt(self) -> Attempt:
        """What was staged, once `finish` has returned."""
        return Attempt(self._writing, self._name, self._staged, self._topic)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Those of the broker that decides. Raises: as `Sender`; SendFailed, if it has none."""
        broker = self._options.broker_name
        found = tuple(queue for queue in super().queues(topic) if queue.broker_name == broker)
        if not found:
            raise SendFailed(
                f"broker {broker} has no queue of topic {topic} that takes messages; with "
                "deliveryGuarantee=exactly_once all rows go to the broker of the option brokerName"
            )
        return found

    def put_alone(self, queue: MessageQueue, part: BatchPart) -> None:
        """Raises: InvalidMessage; such a message would be parked, and not be published with its batch."""
        raise InvalidMessage(
            "a delayed row cannot be sent with deliveryGuarantee=exactly_once; drop the column delayLevel, or "
            "write idempotent"
        )

    def _request(self, batch: QueueBatch, now_ms: int) -> tuple[Request[Any], bytes]:
        if batch.number < 0:
            batch.number = self._begun
            self._begun += 1
        writing, queue = self._writing, batch.queue
        request = StageBatch(
            topic=queue.topic,
            queue_id=queue.queue_id,
            writer=writing.writer,
            run=writing.run,
            batch=writing.batch,
            attempt=self._name,
            number=batch.number,
            born_timestamp=now_ms,
        )
        return request, batches.encode(batch.parts)

    def _confirmed(self, batch: QueueBatch) -> None:
        super()._confirmed(batch)
        self._staged += 1
        self._topic = batch.queue.topic

    def _refusal(self, queue: MessageQueue, error: NetworkError | RemoteError) -> SendFailed:
        return refusal(f"messages to {queue}", queue.broker_name, error)


def refusal(what: str, broker: str, error: Exception) -> SendFailed:
    """Why a broker does not stage or commit."""
    if isinstance(error, RemoteError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return SendFailed(
            f"broker {broker} cannot keep deliveryGuarantee=exactly_once: it knows no staged batches, as Apache's "
            "brokers do not; write idempotent, or at_least_once"
        )
    if isinstance(error, RemoteError) and error.code == ResponseCode.ILLEGAL_OPERATION:
        return SendFailed(f"broker {broker} refuses {what}: {error.remark}")
    return SendFailed(f"the broker refuses {what}: {error}")


def commit(network: BlockingNetwork, options: SinkOptions, attempts: Sequence[Attempt]) -> bool:
    """Publish what the attempts staged, which are of one batch; returns whether that had been done before.

    Nothing is asked if nothing was staged. Called again it changes nothing.

    Raises:
        SendFailed: the broker refuses, as another run of the query has taken over, or stays away too long. Whether
            the batch was committed is not known then; Spark repeats it, which is no matter.
    """
    attempts = [attempt for attempt in attempts if attempt.requests]
    if not attempts:
        return False
    writing, broker = attempts[0].writing, options.broker_name or ""
    request = CommitBatch(writing.writer, writing.run, writing.batch)
    body = msgspec.json.encode({"attempts": {attempt.name: attempt.requests for attempt in attempts}})
    queue, failures = MessageQueue(attempts[0].topic, broker, 0), 0
    while True:
        try:
            reply, _ = network.link(queue).call(request, body, timeout_s=options.send_timeout_ms / 1000)
        except (NetworkError, RemoteError, NoRoute) as error:
            is_passing = may_go_right_again(error) or isinstance(error, NoRoute)
            if not is_passing and not (isinstance(error, RemoteError) and error.code in LESS_SAFE):
                raise refusal(f"the commit of batch {writing.batch}", broker, error) from error
            failures += 1
            try:
                network.recover(error, failures)
            except (NetworkError, RemoteError, NoRoute) as last:
                raise SendFailed(f"batch {writing.batch} was not committed at {broker}: {last}") from last
        else:
            network.recovered()
            return reply.repeated
