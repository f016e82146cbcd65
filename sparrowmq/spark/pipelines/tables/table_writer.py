"""Writes batches of messages to a table and to its table of errors, each batch once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_type

from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.absent_files import absent_files
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake, Place, open_lake
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.rewriting import demand_no_wider, holds, widen
from sparrowmq.spark.pipelines.lake.widening import grows, retypes
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.tables.batch_files import stage
from sparrowmq.spark.pipelines.tables.begun_table import Settled, keep, state_of
from sparrowmq.spark.pipelines.tables.body_reader import BODY
from sparrowmq.spark.pipelines.tables.ddl import ddl_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED, EncodedBodies
from sparrowmq.spark.pipelines.tables.json_columns import columns
from sparrowmq.spark.pipelines.tables.json_kinds import Found, found_in, merged
from sparrowmq.spark.pipelines.tables.partition_types import pinned
from sparrowmq.spark.pipelines.tables.progress import Record
from sparrowmq.spark.pipelines.tables.remote_files import stage_remotely
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, arrow_types, behind
from sparrowmq.spark.pipelines.tables.table_progress import ERRORS, ROWS, TableProgress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged
    from sparrowmq.spark.source.partition_ranges import Offsets


class TableWriter:
    """A table and its table of errors; `write` is the step of a runner."""

    def __init__(self, root: Path | Address, settled: Settled, report: Report, lane: str = "") -> None:
        """`lane` separates writers that each number their own batches."""
        self.root = root
        self.settled = settled
        self._state = state_of(root)
        self.report = report
        self._writer, self._lane = settled.writer + lane, lane
        self._encoded = EncodedBodies(settled, self._state / f"schemas{lane}.json") if settled.mode in ENCODED else None
        place = Place(root, self._state, self._writer, lane, partitioning=settled.partitioning)
        self._places = {ROWS: place, ERRORS: place.of_errors}
        self._lakes = {name: open_lake(settled.format, place) for name, place in self._places.items()}
        self._rows, self._errors = self._lakes[ROWS], self._lakes[ERRORS]
        settled.fields = regained(settled, self._rows)
        self._progress = TableProgress(root, settled, self._lakes)

    @property
    def _first(self) -> int:
        return 0 if self._lane else self.settled.first

    @property
    def last_batch(self) -> int:
        """The number of the last batch of which one of the tables has rows; -1 before the first."""
        return max(self._rows.last_batch(), self._errors.last_batch())

    def resume(self, checkpoint: Path, say: Say) -> dict[str, Any] | None:
        """Find out where the stream is to begin. Returns: as `TableProgress.resume`.

        Raises: ConfigError, as there, or a new schema has a type that does not hold the values of a column.
        """
        for name in _not_held(self._rows, self.settled.fields):
            raise ConfigError(
                f"{self.root} has integers in {name} that {self.settled.fields[name]} does not hold exactly; "
                "make the column decimal(38,0) or string"
            )
        for name, lake in self._lakes.items():
            if warning := absent_files(self._places[name].path, lake):
                say(warning)
        return self._progress.resume(checkpoint, say)

    @property
    def newest(self) -> Record | None:
        """The record of the last commit of this writer. Raises: ConfigError, as `TableProgress.newest`."""
        return self._progress.newest()

    def note_log(self, noted: dict[str, Any]) -> None:
        """Let the next commits say which parts of a stored log the table has."""
        self._progress.log = noted

    def may_plan_again(self, batch: int) -> bool:
        """Whether neither table has rows of a batch of the stream."""
        return batch + self._first > self.last_batch

    def write(self, messages: DataFrame, batch: int) -> str:
        """Add a batch to the tables, unless they have it; returns what was added, in words."""
        report = self.report
        before = report.written, report.errors
        batch += self._first
        if self.settled.mode in ("json", "schema", *ENCODED):
            self._write_objects(messages, batch)
        else:
            self._write_raw(messages, batch)
        return f"{counted(report.written - before[0], 'row')}, {counted(report.errors - before[1], 'error')}"

    def _write_raw(self, messages: DataFrame, batch: int) -> None:
        """Messages are read once, and counted on their way."""
        if batch > self._rows.last_batch():
            count = Observation()
            rows, _ = self.settled.shape().split(messages.observe(count, *_counts()))
            self.report.written += self._add(ROWS, rows, batch)
            self.report.add_batch(batch - self._first, count.get["rows"], count.get["bad"])

    def _write_objects(self, messages: DataFrame, batch: int) -> None:
        """Messages are read once, and their bodies twice: for their fields, and for rows and errors."""
        messages.persist()
        try:
            shape = self._shape(messages, batch)
            rows = shape.rows(messages).persist()
            try:
                self._write_rows(shape, rows, batch)
            finally:
                rows.unpersist()
        finally:
            messages.unpersist()

    def _shape(self, messages: DataFrame, batch: int) -> Objects:
        """The columns, with those that these messages add; they are kept before a row has them."""
        if self._encoded is not None:
            shape = self._encoded.shape(messages, batch)
            self._settle(shape.fields)
            return shape
        if (fields := self._progress.columns(batch)) is not None:
            return self.settled.objects(fields)
        fields = grown(self.settled, messages, self._rows)
        if isinstance(self.root, Address):  # files there are not written again: other types are errors
            fields = {name: self.settled.fields.get(name, kind) for name, kind in fields.items()}
        self._settle(fields)
        return self.settled.objects()

    def _settle(self, fields: dict[str, str]) -> None:
        """Keep the columns first: where that fails, the next attempt has the earlier ones."""
        if fields != self.settled.fields:
            keep(self._state, replace(self.settled, fields=fields))
            self.settled.fields = fields

    def _write_rows(self, shape: Objects, rows: DataFrame, batch: int) -> None:
        count, bad, errors = rows.agg(*_counts(), f.count("reason").alias("errors")).collect()[0]
        self.report.add_batch(batch - self._first, count, bad)
        if errors < count:
            self.report.written += self._add(ROWS, shape.good(rows), batch, is_half=errors > 0)
        if errors:
            self.report.errors += self._add(ERRORS, shape.bad(rows), batch)

    def _add(self, table: str, rows: DataFrame, batch: int, *, is_half: bool = False) -> int:
        def staged(had: Offsets | None) -> Staged:
            return self._staged(table, rows if had is None else behind(had, rows), batch)

        return self._progress.add(table, batch, staged, is_half=is_half)

    def _staged(self, table: str, rows: DataFrame, batch: int) -> Staged:
        """Write the files of a batch, and see to it that the table can take them."""
        lake, place, prefix = self._lakes[table], self._places[table], f"{self._writer}-{batch:09}"
        if isinstance(place.path, Address):
            found = stage_remotely(rows, lake, place, self.settled.format, prefix)
            if found.files:
                demand_no_wider(lake, found.schema, place.path)
            return found
        found = stage(rows, self._state / f"staged{self._lane}" / table, prefix, lake.layout)
        if found.files:
            widen(lake, found.schema, self._state / f"rewritten{self._lane}")
        return found


def _counts() -> tuple[Column, Column]:
    """Messages, and those of them whose body was damaged (badRecords=null); a body that is empty is not null."""
    return f.count(f.lit(1)).alias("rows"), f.count_if(f.col("body").isNull()).alias("bad")


def grown(settled: Settled, messages: DataFrame, table: Lake | None = None) -> dict[str, str]:
    """Return the columns with those that these messages add, and wider where they need it.

    Args:
        table: the table, if there is one. Names of `settled` that clash with one of its columns are dropped.
    """
    if settled.mode != "json":
        return settled.fields
    parts = messages.select(BODY).mapInArrow(partial(_summaries, settled.depth), "found binary").collect()
    found = merged(msgspec.json.decode(part.found, type=Found) for part in parts)
    return fields_for(found, settled, table)


def fields_for(found: Found, settled: Settled, table: Lake | None) -> dict[str, str]:
    """Return the columns of a table, with what bodies add to them; a bigint that no double holds becomes none."""
    fields, partitioning = settled.fields, settled.partitioning
    present = table.columns() if table is not None else {}
    known = dict(sorted(fields.items(), key=lambda each: each[0] not in present))
    chosen_with = partial(columns, found, known, settled.own, type_changes=settled.type_changes)
    chosen = pinned(partitioning, known, chosen_with())
    if table is None or isinstance(table, RemoteLake):
        return chosen
    long = _not_held(table, chosen)
    return pinned(partitioning, known, chosen_with(long)) if long else chosen


def regained(settled: Settled, table: Lake) -> dict[str, str]:
    """Return the columns, none of them narrower than in the table: the settings may be older than the table."""
    found, had = dict(settled.fields), arrow_types(settled.fields)
    for name, kind in table.columns().items() if settled.mode in ("json", "schema", *ENCODED) else ():
        if name in had:
            is_known = not (retypes(had[name], kind) or grows(had[name], kind))
        else:
            is_known = name in settled.own or settled.mode == "schema"
        if not is_known:
            found[name] = ddl_of(from_arrow_type(kind))
    return found


def _not_held(table: Lake, fields: Mapping[str, str]) -> list[str]:
    """The columns of a table with values that the type in `fields` does not hold exactly."""
    present = table.columns()
    return [
        name
        for name, kind in arrow_types(fields).items()
        if name in present and retypes(present[name], kind) and not holds(table, name, kind)
    ]


def _summaries(depth: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row with the fields in the bodies of a partition."""
    found = found_in((body for batch in batches for body in batch.column(BODY).to_pylist()), depth)
    yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found)]})
