"""Copies messages to other queues: in order, with their ids and the times of their birth, and none twice.

    source    queue 3 of broker-a     17  18  19  20  21 ...
    target    queue 3 of broker-x     17  18  19                each says where it comes from, in SPARROW_ORIGIN

The end of the target queue shows how far the copy is. A copier looks there before it writes, and again whenever an
answer was lost; it does not send messages that are there already. If a source topic was deleted and made again, the
origin names its incarnation too, so that the new topic's first messages are not taken for those of the old one. A
copier looks back to the end that the target had when
the batch began, however much others have written to it since. Doubles are possible in one case only: two copiers work
on one queue at the same time, because the machine of a task was cut off and not dead.

To a broker of ours many requests are under way (`copy_pipeline.py`). Other brokers get one after the other, because
they could store a later one and refuse an earlier one. They take the born time of a batch from its request. So messages
share a request only if their born times have the same millisecond. Properties that a broker wrote itself are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from sparrowmq.client.admin.dead_letters import COMMITTED, WAITED
from sparrowmq.client.cluster.blocking_network import BlockingNetwork, Link, answer
from sparrowmq.client.consuming.pulling import demand_progress
from sparrowmq.client.sending.outcome import may_go_right_again
from sparrowmq.client.sending.packed import Packed, batch_properties
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import NetworkError, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import properties, record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from sparrowmq.protocol.messages.property_names import POP_NOTES, TIMER_NOTES, Property
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.protocol.requests.headers import (
    UNKNOWN_INCARNATION,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    PullMessage,
    PullMessageReply,
)
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.pipelines.copying.copy_pipeline import CopyPipeline, Original, parcels
from sparrowmq.spark.refusals import demand_stored
from sparrowmq.spark.source.partition_ranges import Offsets, Part, part_of
from sparrowmq.spark.worker_network import connect

ORIGIN: Final = "SPARROW_ORIGIN"

_NOT_COPIED: Final = (
    WAITED
    | COMMITTED
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
_LOOKED_BACK: Final = 8192
_FIRST_LOOK: Final = 32
_SOON_S: Final = 1.0


class _Place(NamedTuple):
    """The end of the copies, as an offset of the source, and whether the broker is one of ours."""

    done: int
    takes_copies: bool


@dataclass(slots=True)
class Copied:
    """Counts of messages: sent, there already, and passed over because they are copies themselves."""

    sent: int = 0
    there: int = 0
    passed: int = 0


@dataclass(frozen=True)
class Copying:
    """The plan of a task.

    Attributes:
        options: of the target cluster.
        label: of the pipeline, the same over restarts; marks its copies.
        targets: the target queue of each queue.
        floors: the ends of the targets before the first of these messages was sent, or earlier places.
        again: the incarnations of topics that were made again since the pipeline began.
        chained: whether copies are copied. Two mirrors in opposite directions would never end.
        dropped: the offsets of each queue that are not copied.
    """

    options: SinkOptions
    label: str
    targets: Mapping[MessageQueue, MessageQueue]
    floors: Mapping[MessageQueue, int] = field(default_factory=dict)
    again: Mapping[Part, int] = field(default_factory=dict)
    chained: bool = False
    dropped: Mapping[MessageQueue, frozenset[int]] = field(default_factory=dict)


class Copier:
    """Copies for one task."""

    def __init__(self, network: BlockingNetwork, plan: Copying) -> None:
        self._network = network
        self._plan = plan
        self._options = plan.options
        self.copied = Copied()

    def copy(self, rows: Iterable[Original]) -> None:
        """Send what is not there yet, queue by queue; the rows of a queue come together and in order.

        Raises:
            SendFailed: a broker refuses a message.
            NetworkError: it is away, for longer than the options allow.
        """
        dropped = self._plan.dropped
        wanted = (row for row in rows if row.offset not in dropped.get(row.queue, ()))
        for source, of_queue in groupby(wanted, key=lambda row: row.queue):
            target = self._target(source)
            done, takes_copies = self._network.retrying(partial(self._look, source, target))
            missing = self._missing(of_queue, done)
            if takes_copies:
                self._pipe(missing, source, target, done)
            else:
                for parcel in parcels(missing, self._options, _may_share_request):
                    self._send(parcel, target)

    def _pipe(self, rows: Iterable[Original], source: MessageQueue, target: MessageQueue, done: int) -> None:
        pipeline = CopyPipeline(
            self._network,
            self._options,
            self._prefix(source),
            target,
            look=lambda: self._network.retrying(partial(self._look, source, target)).done,
            properties=self._properties,
        )
        pipeline.copy(rows, done)
        self.copied.sent += pipeline.sent

    def _target(self, source: MessageQueue) -> MessageQueue:
        if source not in self._plan.targets:
            raise SendFailed(f"the target queue of {source} is not known yet; run it again once name servers answer")
        return self._plan.targets[source]

    def _missing(self, rows: Iterable[Original], done: int) -> Iterator[Original]:
        for row in rows:
            if not self._plan.chained and ORIGIN in row.properties:
                self.copied.passed += 1
            elif row.offset < done:
                self.copied.there += 1
            else:
                yield row

    def _send(self, parcel: list[Original], target: MessageQueue) -> None:
        """Send until it is stored; after a lost answer look up what was stored."""
        failures, count = 0, len(parcel)
        while parcel:
            try:
                self._try(parcel, target)
                break
            except (NetworkError, RemoteError) as error:
                if not may_go_right_again(error):
                    raise SendFailed(f"the broker refuses {parcel[0].queue} {parcel[0].offset}: {error}") from error
                failures += 1
                self._network.recover(error, failures)
            done = self._network.retrying(partial(self._look, parcel[0].queue, target)).done
            parcel = [row for row in parcel if row.offset >= done]
        if failures:
            self._network.recovered()
        self.copied.sent += count

    def _try(self, parcel: list[Original], target: MessageQueue) -> None:
        packed = self._packed(parcel, target.topic)
        request = packed.request(self._options.group, target, parcel[0].born_ms)
        link = self._network.link_to_master(target)
        demand_stored(request, link.wait(link.send(request, packed.body), self._options.send_timeout_ms / 1000))

    def _packed(self, parcel: list[Original], topic: str) -> Packed:
        first = parcel[0]
        if len(parcel) == 1:
            flags = first.sys_flag & SysFlag.OF_BODY
            return Packed(topic, first.body, self._properties(first), flags, first.flag)
        parts = [BatchPart(row.body, self._properties(row).encode(), row.flag) for row in parcel]
        return Packed(topic, batches.encode(parts), batch_properties(wait_stored=True), is_batch=True)

    def _properties(self, row: Original) -> str:
        kept = {name: value for name, value in row.properties.items() if name not in _NOT_COPIED}
        return properties.render(kept | {ORIGIN: f"{self._prefix(row.queue)}{row.offset}"})

    def _prefix(self, source: MessageQueue) -> str:
        incarnation = self._plan.again.get(part_of(source))
        which = "" if incarnation is None else f"+{incarnation}"
        return f"{self._plan.label}/{source.topic}@{source.broker_name}:{source.queue_id}{which}:"

    # What is there already ------------------------------------------------------------------------------------------

    def _look(self, source: MessageQueue, target: MessageQueue) -> _Place:
        """Return the next offset of the source to copy, by the end of the target. Raises: NetworkError, RemoteError."""
        link = self._network.link_to_master(target)
        reply = link.call(GetMaxOffset(target.topic, target.queue_id, with_incarnation=True))[0]
        return _Place(self._done(source, target, link, reply.offset), reply.incarnation is not None)

    def _done(self, source: MessageQueue, target: MessageQueue, link: Link, end: int) -> int:
        prefix = self._prefix(source)
        first = link.call(GetMinOffset(topic=target.topic, queue_id=target.queue_id))[0].offset
        floor = min(end - _LOOKED_BACK, self._plan.floors.get(target, end))
        first, size = max(first, floor), _FIRST_LOOK
        while end > first:
            start = max(first, end - size)
            last = max(_copies(prefix, pulled(link, target, start, end)), default=None)
            if last is not None:
                return last + 1
            end, size = start, size * 4
        return 0


def _may_share_request(first: Original, row: Original) -> bool:
    return row.born_ms == first.born_ms and not (first.sys_flag | row.sys_flag) & SysFlag.OF_BODY


def ends_of(options: SinkOptions, queues: Iterable[MessageQueue]) -> Offsets:
    """Return the ends of queues, without those whose brokers are away. Raises: NetworkError."""
    asked = {queue: (queue, GetMaxOffset(queue.topic, queue.queue_id, with_incarnation=True)) for queue in queues}
    with connect(options) as network:
        replies = network.ask_those_there(asked, _SOON_S)
    found = {queue: reply for queue, reply in replies.items() if isinstance(reply, OffsetReply)}
    said = {part_of(queue): reply.incarnation or 0 for queue, reply in found.items()}
    named = {part: known for part, known in said.items() if known > UNKNOWN_INCARNATION}
    return Offsets({queue: reply.offset for queue, reply in found.items()}, named)


def _copies(prefix: str, records: Iterable[memoryview]) -> Iterator[int]:
    """The offsets of the originals whose copies are among these."""
    needle = prefix.encode()
    for each in records:
        if needle in bytes(each):  # most are of others, and need not be decoded
            origin = record.decode(each).properties.get(ORIGIN, "")
            offset = whole_number(origin[len(prefix) :]) if origin.startswith(prefix) else None
            if offset is not None:  # any sender can write such a property
                yield offset


def pulled(link: Link, queue: MessageQueue, start: int, end: int) -> Iterator[memoryview]:
    """The messages `[start, end)` of a queue that are there. Raises: NetworkError, RemoteError."""
    while start < end:
        request = PullMessage.now(TOOLS_GROUP, queue, start, end - start)
        reply = link.wait(link.send(request))
        if reply.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            return
        # The file of the log that these messages were in is going: others follow.
        has_skipped = reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        header = reply.header(PullMessageReply) if has_skipped else answer(request, reply)
        yield from record.walk(b"" if has_skipped else reply.body)
        demand_progress(queue, start, header.next_begin_offset)
        start = header.next_begin_offset


def paired(
    sources: Iterable[MessageQueue],
    targets: Iterable[MessageQueue],
    known: Mapping[MessageQueue, MessageQueue],
) -> dict[MessageQueue, MessageQueue]:
    """Choose the target of each source queue: as `known`, or the queue of the same name, of the same number, or any.

    Of several it is the one with the fewest sources.
    """
    found, free = dict(known), sorted(targets)
    for source in sorted(set(sources) - known.keys()):
        used = list(found.values())
        found[source] = min(
            free,
            key=lambda each: (
                each.broker_name != source.broker_name or each.queue_id != source.queue_id,
                used.count(each),
                each.queue_id != source.queue_id,
                each,
            ),
        )
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000
