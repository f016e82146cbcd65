"""Writes batches of messages to a table and to its table of errors, each batch once.

`TableProgress` records the position of a table in its commits, and finds it again when the state was lost, or belongs
to another copy. After a restart behind another batch than the last one, the first batches may overlap the table: rows
that the table has are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.compaction import demand_no_wider, holds, widen
from sparrowmq.spark.pipelines.lake.lake import Lake, Place, absent_files, open_lake
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.widening import grows, retypes
from sparrowmq.spark.pipelines.running.checkpoint_files import repair
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.tables.batch_files import stage, stage_remotely
from sparrowmq.spark.pipelines.tables.ddl import ddl_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED, EncodedBodies
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, Found, columns, found_in, merged
from sparrowmq.spark.pipelines.tables.partition_columns import pinned
from sparrowmq.spark.pipelines.tables.progress import (
    Checkpoint,
    Reached,
    Record,
    demand_committed,
    demand_errors,
    difference,
    overlap,
    parsed,
    place_behind,
    placed,
)
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, arrow_types, behind
from sparrowmq.spark.pipelines.tables.table_settings import Settled, keep, state_of
from sparrowmq.spark.source.partition_ranges import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparrowmq.spark.pipelines.lake.staged_files import Staged


Stage = Callable[["Offsets | None"], "Staged"]
ROWS, ERRORS = "rows", "errors"


class TableProgress:
    """The place of one table and its table of errors, by the checkpoint of a stream."""

    def __init__(self, root: Path | Address, settled: Settled, tables: dict[str, Lake]) -> None:
        """`tables`: the table, as ROWS, and its table of errors, as ERRORS."""
        self._root = root
        self._settled = settled
        self._tables = tables
        self._checkpoint: Checkpoint | None = None
        self._had: dict[str, Offsets] = {}
        self._reached = Reached()
        self._fields: dict[str, str] | None = None
        self.log: dict[str, Any] | None = None  # as `Record` has it, for the next commits

    def newest(self) -> Record | None:
        """Return the record of the last commit to one of the tables; None if its history does not say it (any more).

        Raises: ConfigError, a table was restored from another time than the other one.
        """
        last = {name: each.last_batch() for name, each in self._tables.items()}
        rows, errors = (parsed(self._tables[name].record()) for name in (ROWS, ERRORS))
        found = [each for each in (errors, rows) if each is not None]  # errors come last in a batch
        newest = max(found, key=lambda record: record.batch, default=None)
        if newest is None or newest.batch < max(last.values()):
            return None
        if newest.log is not None and newest.other != last[ROWS if newest is errors else ERRORS]:
            raise ConfigError(
                f"{self._root} and {self._root}.errors are of different times, so a message could be missing or twice; "
                "restore both from the same time"
            )
        return newest

    def resume(self, folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
        """Compare the tables with the checkpoint in `folder`, and prepare for writing.

        Returns: The offsets where a new checkpoint is to begin; None if Spark may go on, or the table is a new one.
        Raises: ConfigError, it is not known which messages the table has.
        """
        settled, last = self._settled, {name: each.last_batch() for name, each in self._tables.items()}
        records = {name: placed(each.record()) for name, each in self._tables.items()}
        rows, errors = records[ROWS], records[ERRORS]
        self._reached = Reached.load(folder)
        self._had = {name: from_json(each.end) for name, each in records.items() if each and each.end}
        self._checkpoint = checkpoint = self._seen(folder)
        damage = self._damage(folder, max(last.values()), say)
        if last[ROWS] < 0 <= self._reached.rows:
            raise ConfigError(
                f"{self._root} is empty, but {folder} is behind its batch {self._reached.rows}; restore the table, or "
                f"move {folder.parent} away to begin again"
            )
        if max(self._reached.errors, rows.other if rows else -1) >= 0 and last[ERRORS] < 0:
            demand_errors(self._root)
        if max(last.values()) >= 0 and rows is None and errors is None and not (folder / "metadata").exists():
            raise ConfigError(
                f"{self._root} has rows, but {folder} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {folder.parent} away to begin again"
            )
        why = damage or difference(rows, errors, self._reached, checkpoint)
        if damage and max(last.values()) < 0:
            checkpoint.put_aside()
            say(f"{damage}; the table has no rows yet, and is begun again")
            why = None
        if why is None:
            return settled.resumed if checkpoint.last() < settled.first else None
        if isinstance(self._root, Path):
            for table in self._tables.values():
                demand_committed(table, settled.writer)
        place = place_behind(rows, errors)
        if place is None:
            raise ConfigError(f"{self._root}: {why}, and not all of it is there; restore the table or its state")
        known = (*last.values(), self._reached.rows, self._reached.errors, checkpoint.last())
        checkpoint.put_aside()
        settled.first, settled.resumed = max(known) + 1, place
        reached = {name: last[name] if each is None else each.batch for name, each in records.items()}
        self._checkpoint, self._reached = self._seen(folder), Reached(reached[ROWS], reached[ERRORS])
        say(f"{self._root}: {why}; goes on behind what the table has, with a new checkpoint")
        return place

    def _damage(self, folder: Path, last: int, say: Callable[[str], None]) -> str | None:
        """Repair the checkpoint; returns the damage in words if the checkpoint has no place any more."""
        first = self._settled.first
        try:
            repair(folder, lambda batch: batch + first > last, say)
        except BadStore as error:
            say(str(error).partition(";")[0])
            return "its state is damaged"
        return None

    def _seen(self, folder: Path) -> Checkpoint:
        settled = self._settled
        begin = settled.resumed or (settled.begin and {"v": 1, "topics": settled.begin})
        return Checkpoint(folder, settled.first, begin)

    def add(self, table: str, batch: int, stage: Stage, *, is_half: bool = False) -> int:
        """Add a batch to a table, unless that has it; returns its rows.

        Args:
            stage: writes the files of a batch, without rows before some offsets.
            is_half: the batch has errors, too, which are added next.
        """
        lake = self._tables[table]
        if batch <= lake.last_batch():
            return 0
        self._demand_kept(table)
        staged = stage(self._overlap(table, batch))
        if staged.files:
            lake.commit(batch, replace(staged, record=self._record(table, batch, is_half=is_half)))
            self._note(table, batch)
        return staged.rows

    def _demand_kept(self, table: str) -> None:
        """Raises: ConfigError, another program took a table back meanwhile, as `RESTORE` of Delta does."""
        record = placed(self._tables[table].record())
        known = self._reached.rows if table == ROWS else self._reached.errors
        if record is not None and record.batch < known:
            raise ConfigError(
                f"another program took {self._root} back from batch {known} to batch {record.batch}; start again: "
                "then what it lacks is read again"
            )

    def columns(self, batch: int) -> dict[str, str] | None:
        """Return the columns for a batch of which one table has messages already; None for other batches.

        They are those that the messages were read with. With wider ones, a message would be in both tables, or in none.
        """
        self._fields = None
        for table, lake in self._tables.items():
            if batch <= lake.last_batch() or self._overlap(table, batch) is not None:
                record = parsed(lake.record())
                self._fields = dict(record.settled["fields"]) if record is not None else None
                break
        return self._fields

    def _overlap(self, table: str, batch: int) -> Offsets | None:
        """Return the offsets behind which a table lacks rows, if a batch begins before them."""
        had = self._had.get(table)
        if had is None or self._checkpoint is None:
            return None
        start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        if start is None or end is None:
            return None
        found = overlap(had, from_json(start), from_json(end))
        if found is None:
            del self._had[table]
        return found

    def _record(self, table: str, batch: int, *, is_half: bool) -> str:
        """The words of a commit about its batch."""
        start = end = None
        if self._checkpoint is not None:
            start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        other = self._tables[ROWS if table == ERRORS else ERRORS].last_batch()
        settled = self._settled.said() | ({} if self._fields is None else {"fields": self._fields})
        return Record(batch, start, end, is_half, other, settled, self.log).text()

    def _note(self, table: str, batch: int) -> None:
        """Note a commit, so that a table which is restored to before it is noticed."""
        if self._checkpoint is not None:
            rows, errors = self._reached.rows, self._reached.errors
            self._reached = Reached(batch, errors) if table == ROWS else Reached(rows, batch)
            self._reached.save(self._checkpoint.folder)


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
