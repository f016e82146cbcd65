"""Writes batches of messages to a table and to its table of errors, each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.lake import Lake, Place, open_lake
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.tables.batch_files import stage
from sparrowmq.spark.pipelines.tables.begun_table import Settled, keep, state_of
from sparrowmq.spark.pipelines.tables.json_fields import fields_of
from sparrowmq.spark.pipelines.tables.row_shapes import Raw, Whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class TableWriter:
    """A table and its table of errors; `write` is the step of a runner."""

    def __init__(self, root: Path, settled: Settled, report: Report, lane: str = "") -> None:
        """`lane` separates writers that each number their own batches."""
        self.root = root
        self.settled = settled
        self._state = state_of(root)
        self.report = report
        errors = root.with_name(f"{root.name}.errors")
        self._writer, self._lane = settled.writer + lane, lane
        self._rows = open_lake(settled.format, Place(root, self._state, self._writer, lane))
        self._errors = open_lake(settled.format, Place(errors, self._state / "errors", self._writer, lane))

    @property
    def last_batch(self) -> int:
        """The number of the last batch of which one of the tables has rows; -1 before the first."""
        return max(self._rows.last_batch(), self._errors.last_batch())

    def check(self, checkpoint: Path) -> None:
        """Refuse to go on without the checkpoint of what the table has. Raises: ConfigError."""
        if self._rows.last_batch() >= 0 and not (checkpoint / "metadata").exists():
            raise ConfigError(
                f"{self.root} has rows, but {checkpoint} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {self._state} away to begin again"
            )

    def write(self, messages: DataFrame, batch: int) -> str:
        """Add a batch to the tables, unless they have it; returns what was added, in words."""
        report = self.report
        before = report.written, report.errors
        if isinstance(self.settled.shape(), Raw | Whole):
            self._write_raw(messages, batch)
        else:
            self._write_objects(messages.persist(), batch)
        return f"{report.written - before[0]:,} rows, {report.errors - before[1]:,} errors"

    def _write_raw(self, messages: DataFrame, batch: int) -> None:
        """Messages are read once, and counted on their way."""
        if batch > self._rows.last_batch():
            count = Observation()
            rows, _ = self.settled.shape().split(messages.observe(count, *_counts()))
            self.report.written += self._add(self._rows, rows, batch, "rows")
            self.report.add_batch(batch, count.get["rows"], count.get["bad"])

    def _write_objects(self, messages: DataFrame, batch: int) -> None:
        """Messages are looked at three times: for their fields, for rows and for errors."""
        try:
            count, bad = messages.agg(*_counts()).collect()[0]
            self.report.add_batch(batch, count, bad)
            if not count:
                return
            fields = grown(self.settled, messages)
            if fields != self.settled.fields:
                self.settled.fields = fields
                keep(self._state, self.settled)
            good, bad = self.settled.shape().split(messages)
            self.report.written += self._add(self._rows, good, batch, "rows")
            if bad is not None:
                self.report.errors += self._add(self._errors, bad, batch, "errors")
        finally:
            messages.unpersist()

    def _add(self, lake: Lake, rows: DataFrame, batch: int, folder: str) -> int:
        if batch <= lake.last_batch():
            return 0
        prefix = f"{self._writer}-{batch:09}"
        staged = stage(rows, self._state / f"staged{self._lane}" / folder, prefix, keeps_day=lake.keeps_day)
        if staged.files:
            lake.commit(batch, staged)
        return staged.rows


def _counts() -> tuple[Column, Column]:
    """Messages, and those of them whose body was damaged (badRecords=null); a body that is empty is not null."""
    return f.count(f.lit(1)).alias("rows"), f.count_if(f.col("body").isNull()).alias("bad")


def grown(settled: Settled, messages: DataFrame) -> dict[str, str]:
    """The fields with those that are new in these messages; a field keeps its type."""
    return settled.fields if settled.mode != "json" else fields_of(messages) | settled.fields
