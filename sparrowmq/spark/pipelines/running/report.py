"""The report of a pipeline: one line of JSON at its end, and the same figures and the lag for Prometheus meanwhile."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.protocol.subscription import ALL
from sparrowmq.spark.lag import Lag, Losses, count_missing, declare_lags, declare_losses, offset_in, query_lag
from sparrowmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrowmq.metrics.figures import Figures, Rows

Say = Callable[[str], None]


@dataclass
class Report:
    """The work that a pipeline did.

    `read` counts messages; None if they are not counted. `written` and `errors` are rows of the table, and of the table
    of errors. `offsets` are by topic, broker and queue id. `lost` are offsets without a message, as retention had
    removed it, and `bad` messages whose body was damaged. Both are None if they cannot be counted, as with a filter;
    `lost` also after a topic was made again.

    The line has these only if they are set: `stopped`, before all was done; `error`; `restarts` of a stream after
    failures; `away`, brokers whose messages a run with an end lacks.
    """

    read: int | None = 0
    written: int = 0
    errors: int = 0
    batches: int = 0
    seconds: float = 0.0
    offsets: Mapping[str, Any] = field(default_factory=dict)
    lost: int | None = None
    bad: int | None = None
    lag: Lag | None = field(default=None, repr=False)
    # By batch, until it is compared with its span.
    _read: dict[int, int] = field(default_factory=dict, repr=False)
    # Its number, messages, damaged ones.
    _last_batch: tuple[int, int, int] = field(default=(-1, 0, 0), repr=False)
    _drops_damaged: bool = field(default=False, repr=False)
    restarts: int = field(default=0, repr=False)
    stopped: bool = field(default=False, repr=False)
    error: str | None = field(default=None, repr=False)
    away: Sequence[str] = field(default=(), repr=False)
    _begin_s: float = field(default_factory=time.monotonic, repr=False, compare=False)

    def __post_init__(self) -> None:
        _latest.set(self)

    def add_read(self, rows: int) -> int:
        """Count messages; returns how many there are by now."""
        self.read = (self.read or 0) + rows
        return self.read

    def count_losses(self, options: SourceOptions) -> None:
        """From now on, unless a filter passes over offsets."""
        if options.expression == ALL and options.sql is None:
            self.lost = self.bad = 0
            self._drops_damaged = options.bad_records == "dlq" and options.fail_on_data_loss

    def add_batch(self, batch: int, rows: int, bad: int = 0) -> None:
        """Count the messages of a batch, of which `bad` are damaged; a batch that comes again is counted once."""
        if self._last_batch[0] == batch:
            rows_before, bad_before = self._last_batch[1:]
        else:
            rows_before = bad_before = 0
        self._last_batch = batch, rows, bad
        self.add_read(rows - rows_before)
        self._read[batch] = rows
        if self.bad is not None:
            self.bad += bad - bad_before

    def note_progress(self, query: StreamingQuery) -> None:
        """Note the batches that have ended since the last look."""
        for progress in query.recentProgress:
            source = progress["sources"][0]
            end = offset_in(source["endOffset"])
            self.offsets = end["topics"] if end else {}
            self.lag = query_lag([(source["endOffset"], source["latestOffset"])]) or self.lag
            rows = self._read.pop(progress["batchId"], None)
            if rows is not None and self.lost is not None and self.bad is not None:
                lost = count_missing(source["startOffset"], source["endOffset"], rows)
                if self._drops_damaged:
                    self.bad += lost or 0
                else:
                    self.lost = None if lost is None else self.lost + lost

    def declare_metrics(self, figures: Figures, name: str) -> None:
        for entry, help in _COUNTER_HELP.items():
            figures.counters(f"sparrowmq_pipeline_{entry}_total", help, ("query",), partial(self._row, name, entry))
        declare_lags(figures, lambda: {} if self.lag is None else {name: self.lag})
        declare_losses(figures, lambda: {} if self.lost is None else {name: Losses(self.lost, self.bad or 0)})

    def _row(self, name: str, entry: str) -> Rows:
        return [((name,), float(getattr(self, entry) or 0))]

    def line(self) -> str:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.repr}
        values["seconds"] = round(self.seconds, 3)
        if self.restarts:
            values["restarts"] = self.restarts
        if self.stopped:
            values["stopped"] = True
        if self.away:
            values["away"] = list(self.away)
        if self.error is not None:
            values["error"] = self.error
        return json.dumps(values, separators=(",", ":"))


_latest: Final = ContextVar[Report | None]("sparrowmq_report", default=None)


def latest_since(begin_s: float) -> Report:
    """The report that was begun last, since `begin_s` by time.monotonic; else one of nothing."""
    report = _latest.get()
    return report if report is not None and report._begin_s >= begin_s else Report()


_COUNTER_HELP: Final = {
    "read": "messages that were read",
    "written": "rows or messages that were written",
    "errors": "messages that became no row",
    "batches": "batches that are done",
    "restarts": "starts of the stream after a failure",
}


def to_stderr(line: str) -> None:
    """Write a line about progress; the default of pipelines."""
    sys.stderr.write(f"{line}\n")
