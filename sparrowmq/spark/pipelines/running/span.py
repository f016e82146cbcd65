"""The messages of topics between two moments: a span has the same rows, however the topics grow.

A run with an end (`once`) may lack messages of brokers that were away:

    begin of the run     the ends of the queues whose brokers are there, and the brokers that are away
    end of the run       a broker that was away is asked again; the stream has to have passed all these ends

A broker may also leave and come back during a run. So the offsets decide, and not which brokers are there at the end.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.errors import ConfigError, NetworkError, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.source.partition_ranges import (
    VERSION,
    Bounds,
    BrokerTopic,
    Offsets,
    between,
    broker_topic,
    clamp_offset,
    from_json,
    recreated_topics,
    stream_ends,
    to_json,
)
from sparrowmq.spark.source.query_offsets import OffsetClient, QueueOffsets
from sparrowmq.spark.source.stream_source import newest_planned_end
from sparrowmq.spark.worker import connect

# The options for the begin and the end of a query; a span replaces them.
_RANGE_OPTIONS = {
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "endingoffsets",
    "endingtimestamp",
    "endingoffsetsbytimestamp",
}


@dataclass(frozen=True, slots=True)
class Span:
    """The rows `[start, end)` of each queue."""

    start: QueueOffsets
    end: Offsets

    @property
    def rows(self) -> int:
        """The number of rows, without a filter."""
        return sum(map(len, between(self.start, self.end)))

    def batch_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a source for just these rows."""
        others = {name: value for name, value in options.items() if name.lower() not in _RANGE_OPTIONS}
        ranges = {"startingOffsets": self.start, "endingOffsets": self.end}
        return others | {name: json.dumps(offsets_by_topic(offsets)) for name, offsets in ranges.items()}

    def stream_options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a stream that begins with these rows."""
        ranges = self.batch_options(options)
        del ranges["endingOffsets"]
        return ranges


def stream_options_from(reached: Offsets, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a stream that begins behind these offsets; queues that they do not have, from their begin.

    A topic that was made again since is read from its first message.

    Raises:
        ConfigError: a queue cannot be read now. It would be read from its begin when it is there again.
        RowsLost: a topic was made again, or messages behind the offsets are gone, and `options` wants to know.
        NoRoute, NetworkError: as `span_of`.
    """
    other_options = {name: value for name, value in options.items() if name.lower() not in _RANGE_OPTIONS}
    span = span_of({**other_options, "startingOffsets": "earliest"})
    bounds_now = {
        queue: Bounds(start, span.end[queue], span.end.incarnations.get(broker_topic(queue)))
        for queue, start in span.start.items()
    }
    fail = parse(SourceOptions, options).fail_on_data_loss
    recreated = recreated_topics(reached, stream_ends(reached, bounds_now, lambda bounds: bounds.end, fail=fail))
    valid_offsets = {queue: offset for queue, offset in reached.items() if broker_topic(queue) not in recreated}
    for queue in sorted(valid_offsets.keys() - bounds_now.keys()):
        raise ConfigError(
            f"{queue} cannot be read, and was read to offset {valid_offsets[queue]}: its broker is away, or the topic "
            "has fewer queues now. Start again when the broker is back, or give the topic its queues again by "
            "updateTopic"
        )
    start = {
        queue: clamp_offset(queue, valid_offsets.get(queue, bounds.start), bounds, fail=fail)
        for queue, bounds in bounds_now.items()
    }
    return Span(start, span.end).stream_options(options)


def has_moving_start(options: Mapping[str, str]) -> bool:
    """Whether a later start may begin elsewhere with these options, as with `startingOffsets=latest`."""
    starts = {name.lower(): value.strip().lower() for name, value in options.items() if name.lower() in _RANGE_OPTIONS}
    return bool(starts) and starts != {"startingoffsets": "earliest"}


def first_span(options: Mapping[str, str], begin_before: Mapping[str, Any] | None) -> Span:
    """Return the rows that a stream without a batch has to read, from `begin_before` or earlier."""
    span = span_of(options)
    if begin_before is None or not has_moving_start(options):
        return span
    earlier = from_json({"v": VERSION, "topics": begin_before})
    other_options = {name: value for name, value in options.items() if name.lower() not in _RANGE_OPTIONS}
    new_starts = span_of({**other_options, "startingOffsets": "earliest"}).start  # of a queue that was made meanwhile
    start = {queue: min(offset, earlier.get(queue, new_starts[queue])) for queue, offset in span.start.items()}
    return Span(start, span.end)


