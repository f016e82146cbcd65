"""The messages of topics between two moments: a span has the same rows, however the topics grow."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.source.incarnations import advanced
from sparrowmq.spark.source.partition_ranges import (
    VERSION,
    Bounds,
    Offsets,
    between,
    from_json,
    made_again,
    part_of,
    settle,
    to_json,
)
from sparrowmq.spark.source.query_offsets import Places, Plan
from sparrowmq.spark.worker_network import connect

# The options for the begin and the end of a query; a span replaces them.
_PLACES = {
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

    start: Places
    end: Offsets

    @property
    def rows(self) -> int:
        """The number of rows, without a filter."""
        return sum(map(len, between(self.start, self.end)))

    def of(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a source for just these rows."""
        kept = {name: value for name, value in given.items() if name.lower() not in _PLACES}
        places = {"startingOffsets": self.start, "endingOffsets": self.end}
        return kept | {name: json.dumps(offsets_by_topic(place)) for name, place in places.items()}

    def onward(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a stream that begins with these rows."""
        places = self.of(given)
        del places["endingOffsets"]
        return places


def onward_from(reached: Offsets, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a stream that begins behind these offsets; queues that they do not have, from their begin.

    A topic that was made again since is read from its first message.

    Raises:
        ConfigError: a queue cannot be read now. It would be read from its begin when it is there again.
        RowsLost: a topic was made again, or messages behind the offsets are gone, and `given` wants to know.
        NoRoute, NetworkError: as `span_of`.
    """
    everywhere = {name: value for name, value in given.items() if name.lower() not in _PLACES}
    span = span_of({**everywhere, "startingOffsets": "earliest"})
    held = {
        queue: Bounds(start, span.end[queue], span.end.incarnations.get(part_of(queue)))
        for queue, start in span.start.items()
    }
    fail = parse(SourceOptions, given).fail_on_data_loss
    again = made_again(reached, advanced(reached, held, lambda bounds: bounds.end, fail=fail))
    known = {queue: offset for queue, offset in reached.items() if part_of(queue) not in again}
    for queue in sorted(known.keys() - held.keys()):
        raise ConfigError(
            f"{queue} cannot be read, and was read to offset {known[queue]}: its broker is away, or the topic has "
            "fewer queues now. Start again when the broker is back, or give the topic its queues again by updateTopic"
        )
    start = {queue: settle(queue, known.get(queue, bounds.start), bounds, fail=fail) for queue, bounds in held.items()}
    return Span(start, span.end).onward(given)


def is_moving(given: Mapping[str, str]) -> bool:
    """Whether a later start may begin elsewhere with these options, as with `startingOffsets=latest`."""
    starts = {name.lower(): value.strip().lower() for name, value in given.items() if name.lower() in _PLACES}
    return bool(starts) and starts != {"startingoffsets": "earliest"}


def first_span(given: Mapping[str, str], begun: Mapping[str, Any] | None) -> Span:
    """Return the rows that a stream without a batch has to read.

    Args:
        begun: where an earlier start was to begin: this one begins no later, or it would leave messages out.
    Raises: as `span_of`.
    """
    span = span_of(given)
    if begun is None or not is_moving(given):
        return span
    known = from_json({"v": VERSION, "topics": begun})
    everywhere = {name: value for name, value in given.items() if name.lower() not in _PLACES}
    new = span_of({**everywhere, "startingOffsets": "earliest"}).start  # of a queue that was made meanwhile
    start = {queue: min(offset, known.get(queue, new[queue])) for queue, offset in span.start.items()}
    return Span(start, span.end)


def since_until(since: str | None, until: str | None) -> dict[str, str]:
    """Options for messages stored at or after `since` and before `until`; there may be none."""
    found = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": since} if since else {}
    return found | ({"endingTimestamp": until} if until else {})


def span_of(given: Mapping[str, str]) -> Span:
    """Return the rows that a batch with these options of the source would read now.

    Raises: ConfigError, NoRoute, RowsLost, NetworkError, as the source itself.
    """
    options = parse(SourceOptions, given)
    with connect(options) as network:
        plan = Plan(network, options)
        bounds = plan.bounds()
        start, end = plan.starts(bounds, otherwise="earliest"), plan.ends(bounds)
    ends = {queue: max(offset, start[queue]) for queue, offset in end.items()}
    return Span(start, Offsets(ends, end.incarnations))


def newest_ms(given: Mapping[str, str], queues: Collection[MessageQueue]) -> dict[str, int]:
    """Return by broker when it stored its newest message. Raises: as `Plan.newest_ms`."""
    options = parse(SourceOptions, given)
    with connect(options) as network:
        return Plan(network, options).newest_ms(queues)


def ends_before(given: Mapping[str, str], time_ms: int) -> Places:
    """Return where the messages end that were stored before a time. Raises: as `span_of`."""
    kept = {name: value for name, value in given.items() if name.lower() not in _PLACES}
    return span_of({**kept, "endingTimestamp": str(time_ms)}).end


def offsets_by_topic(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Offsets by topic, broker and queue id, as reports and options have them."""
    topics = to_json(offsets)["topics"]
    assert isinstance(topics, dict)
    return topics
