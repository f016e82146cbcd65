"""Merges the small files of tables and takes out old days, a table at a time, while the other tables go on.

A table that is merged gets no batch meanwhile. Its next batch follows when it is done, with all that came. A failed
merge is tried again with the next one that is due; the table goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from sparrowmq.core.safe_text import counted
from sparrowmq.spark.failures import failure
from sparrowmq.spark.lakehouse.batch_parts import error_text
from sparrowmq.spark.lakehouse.kept_table import KeptTable
from sparrowmq.spark.pipelines.compact import today
from sparrowmq.spark.pipelines.running.report import Say


@dataclass
class Upkeep:
    """The merges of a lake's tables. Its methods are called by the thread of the rounds."""

    say: Say
    monotonic: Callable[[], float]
    _due_s: dict[str, float] = field(default_factory=dict)
    _merged_at: dict[str, int] = field(default_factory=dict)  # the number of batches at its last merge
    _at_work: tuple[KeptTable, Future[tuple[int, int, int]]] | None = None

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "upkeep")

    def look(self, tables: Iterable[KeptTable]) -> None:
        """End a merge that is done, and begin the next one that is due."""
        if self._at_work is not None and self._at_work[1].done():
            self._end(*self._at_work)
            self._at_work = None
        for table in tables:
            if self._is_due(table) and self._at_work is None:
                table.held_for = "merging"
                self._at_work = table, self._thread.submit(table.merge, today())

    def close(self) -> None:
        """Wait for the merge at hand."""
        self._thread.shutdown()
        if self._at_work is not None:
            self._end(*self._at_work)
            self._at_work = None

    def _is_due(self, table: KeptTable) -> bool:
        """Whether a table has new batches, and its time has come; the first time comes one span after the start."""
        span_s = table.settings.compact_every_s
        if not span_s or not table.is_begun:
            return False
        due_s = self._due_s.setdefault(table.topic, self.monotonic() + span_s)
        has_new = table.figures.batches > self._merged_at.get(table.topic, 0)
        return has_new and not table.held_for and self.monotonic() >= due_s

    def _end(self, table: KeptTable, merge: Future[tuple[int, int, int]]) -> None:
        table.held_for = ""
        self._due_s[table.topic] = self.monotonic() + table.settings.compact_every_s
        self._merged_at[table.topic] = table.figures.batches
        error = merge.exception()
        if error is not None:
            table.rest()
            why = failure(error_text(error), f"{table.root} or {table.state}")
            self.say(f"{table.topic}: its files were not merged: {why.why or why.kind}; tried again when due next")
            return
        before, after, days = merge.result()
        gone = f", {days:,} old days taken out" if days else ""
        self.say(f"{table.topic}: {counted(before, 'file')} merged to {after:,}{gone}")