def since_until(since: str | None, until: str | None) -> dict[str, str]:
    """Options for messages stored at or after `since` and before `until`; there may be none."""
    start = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": since} if since else {}
    return start | ({"endingTimestamp": until} if until else {})


def span_of(options: Mapping[str, str]) -> Span:
    """Return the rows that a batch with these options of the source would read now. Raises: as the source itself."""
    source_options = parse(SourceOptions, options)
    with connect(source_options) as network:
        offset_client = OffsetClient(network, source_options)
        bounds = offset_client.bounds()
        start, end = offset_client.starts(bounds, otherwise="earliest"), offset_client.ends(bounds)
    ends = {queue: max(offset, start[queue]) for queue, offset in end.items()}
    return Span(start, Offsets(ends, end.incarnations))


def newest_ms(options: Mapping[str, str], queues: Collection[MessageQueue]) -> dict[str, int]:
    """Return by broker when it stored its newest message. Raises: as `OffsetClient.newest_ms`."""
    source_options = parse(SourceOptions, options)
    with connect(source_options) as network:
        return OffsetClient(network, source_options).newest_ms(queues)


def ends_before(options: Mapping[str, str], time_ms: int) -> QueueOffsets:
    """Return where the messages end that were stored before a time. Raises: as `span_of`."""
    others = {name: value for name, value in options.items() if name.lower() not in _RANGE_OPTIONS}
    return span_of({**others, "endingTimestamp": str(time_ms)}).end


def offsets_by_topic(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Offsets by topic, broker and queue id, as reports and options have them."""
    topics = to_json(offsets)["topics"]
    assert isinstance(topics, dict)
    return topics


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the queues whose brokers are there, and the names of the brokers that are away."""

    present: Offsets
    away: frozenset[str] = frozenset()


_UNKNOWN: Final = Ends(Offsets())


def current_ends(options: Mapping[str, str], checkpoint: str) -> Ends:
    """Ask the brokers of a stream, of its topics and those read before; nothing is known without name servers."""
    source_options, read_offsets = parse(SourceOptions, options), newest_planned_end(checkpoint) or Offsets()
    with connect(source_options) as network:
        offset_client = OffsetClient(network, source_options)
        try:
            routed, unrouted = offset_client.queues(read_offsets)
        except (NetworkError, NoRoute):
            return _UNKNOWN
        answers = offset_client.reachable_bounds([*routed, *unrouted], read_offsets)
    present = {
        queue: bounds for queue, bounds in answers.items() if isinstance(bounds, Bounds) and bounds.incarnation != 0
    }
    incarnations = {
        broker_topic(queue): bounds.incarnation for queue, bounds in present.items() if bounds.incarnation is not None
    }
    away = {queue.broker_name for queue, bounds in answers.items() if isinstance(bounds, NetworkError | NoRoute)}
    return Ends(Offsets({queue: bounds.end for queue, bounds in present.items()}, incarnations), frozenset(away))


def unread_brokers(options: Mapping[str, str], checkpoint: str, begin: Ends) -> list[str]:
    """Return the brokers whose messages a run that has ended lacks; `begin` is how they were at its begin."""
    current = current_ends(options, checkpoint) if begin.away else _UNKNOWN
    reached = newest_planned_end(checkpoint) or Offsets()
    late = {queue: end for queue, end in current.present.items() if queue.broker_name in begin.away}
    lacks = _behind(reached, begin.present) | _behind(reached, Offsets(late, current.present.incarnations))
    answered = {queue.broker_name for queue in late}
    return sorted(lacks | (begin.away - answered))


def unread_notice(brokers: Collection[str]) -> str:
    """Say what a run lacks, and what to do."""
    return (
        f"this run lacks messages of {', '.join(sorted(brokers))}, which did not answer; run it again when the broker "
        "is back"
    )


def _behind(reached: Offsets, ends: Offsets) -> set[str]:
    return {
        queue.broker_name
        for queue, end in ends.items()
        if reached.get(queue, end) < end and not _is_another(broker_topic(queue), reached, ends)
    }


def _is_another(part: BrokerTopic, first_offsets: Offsets, second_offsets: Offsets) -> bool:
    first, second = first_offsets.incarnations.get(part, 0), second_offsets.incarnations.get(part, 0)
    return first != second and min(first, second) > 0
