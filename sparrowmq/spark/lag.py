"""The lag of streams, by the names that Kafka's source has for it.

    listener = LagListener()
    spark.streams.addListener(listener)
    ...
    listener.lags["orders"]         # Lag(min=0, max=120, avg=30.0, total=120)
    listener.losses["orders"]       # Losses(lost=0, bad=0)

    with exposed("127.0.0.1:5558", listener.tell_metrics): ...      # the same for Prometheus

Spark takes no such figures from a source in Python. But the progress of a query has where the batch ended and how far
the source could have gone, from which they follow; Spark 4.1 does not have the latter.

Offsets are dense. So a batch that has fewer rows than offsets has lost some, unless a filter passed over them: to
retention, or, with badRecords=dlq, because they were damaged. Those whose body is null (badRecords=null) are counted
where a query has them counted: `bad_counted(rows)`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryListener

from sparrowmq.spark.source.partition_ranges import VERSION, between, from_json, recreated_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from sparrowmq.metrics.figures import Figures, Rows


class Lag(NamedTuple):
    """Offsets behind the latest, of all queues of a query; messages that a filter passes over count, too."""

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


class Losses(NamedTuple):
    """Rows of a query that did not come, and rows whose body was damaged, since it was started."""

    lost: int = 0
    bad: int = 0


_OBSERVATION: Final = "rocketmq"

OnLag = Callable[[str, Lag], object]


class LagListener(StreamingQueryListener):
    """Notes how far each running query is behind.

    Args:
        tell: gets the query's name (its id, if it has none) and its lag after each batch; in Spark's own thread.
        filtered: the queries have filters, so that what did not come is no loss.
    Attributes:
        lags: the last ones, by name; those of queries that ended are dropped.
        losses: by name. A batch that is repeated after a failure counts again.
    """

    def __init__(self, tell: OnLag | None = None, *, filtered: bool = False) -> None:
        self.lags: dict[str, Lag] = {}
        self.losses: dict[str, Losses] = {}
        self._tell = tell
        self._filtered = filtered
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark's."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        name = self._names[str(progress.id)] = progress.name or str(progress.id)
        self._count_losses(name, event)
        lag = query_lag([(source.endOffset, source.latestOffset) for source in progress.sources])
        if lag is not None:
            self.lags[name] = lag
            if self._tell is not None:
                self._tell(name, lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark's; the lag is the last batch's."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        name = self._names.pop(str(event.id), "")
        self.lags.pop(name, None)
        self.losses.pop(name, None)

    def tell_metrics(self, figures: Figures) -> None:
        """Declare all of it for Prometheus, by Kafka's names."""
        declare_lags(figures, self.lags.copy)
        declare_losses(figures, self.losses.copy)

    def _count_losses(self, name: str, event: QueryProgressEvent) -> None:
        lost = 0
        if not self._filtered:
            sources = event.progress.sources
            lost = sum(
                count_missing(source.startOffset, source.endOffset, source.numInputRows) or 0 for source in sources
            )
        observed = event.progress.observedMetrics.get(_OBSERVATION)
        before = self.losses.get(name, Losses())
        bad = 0 if observed is None else observed["bad"]
        self.losses[name] = Losses(before.lost + lost, before.bad + bad)


def bad_counted(rows: DataFrame) -> DataFrame:
    """The same rows of the source, of which a listener learns how many have a body that was damaged and is null."""
    return rows.observe(_OBSERVATION, f.count_if(f.col("body").isNull()).alias("bad"))


def declare_lags(figures: Figures, lags: Callable[[], Mapping[str, Lag]]) -> None:
    def declare(name: str, meaning: str) -> None:
        def read() -> Rows:
            return [((query,), float(lag.metrics()[name])) for query, lag in sorted(lags().items())]

        about = f"offsets that a query is behind its topics, of its queues {meaning}"
        figures.gauges(name, about, ("query",), read)

    declare("minOffsetsBehindLatest", "the least")
    declare("maxOffsetsBehindLatest", "the most")
    declare("avgOffsetsBehindLatest", "the mean")


def declare_losses(figures: Figures, losses: Callable[[], Mapping[str, Losses]]) -> None:
    """The rows that queries did not get."""
    figures.counters(
        "sparrowmq_spark_rows_lost_total",
        "offsets without a row",
        ("query",),
        lambda: [((query,), float(query_losses.lost)) for query, query_losses in sorted(losses().items())],
    )
    figures.counters(
        "sparrowmq_spark_rows_bad_total",
        "rows whose body was damaged and is null",
        ("query",),
        lambda: [((query,), float(query_losses.bad)) for query, query_losses in sorted(losses().items())],
    )


def count_missing(start_text: str | None, end_text: str | None, rows: int) -> int | None:
    """Count the offsets of a batch without a row; 0 where the source is not ours, None if a topic was made again."""
    start_json, end_json = offset_in(start_text), offset_in(end_text)
    if start_json is None or end_json is None:
        return 0
    start_offsets, end_offsets = from_json(start_json), from_json(end_json)
    return (
        None
        if recreated_topics(start_offsets, end_offsets)
        else max(0, sum(map(len, between(start_offsets, end_offsets))) - rows)
    )


def query_lag(sources: list[tuple[str | None, str | None]]) -> Lag | None:
    """The lag by where the sources of a query ended and how far they could go; None if nothing is known."""
    behind: list[int] = []
    for end_text, latest_text in sources:
        end, newest = offset_in(end_text), offset_in(latest_text)
        if end is not None and newest is not None:
            reached = from_json(end)
            behind += [max(0, latest - reached.get(queue, latest)) for queue, latest in from_json(newest).items()]
    if not behind:
        return None
    return Lag(min(behind), max(behind), sum(behind) / len(behind), sum(behind))


def offset_in(text: str | None) -> dict[str, Any] | None:
    """Parse the offset in the progress of a query, if it is one of ours. Spark 4.1 writes it as Python does."""
    try:
        parsed = json.loads(text or "null")
    except ValueError:
        try:
            parsed = ast.literal_eval(text or "")
        except (ValueError, SyntaxError):
            return None
    is_ours = isinstance(parsed, dict) and parsed.get("v") == VERSION and isinstance(parsed.get("topics"), dict)
    return parsed if is_ours else None
