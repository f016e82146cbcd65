"""The exactly-once half of the sink: a task stages its rows, and the driver commits the batch.

    tasks    StageBatch ... ── rows that no consumer sees, by attempt ──┐
    driver   CommitBatch [attempts that reported] ────────────────>┴── the broker publishes these, once

Repetitions by Spark have no effect: other attempts of a task are not named, and a committed batch is not staged or
committed again. A driver whose query was started again elsewhere is refused (`broker/staging/staged_batches.py`). One
broker decides, that of the option brokerName. It gets all rows; or, with allBrokers=true:

    commit at brokerName    [attempts of all brokers] ──> decided; a driver that comes again gets the same attempts
    commit at each other    [its attempts] ─────────────> published, once

A driver that dies in between leaves nothing half done: the next one reads the decision, and completes the batch.

A repeated batch must come to the broker that decided about it: another one would store its rows again. So, where the
option brokerName names none, the choice of a stream is kept in its checkpoint:

    /lake/once/metadata                    Spark's; it shows that this is the place of the checkpoint
    /lake/once/sparrowmq-exactly-once      {"broker":"broker-a"}

A write that is no stream may choose freely if it is never repeated under its name (`writeId`).
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import fs

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.sending.send_result import LESS_SAFE, is_retriable
from sparrowmq.errors import ConfigError, InvalidMessage, NetworkError, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import CommitBatch, CommitBatchReply, StageBatch
from sparrowmq.protocol.wire.header import Request
from sparrowmq.spark.options import EXACTLY_ONCE, SinkOptions
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.sender import QueueBatch, Sender
from sparrowmq.spark.worker import network_of

log = logging.getLogger(__name__)

DECIDER_FILE: Final = "sparrowmq-exactly-once"
_SPARK_METADATA: Final = "metadata"
_LOCAL_SCHEME: Final = re.compile("file:(//)?(?=/)")
_NAME_DECIDER_ADVICE: Final = "name the broker that decides by the option brokerName"


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
        self._request_count = 0
        self._requests_by_broker: Counter[str] = Counter()

    @property
    def attempt(self) -> Attempt:
        """The staged requests, once `finish` has returned."""
        return Attempt(self._writing, self._name, dict(self._requests_by_broker))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Those of the broker that decides, or of all. Raises: as `Sender`; SendFailed, if the former has none."""
        broker, all_queues = self._options.broker_name, super().queues(topic)
        decider_queues = tuple(queue for queue in all_queues if queue.broker_name == broker)
        if not decider_queues:
            raise SendFailed(
                f"broker {broker} has no queue of topic {topic} that takes messages; with "
                "deliveryGuarantee=exactly_once the broker of the option brokerName decides, and so gets rows"
            )
        return all_queues if self._options.all_brokers else decider_queues

    def queue_instead(self, batch: QueueBatch) -> MessageQueue:
        """One of the same broker: it may have staged the batch, though its answer did not come."""
        broker, topic = batch.queue.broker_name, batch.queue.topic
        other_queues = [queue for queue in self.queues(topic) if queue.broker_name == broker]
        return self._turns.next(other_queues) if other_queues else batch.queue

    def put_alone(self, queue: MessageQueue, part: BatchPart) -> None:
        """Raises: InvalidMessage; such a message would be parked, and not be published with its batch."""
        raise InvalidMessage(
            "a row with a delayLevel, deliverTimestamp or priority cannot be sent with "
            "deliveryGuarantee=exactly_once; drop this column, or write idempotent"
        )

    def _request(self, batch: QueueBatch, now_ms: int) -> tuple[Request[Any], bytes]:
        if batch.number < 0:
            batch.number = self._request_count
            self._request_count += 1
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

    def _on_confirmed(self, batch: QueueBatch) -> None:
        super()._on_confirmed(batch)
        self._requests_by_broker[batch.queue.broker_name] += 1

    def _refusal(self, queue: MessageQueue, error: NetworkError | RemoteError) -> SendFailed:
        return refusal_error(f"messages to {queue}", queue.broker_name, error)


