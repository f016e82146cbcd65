"""How far streams are behind their topics, by the names that Kafka's source has for it.

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags["orders"]         # Lag(min=0, max=120, avg=30.0, total=120)

Kafka's source puts minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest into the progress of a
query (`sources[].metrics`). Spark takes no such figures from a source in Python. But the progress has where the batch
ended and how far the source could have gone, from which they follow; Spark 4.1 does not have the latter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparrowmq.spark.ranges import VERSION, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


class Lag(NamedTuple):
    """Offsets behind the latest, of all queues of a query: the least, the most, the mean, and all together.

    A message that a filter passes over counts, too.
    """

    min: int
    max: int
    avg: float
    total: int

    def metrics(self) -> dict[str, str]:
        """As Kafka's source names and writes them."""
        return {
            "minOffsetsBehindLatest": str(self.min),
            "maxOffsetsBehindLatest": str(self.max),
            "avgOffsetsBehindLatest": str(self.avg),
        }


Tell = Callable[[str, Lag], object]


class LagListener(StreamingQueryListener):
    """Notes how far each running query is behind.

    Args:
        tell: gets the query's name (its id, if it has none) and its lag after each batch; in Spark's own thread.
    Attributes:
        lags: the last ones, by name; those of queries that ended are dropped.
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self.lags: dict[str, Lag] = {}
        self._tell = tell
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark's."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        name = self._names[str(progress.id)] = progress.name or str(progress.id)
        lag = lag_of([(source.endOffset, source.latestOffset) for source in progress.sources])
        if lag is not None:
            self.lags[name] = lag
            if self._tell is not None:
                self._tell(name, lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark's; the lag is the last batch's."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.lags.pop(self._names.pop(str(event.id), ""), None)


def lag_of(sources: list[tuple[str | None, str | None]]) -> Lag | None:
    """The lag by where the sources of a query ended and how far they could go, as their progress says it.

    None, if none of them is ours, or nothing is known.
    """
    behind: list[int] = []
    for ended, latest in sources:
        if _is_ours(ended) and _is_ours(latest):
            reached = from_json(json.loads(ended or ""))
            ends = from_json(json.loads(latest or ""))
            behind += [max(0, end - reached.get(queue, end)) for queue, end in ends.items()]
    if not behind:
        return None
    return Lag(min(behind), max(behind), sum(behind) / len(behind), sum(behind))


def _is_ours(offset: str | None) -> bool:
    try:
        found = json.loads(offset or "null")
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("v") == VERSION and isinstance(found.get("topics"), dict)
