"""Turns what the options say about topics, offsets and times into queues and offsets, by asking the brokers.

An option for some queues only would leave the place of the others open; so JSON must name
every queue, as Kafka's source wants it too. A time wins over times by queue, those over offsets, those over the
default.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.errors import ConfigError, NetworkError, NoRoute, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import GetTopicStats
from sparrowmq.protocol.requests.headers import (
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    PullMessage,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.offset_bodies import TopicStats
from sparrowmq.spark.columns import RecordColumns
from sparrowmq.spark.options import ANY_BROKER, EARLIEST, LATEST, Instant, SourceOptions, matches_pattern
from sparrowmq.spark.source.partition_ranges import (
    Bounds,
    BrokerTopic,
    Offsets,
    Range,
    broker_topic,
    clamp_offset,
    extend_numbers,
    incarnations_in,
    lose,
    sample_ranges,
    search_time,
)

log = logging.getLogger(__name__)

AllBounds = Mapping[MessageQueue, Bounds]
QueueOffsets: TypeAlias = dict[MessageQueue, int]

# For the size of a row: so many places in all, at most so many in a range, and what is read at each.
_SAMPLE_PLACES: Final = 64
_SAMPLES_PER_RANGE: Final = 8
_SAMPLE_ROWS: Final = 16
_SAMPLE_BYTES: Final = 64 << 10
# A trigger waits no longer for one broker, so that the rows of the others are not late.
_ANSWER_LIMIT_S: Final = 1.0
_TYPICAL_ROW_BYTES: Final = 1024


class OffsetClient:
    """The queues and offsets of one query. Requests are tried again as often as the options say."""

    def __init__(self, network: BlockingNetwork, options: SourceOptions) -> None:
        self._network = network
        self._options = options

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """The queues that the options choose, as they are now, and what they hold.

        Raises: NoRoute, a topic does not exist; ConfigError, an assigned queue does not exist; NetworkError, no name
        server, or not every broker, answered.
        """
        return self._network.retrying(lambda: bounds_of(self._network, self._queues()))

    def queues(self, read: Collection[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
        """The chosen queues that have a route, and those of the `read` ones that have none now.

        Raises: NoRoute, ConfigError, a topic or an assigned queue does not exist, and was not begun; NetworkError, no
        name server answered, and nothing was known before.
        """
        routed = self._network.retrying(lambda: self._queues(read))
        assigned = self._options.queues
        others = set(read).difference(routed)
        return routed, sorted(
            queue for queue in others if (queue in assigned if assigned else self._options.reads(queue.topic))
        )

    def reachable_bounds(
        self, queues: Collection[MessageQueue], read: Collection[MessageQueue] = ()
    ) -> dict[MessageQueue, Bounds | RemoteError | NetworkError | NoRoute]:
        """Return the bounds of each queue, or the error of its broker.

        For queues in `read` only the end is asked for, and their begin is given as 0: reading finds rows that are
        gone.
        """
        requests: dict[_RequestKey, tuple[MessageQueue, GetMinOffset | GetMaxOffset]] = {
            queue: (queue, _end_request(queue)) for queue in queues if queue in read
        }
        requests.update(_bounds_requests([queue for queue in queues if queue not in read]).items())
        replies = self._network.ask_reachable(requests, _ANSWER_LIMIT_S)
        bounds: dict[MessageQueue, Bounds | RemoteError | NetworkError | NoRoute] = {}
        for queue in queues:
            end = replies.get(queue)
            if isinstance(end, OffsetReply):
                bounds[queue] = Bounds(0, end.offset, end.incarnation)
            elif end is not None:
                bounds[queue] = end
            else:
                bounds[queue] = _bounds_or_error(replies[queue, GetMinOffset], replies[queue, GetMaxOffset])
        return bounds

    def begins(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the first offset that each queue still has; of those whose brokers are there."""
        requests = {queue: (queue, GetMinOffset(queue.topic, queue.queue_id)) for queue in queues}
        replies = self._network.ask_reachable(requests, _ANSWER_LIMIT_S)
        return {queue: reply.offset for queue, reply in replies.items() if isinstance(reply, OffsetReply)}

    def deleted_topics(self, queues: Mapping[BrokerTopic, MessageQueue]) -> set[BrokerTopic]:
        """Return those topics that their brokers do not have, by one queue of each."""
        requests = {part: (queue, GetTopicStats(queue.topic)) for part, queue in queues.items()}
        replies = self._network.ask_reachable(requests, _ANSWER_LIMIT_S) if requests else {}
        return {part for part, reply in replies.items() if is_no_topic(reply)}

    def newest_ms(self, queues: Collection[MessageQueue]) -> dict[str, int]:
        """Return by broker when it stored its newest message of these topics, by its clock. Raises: NetworkError."""
        requests = {broker_topic(queue): (queue, GetTopicStats(queue.topic)) for queue in queues}
        newest_by_broker: dict[str, int] = {}
        replies = self._network.retrying(lambda: self._network.ask_for_bodies(requests))
        for (_, broker), body in replies.items():
            ends = TopicStats.decode(body).offset_table.values() if isinstance(body, bytes) else ()
            newest = max((end.last_update_timestamp for end in ends), default=0)
            if newest > newest_by_broker.get(broker, 0):
                newest_by_broker[broker] = newest
        return newest_by_broker

    @property
    def fails_on_loss(self) -> bool:
        return self._options.fail_on_data_loss

    def has_master(self, broker_name: str) -> bool:
        """Whether a broker's answers are its master's; a slave may be behind."""
        return self._network.has_master(broker_name)

    def starts(self, bounds: AllBounds, otherwise: str) -> Offsets:
        """Return the first offsets; `otherwise` is "earliest" or "latest".

        Raises: ConfigError, the options leave out a queue, or name one that does not exist, or a time that no message
        reached; RowsLost, an offset is gone, and the options want to know.
        """
        return self.with_numbers(Offsets(self._starts(bounds, otherwise), incarnations_in(bounds)))

    def _starts(self, bounds: AllBounds, otherwise: str) -> QueueOffsets:
        times = self._wanted_times(self._options.start_time_ms, self._options.start_times_ms, bounds)
        if times is not None:
            starts = self._first_at_each(times, bounds)
            for queue, offset in starts.items():
                if offset == bounds[queue].end and self._options.when_no_later == "error":
                    raise ConfigError(
                        f"{queue} has no message of {_time_text(times[queue])} or later to start at; "
                        "set startingOffsetsByTimestampStrategy=latest to start at its end then"
                    )
            return starts
        start = self._options.start or otherwise
        if start == "group":
            return self._clamp_offsets(self._group_offsets(bounds), bounds)
        return self._clamp_offsets(_offsets_from(start, bounds, "startingOffsets"), bounds)

    def ends(self, bounds: AllBounds) -> Offsets:
        """Return the ends. Raises: as `starts`."""
        return self.with_numbers(Offsets(self._ends(bounds), incarnations_in(bounds)))

    def _ends(self, bounds: AllBounds) -> QueueOffsets:
        times = self._wanted_times(self._options.end_time_ms, self._options.end_times_ms, bounds)
        if times is not None:
            return self._first_at_each(times, bounds)
        return self._clamp_offsets(_offsets_from(self._options.end or "latest", bounds, "endingOffsets"), bounds)

    def with_numbers(self, offsets: Offsets) -> Offsets:
        """Return the offsets, with the numbers of new partitions if the query shows them.

        Queues that the query does not read have numbers, too: so `assign` changes none.

        Raises: NetworkError, no name server answered.
        """
        new_topics = {queue.topic for queue in offsets.keys() - offsets.numbers.keys()}
        if not new_topics or not self._options.kafka_compat:
            return offsets
        queues = {*offsets, *(queue for topic in new_topics for queue in self._readable(topic))}
        return Offsets(offsets, offsets.incarnations, extend_numbers(offsets.numbers, queues))

    def _readable(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return self._network.retrying(lambda: self._network.route(topic)).readable
        except NoRoute:
            return ()

    def narrow_to_times(self, range: Range, first_ms: int | None, end_ms: int | None) -> Range:
        """The part of a range that was stored in `[first_ms, end_ms)`; None for no limit. Raises: as `starts`."""
        bounds = Bounds(range.start, range.end)
        start = range.start if first_ms is None else self._first_at(range.queue, first_ms, bounds)
        end = range.end if end_ms is None else self._first_at(range.queue, end_ms, bounds)
        return replace(range, start=start, end=max(start, end))

    def new_start(self, bounds: Bounds) -> int:
        """Return the first offset of a queue that appeared while the query ran."""
        return bounds.end if self._options.new_queues == "latest" else bounds.start

    def row_bytes(self, ranges: Collection[Range]) -> int:
        """About how many bytes a message has: the mean over places of all ranges, as messages grow and shrink."""
        samples_by_broker: dict[str, dict[MessageQueue, list[tuple[int, PullMessage]]]] = {}
        for range, offset, rows in sample_ranges(ranges, _SAMPLE_PLACES, _SAMPLES_PER_RANGE):
            request = self._pull_request(range.queue, offset, min(range.end - offset, _SAMPLE_ROWS), _SAMPLE_BYTES)
            samples_by_broker.setdefault(range.queue.broker_name, {}).setdefault(range.queue, []).append(
                (rows, request)
            )
        size = weight = 0.0
        for samples in samples_by_broker.values():
            requests = {
                (queue, number): (queue, request)
                for queue, queue_samples in samples.items()
                for number, (_, request) in enumerate(queue_samples)
            }
            with suppress(NetworkError, NoRoute):
                for (queue, number), body in self._network.ask_for_bodies(requests).items():
                    sizes = RecordColumns(_pull_body(body)).column("storeSize").to_pylist()
                    if sizes:
                        rows = samples[queue][number][0]
                        size, weight = size + rows * sum(sizes) / len(sizes), weight + rows
        return math.ceil(size / weight) if weight else _TYPICAL_ROW_BYTES

    def commit_offsets(self, group: str, offsets: QueueOffsets) -> bool:
        """Tell the brokers how far the query is, under the name of a consumer group; whether all of them were there.

        A refusal is only said in the log: the query does not need it, and a 5.x broker refuses groups that it does not
        know before their first pull.
        """
        # Apache's broker 4.9 makes a group's table of a topic at its first commit, and of several first commits at
        # once it keeps the last one's table. So the first goes alone, and the others when it is answered.
        first_queues = {(queue.broker_name, queue.topic): queue for queue in reversed(list(offsets))}.values()
        is_sent = [
            self._send_offsets(group, {queue: offsets[queue] for queue in queues})
            for queues in (first_queues, offsets.keys() - set(first_queues))
        ]
        return all(is_sent)

    def _send_offsets(self, group: str, offsets: QueueOffsets) -> bool:
        requests = {
            queue: (queue, UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset))
            for queue, offset in offsets.items()
        }
        replies = self._network.ask_reachable(requests, _ANSWER_LIMIT_S)
        for queue, reply in replies.items():
            if isinstance(reply, RemoteError):
                log.warning("the offset of %s was not kept for group %s: %s", queue, group, reply)
        return not any(isinstance(reply, NetworkError | NoRoute) for reply in replies.values())

    def _queues(self, read: Collection[MessageQueue] = ()) -> list[MessageQueue]:
        """The chosen queues that have a route; topics and queues may be without one if they were `read`."""
        read_topics = {queue.topic for queue in read}
        readable: list[MessageQueue] = []
        for topic in self._topics():
            try:
                readable += self._network.route(topic).readable
            except NoRoute:
                if topic not in read_topics:
                    raise
        if not self._options.queues:
            return readable
        if absent := self._options.queues.difference(readable, read):
            raise ConfigError(f"option assign names {min(absent)}, which does not exist or cannot be read")
        return sorted(self._options.queues.intersection(readable))

    def _topics(self) -> list[str]:
        pattern = self._options.topic_pattern
        if pattern is None:
            return list(self._options.topics) or sorted({queue.topic for queue in self._options.queues})
        return [topic for topic in self._network.topics() if matches_pattern(pattern, topic)]

    def _wanted_times(
        self, for_all: int | None, by_queue: Mapping[MessageQueue, int] | None, bounds: AllBounds
    ) -> dict[MessageQueue, int] | None:
        if for_all is not None:
            return dict.fromkeys(bounds, for_all)
        return None if by_queue is None else _check_complete(by_queue, bounds, "...OffsetsByTimestamp")

    def _first_at(self, queue: MessageQueue, wanted_ms: int, bounds: Bounds) -> int:
        return self._first_at_each({queue: wanted_ms}, {queue: bounds})[queue]

    def _first_at_each(self, times: Mapping[MessageQueue, int], bounds: AllBounds) -> QueueOffsets:
        """The first offset of each queue that was stored at a time or later; all queues are asked side by side."""
        requests = {
            queue: (queue, SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=times[queue]))
            for queue in bounds
        }
        hints = self._network.retrying(lambda: self._network.ask(requests))
        searches = {queue: search_time(times[queue], _offset_in(hints[queue]), bounds[queue]) for queue in bounds}
        starts: QueueOffsets = {}
        stored_ms: dict[MessageQueue, int | None] = dict.fromkeys(searches)
        while stored_ms:
            probes: QueueOffsets = {}
            for queue, time_ms in stored_ms.items():
                try:
                    # A generator that was not begun takes None, as `next` does.
                    probes[queue] = searches[queue].send(time_ms)  # type: ignore[arg-type]
                except StopIteration as end:
                    starts[queue] = end.value
            stored_ms = dict(self._store_times_ms(probes))
        return {queue: starts[queue] for queue in bounds}

    def _store_times_ms(self, offsets: QueueOffsets) -> dict[MessageQueue, int]:
        """When each of these messages was stored; 0 for one that is gone. Raises: RowsLost, as `starts`."""
        requests = {queue: (queue, self._pull_request(queue, offset, 1)) for queue, offset in offsets.items()}
        bodies = self._network.retrying(lambda: self._network.ask_for_bodies(requests))
        times: dict[MessageQueue, int] = {}
        for queue, offset in offsets.items():
            body = _pull_body(bodies[queue])
            if not body:
                lose(f"offset {offset} of {queue} is gone", fail=self._options.fail_on_data_loss)
            times[queue] = record.store_timestamp_ms(body) if body else 0
        return times

    def _pull_request(self, queue: MessageQueue, offset: int, count: int, most_bytes: int | None = None) -> PullMessage:
        group = self._options.group or self._options.group_prefix
        return PullMessage.now(group, queue, offset, count, most_bytes)

    def _group_offsets(self, bounds: AllBounds) -> QueueOffsets:
        """Return the offsets of the consumer group; a queue that it never read counts as new."""
        group = self._options.group or ""
        replies = self._network.retrying(
            lambda: self._network.ask(
                {
                    queue: (queue, QueryConsumerOffset(group, queue.topic, queue.queue_id, set_zero_if_not_found=False))
                    for queue in bounds
                }
            )
        )
        starts = {}
        for queue, reply in replies.items():
            if isinstance(reply, RemoteError) and reply.code == ResponseCode.QUERY_NOT_FOUND:
                starts[queue] = self.new_start(bounds[queue])
            else:
                starts[queue] = _offset_in(reply)
        return starts

    def _clamp_offsets(self, offsets: QueueOffsets, bounds: AllBounds) -> QueueOffsets:
        fail = self._options.fail_on_data_loss
        return {queue: clamp_offset(queue, offset, bounds[queue], fail=fail) for queue, offset in offsets.items()}


