"""Copies messages to other queues: in order, with their ids and the times of their birth, and none twice.

    source    queue 3 of broker-a     17  18  19  20  21 ...
    target    queue 3 of broker-x     17  18  19                each says where it comes from, in SPARROW_ORIGIN

The end of the target queue shows how far the copy is. A copier looks there before it writes, and again whenever an
answer was lost, back to the end that the target had when the batch began. If a source topic was made again, the origin
names its incarnation too. Doubles are possible in one case only: two copiers work on one queue, because the machine of
a task was cut off and not dead.

To a broker of ours many requests are under way, so the rate does not depend on the round trip:

    requests    follows 500, reaches 900 | follows 900, reaches 1300 | follows 1300 ...
    answers               stored                  not stored: the copies reach 900

Each request names the end of the copies before it, and the broker stores it only if that is where the copies end. So
copies are in order, and none comes twice. After a failure the copier looks where the copies end, and goes on there.
Copies that a slave did not confirm in time are a failure, too: the next master may lack them.

Other brokers get one request after the other, because they could store a later one and refuse an earlier one. They take
the born time of a batch from its request, so messages share a request only if they were born in the same millisecond.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from sparrowmq.admin.dead_letters import DELAY_PROPERTIES, TRANSACTION_PROPERTIES
from sparrowmq.client.cluster.blocking_network import BlockingLink, BlockingNetwork, reply_header
from sparrowmq.client.consuming.pulling import check_progress
from sparrowmq.client.sending.send_request import SendContent, batch_properties
from sparrowmq.client.sending.send_result import LESS_SAFE, is_retriable
from sparrowmq.core.digits import whole_number
from sparrowmq.core.process import freeze_loaded_objects
from sparrowmq.errors import BrokerUnreachable, NetworkError, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import copied_batch, properties, record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.copied_batch import Copy
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from sparrowmq.protocol.messages.property_names import POP_NOTES, TIMER_NOTES, Property
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.requests.headers import (
    UNKNOWN_INCARNATION,
    CopyBatch,
    CopyBatchReply,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    PullMessage,
    PullMessageReply,
)
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.source.partition_ranges import BrokerTopic, Offsets, broker_topic
from sparrowmq.spark.worker import check_stored, connect, network_of

ORIGIN: Final = "SPARROW_ORIGIN"

_NOT_COPIED: Final = (
    DELAY_PROPERTIES
    | TRANSACTION_PROPERTIES
    | {
        ORIGIN,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.CLUSTER,
        Property.MSG_REGION,
        Property.TRACE_ON,
        Property.WAIT,
        Property.INNER_MULTI_QUEUE_OFFSET,
        *POP_NOTES,
        *TIMER_NOTES,
    }
)
# So far back the copy of a queue is looked for in any case, as by a pipeline whose state was lost.
_MIN_LOOKBACK: Final = 8192
_FIRST_PULL_MESSAGES: Final = 32
_ANSWER_LIMIT_S: Final = 1.0
_PROPERTIES_BYTES: Final = 512  # bytes of a message beside its body, about
_QUEUE_COLUMNS: Final = ("topic", "brokerName", "queueId")
COLUMNS: Final = (*_QUEUE_COLUMNS, "queueOffset", "bornTimestamp", "flag", "sysFlag", "properties", "body")
_COUNT_COLUMNS: Final = "sent bigint, there bigint, passed bigint"
_MAX_TASKS: Final = 64


class Original(NamedTuple):
    """A message to copy; `body` is as stored, compressed if `sys_flag` says so."""

    queue: MessageQueue
    offset: int
    born_ms: int
    flag: int
    sys_flag: int
    properties: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Copied:
    """Counts of messages: sent, there already, and skipped because they are copies themselves."""

    sent: int = 0
    already_there: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Copying:
    """The plan of a task.

    `options` are those of the target cluster. `label` is that of the pipeline, the same over restarts; it marks the
    copies. `targets` has the target queue of each queue, and `floors` the ends of the targets before the first of these
    messages was sent, or earlier places. `incarnations` are those of topics that were made again since the pipeline
    began. `chained`: copies are copied, too; two mirrors in opposite directions would never end. `dropped` are the
    offsets of each queue that are not copied.
    """

    options: SinkOptions
    label: str
    targets: Mapping[MessageQueue, MessageQueue]
    floors: Mapping[MessageQueue, int] = field(default_factory=dict)
    incarnations: Mapping[BrokerTopic, int] = field(default_factory=dict)
    chained: bool = False
    dropped: Mapping[MessageQueue, frozenset[int]] = field(default_factory=dict)


def copy_rows(rows: DataFrame, copying: Copying) -> Copied:
    """Copy rows that have the columns COLUMNS, each queue in one task and in order; returns when all are stored."""
    tasks = max(1, min(_MAX_TASKS, len(copying.targets)))
    ordered = (
        rows.select(*COLUMNS).repartition(tasks, *_QUEUE_COLUMNS).sortWithinPartitions(*_QUEUE_COLUMNS, "queueOffset")
    )
    counts = ordered.mapInArrow(partial(_copy, copying), _COUNT_COLUMNS).groupBy().sum().collect()[0]
    return Copied(*(count or 0 for count in counts))


def _copy(copying: Copying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_loaded_objects()
    network = network_of(copying.options, waits=True)
    copier = Copier(network, copying)
    try:
        copier.copy(row for batch in batches for row in read_originals(batch))
    finally:
        network.release()
    counts = copier.copied
    yield pa.RecordBatch.from_pydict(
        {"sent": [counts.sent], "there": [counts.already_there], "passed": [counts.skipped]}
    )


def read_originals(batch: pa.RecordBatch) -> Iterator[Original]:
    born = batch.column("bornTimestamp").cast(pa.int64()).to_pylist()
    names = ("topic", "brokerName", "queueId", "queueOffset", "flag", "sysFlag", "properties", "body")
    columns = (batch.column(name).to_pylist() for name in names)
    for born_us, topic, broker, queue_id, offset, flag, sys_flag, pairs, body in zip(born, *columns, strict=True):
        yield Original(
            MessageQueue(topic, broker, queue_id),
            offset,
            now_ms() if born_us is None else born_us // 1000,
            flag or 0,
            sys_flag or 0,
            dict(pairs or ()),
            body or b"",
        )


class _CopiedEnd(NamedTuple):
    """The end of the copies, as an offset of the source, and whether the broker is one of ours."""

    next_offset: int
    takes_copies: bool


class Copier:
    def __init__(self, network: BlockingNetwork, plan: Copying) -> None:
        self._network = network
        self._plan = plan
        self._options = plan.options
        self.copied = Copied()

    def copy(self, rows: Iterable[Original]) -> None:
        """Send what is not there yet, queue by queue. Raises: SendFailed; NetworkError, away for too long."""
        dropped = self._plan.dropped
        wanted_rows = (row for row in rows if row.offset not in dropped.get(row.queue, ()))
        for source, queue_rows in groupby(wanted_rows, key=lambda row: row.queue):
            target = self._target_for(source)
            next_offset, takes_copies = self._network.retrying(partial(self._find_end, source, target))
            missing = self._skip_copied(queue_rows, next_offset)
            if takes_copies:
                self._copy_in_pipeline(missing, source, target, next_offset)
            else:
                for parcel in parcels(missing, self._options, _may_share_request):
                    self._send(parcel, target)

    def _copy_in_pipeline(
        self, rows: Iterable[Original], source: MessageQueue, target: MessageQueue, next_offset: int
    ) -> None:
        pipeline = CopyPipeline(
            self._network,
            self._options,
            self._prefix(source),
            target,
            find_end=lambda: self._network.retrying(partial(self._find_end, source, target)).next_offset,
            properties=self._properties,
        )
        pipeline.copy(rows, next_offset)
        self.copied.sent += pipeline.sent

    def _target_for(self, source: MessageQueue) -> MessageQueue:
        if source not in self._plan.targets:
            raise SendFailed(f"the target queue of {source} is not known yet; run it again once name servers answer")
        return self._plan.targets[source]

    def _skip_copied(self, rows: Iterable[Original], next_offset: int) -> Iterator[Original]:
        for row in rows:
            if not self._plan.chained and ORIGIN in row.properties:
                self.copied.skipped += 1
            elif row.offset < next_offset:
                self.copied.already_there += 1
            else:
                yield row

    def _send(self, parcel: list[Original], target: MessageQueue) -> None:
        """Send until it is stored; after a lost answer look up what was stored."""
        failures, count = 0, len(parcel)
        while parcel:
            try:
                self._send_once(parcel, target)
                break
            except (NetworkError, RemoteError) as error:
                if not is_retriable(error):
                    raise SendFailed(f"the broker refuses {parcel[0].queue} {parcel[0].offset}: {error}") from error
                failures += 1
                self._network.recover(error, failures)
            next_offset = self._network.retrying(partial(self._find_end, parcel[0].queue, target)).next_offset
            parcel = [row for row in parcel if row.offset >= next_offset]
        if failures:
            self._network.recovered()
        self.copied.sent += count

    def _send_once(self, parcel: list[Original], target: MessageQueue) -> None:
        packed = self._send_content(parcel, target.topic)
        request = packed.request(self._options.group, target, parcel[0].born_ms)
        link = self._network.link_to_master(target)
        check_stored(request, link.wait(link.send(request, packed.body), self._options.send_timeout_ms / 1000))

    def _send_content(self, parcel: list[Original], topic: str) -> SendContent:
        first = parcel[0]
        if len(parcel) == 1:
            flags = first.sys_flag & SysFlag.OF_BODY
            return SendContent(topic, first.body, self._properties(first), flags, first.flag)
        parts = [BatchPart(row.body, self._properties(row).encode(), row.flag) for row in parcel]
        return SendContent(topic, batches.encode(parts), batch_properties(wait_stored=True), is_batch=True)

    def _properties(self, row: Original) -> str:
        copied = {name: value for name, value in row.properties.items() if name not in _NOT_COPIED}
        return properties.render(copied | {ORIGIN: f"{self._prefix(row.queue)}{row.offset}"})

    def _prefix(self, source: MessageQueue) -> str:
        incarnation = self._plan.incarnations.get(broker_topic(source))
        suffix = "" if incarnation is None else f"+{incarnation}"
        return f"{self._plan.label}/{source.topic}@{source.broker_name}:{source.queue_id}{suffix}:"

    def _find_end(self, source: MessageQueue, target: MessageQueue) -> _CopiedEnd:
        link = self._network.link_to_master(target)
        reply = link.call(GetMaxOffset(target.topic, target.queue_id, with_incarnation=True))[0]
        return _CopiedEnd(self._find_copied_end(source, target, link, reply.offset), reply.incarnation is not None)

    def _find_copied_end(self, source: MessageQueue, target: MessageQueue, link: BlockingLink, end: int) -> int:
        prefix = self._prefix(source)
        first = link.call(GetMinOffset(topic=target.topic, queue_id=target.queue_id))[0].offset
        floor = min(end - _MIN_LOOKBACK, self._plan.floors.get(target, end))
        first, size = max(first, floor), _FIRST_PULL_MESSAGES
        while end > first:
            start = max(first, end - size)
            last = max(_copied_offsets(prefix, pull_messages(link, target, start, end)), default=None)
            if last is not None:
                return last + 1
            end, size = start, size * 4
        return 0


def parcels(
    rows: Iterable[Original],
    options: SinkOptions,
    may_share: Callable[[Original, Original], bool] = lambda first, row: True,
) -> Iterator[list[Original]]:
    """Rows for one request each. `may_share` says whether a row may follow in the request of another one."""
    parcel: list[Original] = []
    size = 0
    for row in rows:
        row_size = len(row.body) + _PROPERTIES_BYTES
        fits = len(parcel) < options.batch_rows and size + row_size <= options.batch_bytes
        if parcel and not (fits and may_share(parcel[0], row)):
            yield parcel
            parcel, size = [], 0
        parcel.append(row)
        size += row_size
    if parcel:
        yield parcel


class _RequestInFlight(NamedTuple):
    rows: list[Original]
    request: CopyBatch
    link: BlockingLink
    opaque: int


class _OutOfOrder(Exception):
    """The broker has not stored copies, because those before them end elsewhere: at `reached`, if it knows that."""

    def __init__(self, reached: int) -> None:
        super().__init__(reached)
        self.reached = reached


class CopyPipeline:
    """Copies one queue, named `source` in requests, to a broker of ours; `sent` counts the copies that are stored."""

    def __init__(
        self,
        network: BlockingNetwork,
        options: SinkOptions,
        source: str,
        target: MessageQueue,
        find_end: Callable[[], int],
        properties: Callable[[Original], str],
    ) -> None:
        self._network = network
        self._options = options
        self._source = source
        self._target = target
        self._find_end = find_end
        self._properties = properties
        self._in_flight: deque[_RequestInFlight] = deque()
        self._to_repeat: deque[list[Original]] = deque()
        self._next_offset = 0  # the end of the copies, when all that is under way is stored
        self._is_first_request = True
        self._failures = 0
        self.sent = 0

    def copy(self, rows: Iterable[Original], next_offset: int) -> None:
        """Copy rows; the copies end at `next_offset`. Raises: as `Copier.copy`."""
        self._next_offset, self._is_first_request = next_offset, True
        new_parcels = parcels(rows, self._options)
        while True:
            try:
                self._fill(new_parcels)
                if not self._in_flight:
                    return
                self._await_oldest()
            except (NetworkError, RemoteError, _OutOfOrder) as error:
                self._go_back(error)

    def _fill(self, new_parcels: Iterator[list[Original]]) -> None:
        while len(self._in_flight) < self._options.max_in_flight:
            parcel = self._to_repeat.popleft() if self._to_repeat else next(new_parcels, None)
            if parcel is None:
                return
            rows = [row for row in parcel if row.offset >= self._next_offset]
            self.sent += len(parcel) - len(rows)
            if rows:
                self._send(rows)

    def _send(self, rows: list[Original]) -> None:
        target = self._target
        request = CopyBatch(
            target.topic,
            target.queue_id,
            self._source,
            follows=self._next_offset,
            reaches=rows[-1].offset + 1,
            begins=self._is_first_request or None,
        )
        parts = [
            Copy(row.born_ms, row.sys_flag, BatchPart(row.body, self._properties(row).encode(), row.flag))
            for row in rows
        ]
        try:
            link = self._network.link_to_master(target)
            opaque = link.send(request, copied_batch.encode(parts))
        except NetworkError:
            self._to_repeat.appendleft(rows)
            raise
        self._in_flight.append(_RequestInFlight(rows, request, link, opaque))
        self._next_offset, self._is_first_request = request.reaches, False

    def _await_oldest(self) -> None:
        rows, request, link, opaque = self._in_flight[0]
        reply_command = link.wait(opaque, self._options.send_timeout_ms / 1000)
        try:
            reply = reply_header(request, reply_command)
        except RemoteError as error:
            if error.code == ResponseCode.FLUSH_SLAVE_TIMEOUT:
                raise BrokerUnreachable(self._target.broker_name, f"a slave is late: {error}") from error
            if error.code not in LESS_SAFE:
                raise
            reply = reply_command.header(CopyBatchReply)
        if not reply.stored:
            raise _OutOfOrder(reply.reached)
        self._in_flight.popleft()
        self.sent += len(rows)
        if self._failures:
            self._network.recovered()
        self._failures = 0

    def _go_back(self, error: NetworkError | RemoteError | _OutOfOrder) -> None:
        """Take back all that is under way, and find out where to go on. Raises: as `copy`."""
        requests = list(self._in_flight)
        self._in_flight.clear()
        for in_flight in requests[1:]:
            with suppress(NetworkError):
                in_flight.link.wait(in_flight.opaque, self._options.send_timeout_ms / 1000)
        self._to_repeat.extendleft(in_flight.rows for in_flight in reversed(requests))
        if isinstance(error, RemoteError) and not is_retriable(error):
            self._split_refused(error)
        elif not isinstance(error, _OutOfOrder):
            self._failures += 1
            self._network.recover(error, self._failures)
        is_known = isinstance(error, _OutOfOrder) and error.reached >= 0
        self._next_offset = error.reached if isinstance(error, _OutOfOrder) and is_known else self._find_end()
        self._is_first_request = True

    def _split_refused(self, refusal: RemoteError) -> None:
        """Take a refused batch apart, as one of its messages is the reason. Raises: SendFailed, it has only one."""
        rows = self._to_repeat.popleft()
        if len(rows) == 1:
            raise SendFailed(f"the broker refuses {rows[0].queue} {rows[0].offset}: {refusal}") from refusal
        self._to_repeat.extendleft([row] for row in reversed(rows))


def _may_share_request(first: Original, row: Original) -> bool:
    return row.born_ms == first.born_ms and not (first.sys_flag | row.sys_flag) & SysFlag.OF_BODY


def ends_of(options: SinkOptions, queues: Iterable[MessageQueue]) -> Offsets:
    """Return the ends of queues, without those whose brokers are away. Raises: NetworkError."""
    requests = {queue: (queue, GetMaxOffset(queue.topic, queue.queue_id, with_incarnation=True)) for queue in queues}
    with connect(options) as network:
        replies = network.ask_reachable(requests, _ANSWER_LIMIT_S)
    ends = {queue: reply for queue, reply in replies.items() if isinstance(reply, OffsetReply)}
    incarnations = {broker_topic(queue): reply.incarnation or 0 for queue, reply in ends.items()}
    known_incarnations = {
        part: incarnation for part, incarnation in incarnations.items() if incarnation > UNKNOWN_INCARNATION
    }
    return Offsets({queue: reply.offset for queue, reply in ends.items()}, known_incarnations)


def _copied_offsets(prefix: str, records: Iterable[memoryview]) -> Iterator[int]:
    needle = prefix.encode()
    for encoded in records:
        if needle in bytes(encoded):  # most are of others, and need not be decoded
            origin = record.decode(encoded).properties.get(ORIGIN, "")
            offset = whole_number(origin[len(prefix) :]) if origin.startswith(prefix) else None
            if offset is not None:  # any sender can write such a property
                yield offset


def pull_messages(link: BlockingLink, queue: MessageQueue, start: int, end: int) -> Iterator[memoryview]:
    """The messages `[start, end)` of a queue that are there. Raises: NetworkError, RemoteError."""
    while start < end:
        request = PullMessage.now(TOOLS_GROUP, queue, start, end - start)
        reply = link.wait(link.send(request))
        if reply.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            return
        # The file of the log that these messages were in is going: others follow.
        has_skipped = reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        header = reply.header(PullMessageReply) if has_skipped else reply_header(request, reply)
        yield from record.walk(b"" if has_skipped else reply.body)
        check_progress(queue, start, header.next_begin_offset)
        start = header.next_begin_offset


def pair_queues(
    sources: Iterable[MessageQueue], targets: Iterable[MessageQueue], targets_known: Mapping[MessageQueue, MessageQueue]
) -> dict[MessageQueue, MessageQueue]:
    """Choose each source's target: as known, of the same name and number, the same number, or that with the fewest."""
    pairs, candidates = dict(targets_known), sorted(targets)
    for source in sorted(set(sources) - targets_known.keys()):
        used_targets = list(pairs.values())
        pairs[source] = min(
            candidates,
            key=lambda candidate: (
                candidate.broker_name != source.broker_name or candidate.queue_id != source.queue_id,
                used_targets.count(candidate),
                candidate.queue_id != source.queue_id,
                candidate,
            ),
        )
    return pairs


def now_ms() -> int:
    return time.time_ns() // 1_000_000