def refusal_error(subject: str, broker: str, error: Exception) -> SendFailed:
    """Why a broker does not stage or commit."""
    if isinstance(error, RemoteError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return SendFailed(
            f"broker {broker} cannot keep deliveryGuarantee=exactly_once: it knows no staged batches, as Apache's "
            "brokers do not; write idempotent, or at_least_once"
        )
    if isinstance(error, RemoteError) and error.code == ResponseCode.ILLEGAL_OPERATION:
        return SendFailed(f"broker {broker} refuses {subject}: {error.remark}")
    return SendFailed(f"the broker refuses {subject}: {error}")


def commit(
    network: BlockingNetwork, options: SinkOptions, attempts: Sequence[Attempt], offsets_digest: str | None = None
) -> bool:
    """Publish what the attempts staged, which are of one batch; returns whether that had been decided before.

    Nothing is asked if nothing was staged. Called again it changes nothing.
    Raises: SendFailed, a broker refuses, as another run of the query has taken over, or stays away too long. It is not
    known then whether the batch was committed; Spark repeats it, which is no matter.
    """
    attempts = [attempt for attempt in attempts if attempt.requests]
    if not attempts:
        return False
    staged: dict[str, dict[str, int]] = {}
    for attempt in attempts:
        for broker, requests in attempt.requests.items():
            staged.setdefault(broker, {})[attempt.name] = requests
    batch_commit, decider = _BatchCommit(network, options, attempts[0], offsets_digest), options.broker_name or ""
    own_attempts = staged.pop(decider, {})
    reply = batch_commit.commit_at(decider, {"attempts": own_attempts, "others": staged})
    others = msgspec.json.decode(reply.others, type=dict[str, dict[str, int]]) if reply.others else {}
    for broker, decided_attempts in sorted(others.items()):
        batch_commit.commit_at(broker, {"attempts": decided_attempts})
    return reply.repeated


class _BatchCommit:
    """Asks brokers to commit one batch, until they have answered."""

    def __init__(
        self, network: BlockingNetwork, options: SinkOptions, attempt: Attempt, offsets_digest: str | None
    ) -> None:
        self._network = network
        self._timeout_s = options.send_timeout_ms / 1000
        writing = attempt.writing
        self._request = CommitBatch(writing.writer, writing.run, writing.batch, offsets_digest)

    def commit_at(self, broker: str, content: dict[str, Any]) -> CommitBatchReply:
        """Raises: SendFailed."""
        body, failures = msgspec.json.encode(content), 0
        batch = self._request.batch
        while True:
            try:
                reply, _ = self._network.link_to(broker).call(self._request, body, timeout_s=self._timeout_s)
            except (NetworkError, RemoteError, NoRoute) as error:
                is_passing = is_retriable(error) or isinstance(error, NoRoute)
                if not is_passing and not (isinstance(error, RemoteError) and error.code in LESS_SAFE):
                    raise refusal_error(f"the commit of batch {batch}", broker, error) from error
                failures += 1
                try:
                    self._network.recover(error, failures)
                except (NetworkError, RemoteError, NoRoute) as last_error:
                    raise SendFailed(f"batch {batch} was not committed at {broker}: {last_error}") from last_error
            else:
                self._network.recovered()
                return reply


class _DeciderFile(msgspec.Struct):
    """The content of the file."""

    broker: str


def with_stream_decider(options: SinkOptions, checkpoint: str | None) -> SinkOptions:
    """Options of a stream with the broker that decides; it is kept in the checkpoint.

    Raises: ConfigError, the checkpoint cannot be reached, or another broker has decided about its batches; NoRoute and
    others as `Sender.queues`.
    """
    if options.guarantee != EXACTLY_ONCE:
        return options
    file = _DeciderInCheckpoint.from_location(checkpoint)
    if file is None:
        if options.broker_name is not None:
            return options
        raise ConfigError(
            "deliveryGuarantee=exactly_once keeps its deciding broker in the folder of the option checkpointLocation, "
            f"and {checkpoint or 'there is none among the options of the stream'} is no checkpoint that can be "
            f"reached from here; {_NAME_DECIDER_ADVICE}, and let it be the same for the life of the query"
        )
    decider = file.broker()
    if decider is None:
        decider = options.broker_name or _first_broker(options)
        file.save(decider)
    if options.broker_name not in (None, decider):
        raise ConfigError(
            f"brokerName={options.broker_name}, but broker {decider} has decided about the batches of this checkpoint: "
            f"{options.broker_name} does not know which of them are stored. Write brokerName={decider}, or leave it "
            f"out; if no batch is unfinished, delete {file}"
        )
    return replace(options, broker_name=decider)


def with_write_decider(options: SinkOptions) -> SinkOptions:
    """Options of a write with the broker that decides. Raises: ConfigError; NoRoute and others as `Sender.queues`."""
    if options.guarantee != EXACTLY_ONCE or options.broker_name is not None:
        return options
    if options.write_id is not None:
        raise ConfigError(
            f"a write that may be repeated as writeId={options.write_id} must come to the same broker each time; "
            f"{_NAME_DECIDER_ADVICE}"
        )
    return replace(options, broker_name=_first_broker(options))


def offsets_digest(checkpoint: str | None, batch: int) -> str | None:
    """Name what a batch of a stream was made of: a digest of its file of offsets, which Spark never writes again.

    A stream that begins with an older copy of its checkpoint plans a batch of this number again, in another file.
    Returns None if the checkpoint cannot be reached from here.
    """
    file = _DeciderInCheckpoint.from_location(checkpoint)
    offsets = file.offsets(batch) if file is not None else None
    return None if offsets is None else blake2b(offsets, digest_size=16).hexdigest()


def _first_broker(options: SinkOptions) -> str:
    if options.topic is None:
        raise ConfigError(f"the rows go to topics that a column names, so {_NAME_DECIDER_ADVICE}")
    queues = Sender(network_of(options), options).queues(options.topic)
    return min(queue.broker_name for queue in queues)


class _DeciderInCheckpoint:
    """A file in a checkpoint, on this machine or where pyarrow can reach it (S3, HDFS, Google's storage)."""

    def __init__(self, system: fs.FileSystem, folder: str) -> None:
        self._system = system
        self._path = str(PurePosixPath(folder) / DECIDER_FILE)

    def __str__(self) -> str:
        return self._path

    @classmethod
    def from_location(cls, location: str | None) -> _DeciderInCheckpoint | None:
        """The checkpoint at a place; None if there is none, as far as can be seen from here."""
        if not location:
            return None
        path = _LOCAL_SCHEME.sub("", location)
        try:
            if re.match(r"[A-Za-z][\w+.-]*:", path):
                system, folder = fs.FileSystem.from_uri(path)
            else:
                system, folder = fs.LocalFileSystem(), os.path.abspath(path)
            metadata_file = system.get_file_info(str(PurePosixPath(folder) / _SPARK_METADATA))
        except (pa.ArrowException, OSError):
            return None
        return cls(system, folder) if metadata_file.type is fs.FileType.File else None

    def broker(self) -> str | None:
        """The kept name. Raises: ConfigError, the file is damaged."""
        try:
            with self._system.open_input_file(self._path) as file:
                return msgspec.json.decode(file.read(), type=_DeciderFile).broker
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f'{self} is damaged ({error}); restore it, or write the broker that decided: {{"broker":"broker-a"}}'
            ) from None

    def offsets(self, batch: int) -> bytes | None:
        """The content of Spark's file about a batch; None if it cannot be read."""
        try:
            with self._system.open_input_file(str(PurePosixPath(self._path).with_name("offsets") / str(batch))) as file:
                content: bytes = file.read()
                return content
        except OSError:
            return None

    def save(self, broker: str) -> None:
        temporary = f"{self._path}.new"
        with self._system.open_output_stream(temporary) as file:
            file.write(msgspec.json.encode(_DeciderFile(broker)))
        self._system.move(temporary, self._path)
