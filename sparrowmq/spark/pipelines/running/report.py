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
from sparrowmq.spark.lag import Lag, Losses, declare_lags, declare_losses, lag_of, missing, offset_in
from sparrowmq.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrowmq.metrics.figures import Figures, Rows

Say = Callable[[str], None]


@dataclass
class Report:
    """The work that a pipeline did.

    Attributes:
        read: messages; None if they are not counted. written, errors: rows of the table, and of the table of errors.
        offsets: where it is in each queue: topic, broker, queue id, next offset.
        lost: offsets that were passed without a message, as retention had removed them. bad: messages whose body was
            damaged. Both are None if they cannot be counted: a filter passes over offsets, too. `lost` is also None
            after a topic was made again.
        lag: how far a stream was behind at its last batch.
        stopped: whether it was stopped before it had done all. error: why it failed. restarts: how often a stream was
            started again after a failure. away: brokers whose messages a run with an end lacks, as they did not answer.
            The line has each only if so.
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
    _leaves_bad_ones_out: bool = field(default=False, repr=False)
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
            self._leaves_bad_ones_out = options.bad_records == "dlq" and options.fail_on_data_loss

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
            self.lag = lag_of([(source["endOffset"], source["latestOffset"])]) or self.lag
            rows = self._read.pop(progress["batchId"], None)
            if rows is not None and self.lost is not None and self.bad is not None:
                lost = missing(source["startOffset"], source["endOffset"], rows)
                if self._leaves_bad_ones_out:
                    self.bad += lost or 0
                else:
                    self.lost = None if lost is None else self.lost + lost

    def declare_metrics(self, figures: Figures, name: str) -> None:
        for entry, help in _MEANINGS.items():
            figures.counters(f"sparrowmq_pipeline_{entry}_total", help, ("query",), partial(self._row, name, entry))
        declare_lags(figures, lambda: {} if self.lag is None else {name: self.lag})
        declare_losses(figures, lambda: {} if self.lost is None else {name: Losses(self.lost, self.bad or 0)})

    def _row(self, name: str, entry: str) -> Rows:
        return [((name,), float(getattr(self, entry) or 0))]

    def line(self) -> str:
        shown = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.repr}
        shown["seconds"] = round(self.seconds, 3)
        if self.restarts:
            shown["restarts"] = self.restarts
        if self.stopped:
            shown["stopped"] = True
        if self.away:
            shown["away"] = list(self.away)
        if self.error is not None:
            shown["error"] = self.error
        return json.dumps(shown, separators=(",", ":"))


_latest: Final = ContextVar[Report | None]("sparrowmq_report", default=None)


def latest_since(begin_s: float) -> Report:
    """The report that was begun last, of a pipeline that did not come to its end: if none was, one of nothing.

    Args:
        begin_s: by time.monotonic; what was begun before is another's.
    """
    report = _latest.get()
    return report if report is not None and report._begin_s >= begin_s else Report()


_MEANINGS: Final = {
    "read": "messages that were read",
    "written": "rows or messages that were written",
    "errors": "messages that became no row",
    "batches": "batches that are done",
    "restarts": "starts of the stream after a failure",
}


def to_stderr(line: str) -> None:
    """Write a line about progress; the default of pipelines."""
    sys.stderr.write(f"{line}\n")
