"""The exactly-once half of the sink: a task stages its rows, and the driver commits the batch.

    tasks    StageBatch ... ── rows that no consumer sees, by attempt ──┐
    driver   CommitBatch [attempts that reported] ────────────────>┴── the broker publishes these, once

Repetitions by Spark have no effect. A task's other attempts are not named. A committed batch is not staged or committed
again. A driver that is still alive when the query was started again elsewhere is refused
(`broker/staging/batch_staging.py`).
One broker decides, that of the option brokerName. It gets all rows; or, with allBrokers=true, the driver first commits
there, and then commits the decision at each other broker:

    commit at brokerName    [attempts of all brokers] ──> decided; a driver that comes again gets the same attempts
    commit at each other    [its attempts] ─────────────> published, once

So a driver that dies in between leaves nothing half done. The next one reads the decision, ignores the rows that its
own tasks staged meanwhile, and completes the batch. Rows are seen at one broker after the other.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.sending.outcome import LESS_SAFE, may_go_right_again
from sparrowmq.errors import InvalidMessage, NetworkError, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import CommitBatch, CommitBatchReply, StageBatch
from sparrowmq.protocol.wire.header import Request
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.sender import QueueBatch, Sender

log = logging.getLogger(__name__)


class Attempt(msgspec.Struct, frozen=True):
    """The requests that a task's attempt has staged, by broker."""

    writing: Writing
    name: str
    requests: dict[str, int]


class StagedSender(Sender):
    """Stages for one attempt at a task."""

    def __init__(self, network: BlockingNetwork, options: SinkOptions, writing: Writing) -> None:
        super().__init__(network, options)
        self._writing = writing
        self._name = uuid.uuid4().hex
        self._begun = 0
        self._staged: Counter[str] = Counter()

    @property
    def attempt(self) -> Attempt:
        """The staged requests, once `finish` has returned."""
        return Attempt(self._writing, self._name, dict(self._staged))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Those of the broker that decides, or of all. Raises: as `Sender`; SendFailed, if the former has none."""
        broker, everywhere = self._options.broker_name, super().queues(topic)
        found = tuple(queue for queue in everywhere if queue.broker_name == broker)
        if not found:
            raise SendFailed(
                f"broker {broker} has no queue of topic {topic} that takes messages; with "
                "deliveryGuarantee=exactly_once the broker of the option brokerName decides, and so gets rows"
            )
        return everywhere if self._options.all_brokers else found

    def queue_instead(self, batch: QueueBatch) -> MessageQueue:
        """One of the same broker: it may have staged the batch, though its answer did not come."""
        broker, topic = batch.queue.broker_name, batch.queue.topic
        others = [queue for queue in self.queues(topic) if queue.broker_name == broker]
        return self._turns.next(others) if others else batch.queue

    def put_alone(self, queue: MessageQueue, part: BatchPart) -> None:
        """Raises: InvalidMessage; such a message would be parked, and not be published with its batch."""
        raise InvalidMessage(
            "a row with a delayLevel, deliverTimestamp or priority cannot be sent with "
            "deliveryGuarantee=exactly_once; drop this column, or write idempotent"
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
        return request, batch.content

    def _confirmed(self, batch: QueueBatch) -> None:
        super()._confirmed(batch)
        self._staged[batch.queue.broker_name] += 1

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


def commit(
    network: BlockingNetwork, options: SinkOptions, attempts: Sequence[Attempt], plan: str | None = None
) -> bool:
    """Publish what the attempts staged, which are of one batch; returns whether that had been decided before.

    Nothing is asked if nothing was staged. Called again it changes nothing.

    Args:
        plan: of a stream's batch (`deciding_broker.plan_of`).
    Raises:
        SendFailed: a broker refuses, as another run of the query has taken over, or stays away too long. Whether
            the batch was committed is not known then; Spark repeats it, which is no matter.
    """
    attempts = [attempt for attempt in attempts if attempt.requests]
    if not attempts:
        return False
    staged: dict[str, dict[str, int]] = {}
    for attempt in attempts:
        for broker, requests in attempt.requests.items():
            staged.setdefault(broker, {})[attempt.name] = requests
    committing, decider = _Committing(network, options, attempts[0], plan), options.broker_name or ""
    own = staged.pop(decider, {})
    reply = committing.ask(decider, {"attempts": own, "others": staged})
    others = msgspec.json.decode(reply.others, type=dict[str, dict[str, int]]) if reply.others else {}
    for broker, decided in sorted(others.items()):
        committing.ask(broker, {"attempts": decided})
    return reply.repeated


class _Committing:
    """Asks brokers to commit one batch, until they have answered."""

    def __init__(self, network: BlockingNetwork, options: SinkOptions, attempt: Attempt, plan: str | None) -> None:
        self._network = network
        self._timeout_s = options.send_timeout_ms / 1000
        writing = attempt.writing
        self._request = CommitBatch(writing.writer, writing.run, writing.batch, plan)

    def ask(self, broker: str, said: dict[str, Any]) -> CommitBatchReply:
        """Raises: SendFailed."""
        body, failures = msgspec.json.encode(said), 0
        batch = self._request.batch
        while True:
            try:
                reply, _ = self._network.link_to(broker).call(self._request, body, timeout_s=self._timeout_s)
            except (NetworkError, RemoteError, NoRoute) as error:
                is_passing = may_go_right_again(error) or isinstance(error, NoRoute)
                if not is_passing and not (isinstance(error, RemoteError) and error.code in LESS_SAFE):
                    raise refusal(f"the commit of batch {batch}", broker, error) from error
                failures += 1
                try:
                    self._network.recover(error, failures)
                except (NetworkError, RemoteError, NoRoute) as last:
                    raise SendFailed(f"batch {batch} was not committed at {broker}: {last}") from last
            else:
                self._network.recovered()
                return reply