def is_no_topic(reply: object) -> bool:
    return isinstance(reply, RemoteError) and reply.code == ResponseCode.TOPIC_NOT_EXIST


def bounds_of(network: BlockingNetwork, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
    """Return the bounds of queues. Raises: NoRoute, NetworkError, RemoteError."""
    replies = network.ask(_bounds_requests(queues))
    return {queue: _bounds_in(replies[queue, GetMinOffset], replies[queue, GetMaxOffset]) for queue in queues}


_OffsetRequest: TypeAlias = type[GetMinOffset] | type[GetMaxOffset]
_RequestKey: TypeAlias = MessageQueue | tuple[MessageQueue, _OffsetRequest]


def _bounds_requests(
    queues: Collection[MessageQueue],
) -> dict[tuple[MessageQueue, _OffsetRequest], tuple[MessageQueue, GetMinOffset | GetMaxOffset]]:
    requests: dict[tuple[MessageQueue, _OffsetRequest], tuple[MessageQueue, GetMinOffset | GetMaxOffset]] = {}
    for queue in queues:
        requests[queue, GetMinOffset] = (queue, GetMinOffset(queue.topic, queue.queue_id))
        requests[queue, GetMaxOffset] = (queue, _end_request(queue))
    return requests


def _end_request(queue: MessageQueue) -> GetMaxOffset:
    return GetMaxOffset(queue.topic, queue.queue_id, with_incarnation=True)


_Reply: TypeAlias = OffsetReply | RemoteError | NetworkError | NoRoute


def _bounds_or_error(start: _Reply, end: _Reply) -> Bounds | RemoteError | NetworkError | NoRoute:
    if not isinstance(start, OffsetReply):
        return start
    return Bounds(start.offset, end.offset, end.incarnation) if isinstance(end, OffsetReply) else end


def _bounds_in(*replies: OffsetReply | RemoteError) -> Bounds:
    bounds = _bounds_or_error(*replies)
    if not isinstance(bounds, Bounds):
        raise bounds
    return bounds


def _pull_body(body: bytes | RemoteError) -> bytes:
    """The answer to a pull; nothing, if the queue does not hold the messages any more. Raises: another refusal."""
    if not isinstance(body, RemoteError):
        return body
    if body.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
        return b""
    raise body


def _offset_in(reply: OffsetReply | RemoteError) -> int:
    if isinstance(reply, RemoteError):
        raise reply
    return reply.offset


def _offsets_from(spec: str | Mapping[MessageQueue, int], bounds: AllBounds, option: str) -> QueueOffsets:
    if isinstance(spec, str):
        spec = dict.fromkeys(bounds, EARLIEST if spec == "earliest" else LATEST)
    offset_of = {
        EARLIEST: lambda queue_bounds: queue_bounds.start,
        LATEST: lambda queue_bounds: queue_bounds.end,
    }
    return {
        queue: offset_of[offset](bounds[queue]) if offset in offset_of else offset
        for queue, offset in _check_complete(spec, bounds, option).items()
    }


def _time_text(time_ms: int) -> str:
    return time_ms.text if isinstance(time_ms, Instant) else str(time_ms)


def _with_brokers(by_queue: Mapping[MessageQueue, int], bounds: AllBounds, option: str) -> dict[MessageQueue, int]:
    """The same with the brokers that Kafka's form does not name. Raises: ConfigError, a topic is on several."""
    numbers: dict[MessageQueue, int] = {}
    for queue, number in by_queue.items():
        brokers = sorted({candidate.broker_name for candidate in bounds if candidate.topic == queue.topic})
        if queue.broker_name == ANY_BROKER and len(brokers) > 1:
            form = {queue.topic: {broker: {str(queue.queue_id): number} for broker in brokers}}
            raise ConfigError(
                f"topic {queue.topic} is on {len(brokers)} brokers, so option {option} names them; write "
                f"{json.dumps(form)}, with every queue"
            )
        broker = queue.broker_name or next(iter(brokers), ANY_BROKER)
        numbers[MessageQueue(queue.topic, broker, queue.queue_id)] = number
    return numbers


def _check_complete(by_queue: Mapping[MessageQueue, int], bounds: AllBounds, option: str) -> dict[MessageQueue, int]:
    by_queue = _with_brokers(by_queue, bounds, option)
    if absent := bounds.keys() - by_queue.keys():
        raise ConfigError(
            f"option {option} names no offset for {min(absent)}; name every queue (-2 earliest, -1 latest)"
        )
    if unknown := by_queue.keys() - bounds.keys():
        raise ConfigError(f"option {option} names {min(unknown)}, which does not exist or is not read by this query")
    return dict(by_queue)
