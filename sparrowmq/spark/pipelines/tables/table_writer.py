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
from sparrowmq.spark.pipelines.lake.compaction import can_widen, check_no_wider, widen_columns
from sparrowmq.spark.pipelines.lake.lake import Lake, TableLocation, missing_files_warning, open_lake
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.widening import grows, retypes
from sparrowmq.spark.pipelines.running.checkpoint_files import repair
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.tables.batch_files import stage_remote_rows, stage_rows
from sparrowmq.spark.pipelines.tables.ddl import ddl_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED_MODES, EncodedBodies
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, BodyFields, fields_in, json_columns, merge_body_fields
from sparrowmq.spark.pipelines.tables.partition_columns import pin_types
from sparrowmq.spark.pipelines.tables.progress import (
    Checkpoint,
    LastBatches,
    Record,
    check_committed,
    check_errors_exist,
    known_offsets_in,
    parse_record,
    parse_stream_record,
    resume_offsets,
    state_difference,
)
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, arrow_types, rows_after
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, save_settings, state_folder
from sparrowmq.spark.source.partition_ranges import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparrowmq.spark.pipelines.lake.staged_files import Staged


Stage = Callable[["Offsets | None"], "Staged"]
ROWS, ERRORS = "rows", "errors"


class TableProgress:
    """The position of a table and its table of errors, compared with the checkpoint of a stream."""

    def __init__(self, root: Path | Address, settings: TableSettings, tables: dict[str, Lake]) -> None:
        """`tables`: the table, as ROWS, and its table of errors, as ERRORS."""
        self._root = root
        self._settings = settings
        self._tables = tables
        self._checkpoint: Checkpoint | None = None
        self._had: dict[str, Offsets] = {}
        self._last_batches = LastBatches()
        self._fields: dict[str, str] | None = None
        self.log: dict[str, Any] | None = None  # as `Record` has it, for the next commits

    def newest_record(self) -> Record | None:
        """Return the record of the last commit to one of the tables; None if its history does not say it (any more).

        Raises: ConfigError, a table was restored from another time than the other one.
        """
        last = {name: each.last_batch() for name, each in self._tables.items()}
        rows, errors = (parse_record(self._tables[name].record()) for name in (ROWS, ERRORS))
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
        settled, last = self._settings, {name: each.last_batch() for name, each in self._tables.items()}
        records = {name: parse_stream_record(each.record()) for name, each in self._tables.items()}
        rows, errors = records[ROWS], records[ERRORS]
        self._last_batches = LastBatches.load(folder)
        self._had = {name: from_json(each.end) for name, each in records.items() if each and each.end}
        self._checkpoint = checkpoint = self._checkpoint_in(folder)
        damage = self._damage(folder, max(last.values()), say)
        if last[ROWS] < 0 <= self._last_batches.rows:
            raise ConfigError(
                f"{self._root} is empty, but {folder} ends with batch {self._last_batches.rows}; restore the table, or "
                f"move {folder.parent} away to begin again"
            )
        if max(self._last_batches.errors, rows.other if rows else -1) >= 0 and last[ERRORS] < 0:
            check_errors_exist(self._root)
        if max(last.values()) >= 0 and rows is None and errors is None and not (folder / "metadata").exists():
            raise ConfigError(
                f"{self._root} has rows, but {folder} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {folder.parent} away to begin again"
            )
        why = damage or state_difference(rows, errors, self._last_batches, checkpoint)
        if damage and max(last.values()) < 0:
            checkpoint.move_aside()
            say(f"{damage}; the table has no rows yet, and is begun again")
            why = None
        if why is None:
            return settled.resumed if checkpoint.last() < settled.first else None
        if isinstance(self._root, Path):
            for table in self._tables.values():
                check_committed(table, settled.writer)
        place = resume_offsets(rows, errors)
        if place is None:
            raise ConfigError(f"{self._root}: {why}, and not all of it is there; restore the table or its state")
        known = (*last.values(), self._last_batches.rows, self._last_batches.errors, checkpoint.last())
        checkpoint.move_aside()
        settled.first, settled.resumed = max(known) + 1, place
        reached = {name: last[name] if each is None else each.batch for name, each in records.items()}
        self._checkpoint, self._last_batches = self._checkpoint_in(folder), LastBatches(reached[ROWS], reached[ERRORS])
        say(f"{self._root}: {why}; goes on behind what the table has, with a new checkpoint")
        return place

    def _damage(self, folder: Path, last: int, say: Callable[[str], None]) -> str | None:
        first = self._settings.first
        try:
            repair(folder, lambda batch: batch + first > last, say)
        except BadStore as error:
            say(str(error).partition(";")[0])
            return "its state is damaged"
        return None

    def _checkpoint_in(self, folder: Path) -> Checkpoint:
        settled = self._settings
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
        self._check_not_rolled_back(table)
        staged = stage(self._overlap(table, batch))
        if staged.files:
            lake.commit(batch, replace(staged, record=self._record(table, batch, is_half=is_half)))
            self._note_commit(table, batch)
        return staged.rows

    def _check_not_rolled_back(self, table: str) -> None:
        """Raises: ConfigError, another program took a table back meanwhile, as `RESTORE` of Delta does."""
        record = parse_stream_record(self._tables[table].record())
        known = self._last_batches.rows if table == ROWS else self._last_batches.errors
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
                record = parse_record(lake.record())
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
        found = known_offsets_in(had, from_json(start), from_json(end))
        if found is None:
            del self._had[table]
        return found

    def _record(self, table: str, batch: int, *, is_half: bool) -> str:
        start = end = None
        if self._checkpoint is not None:
            start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        other = self._tables[ROWS if table == ERRORS else ERRORS].last_batch()
        settled = self._settings.to_json() | ({} if self._fields is None else {"fields": self._fields})
        return Record(batch, start, end, is_half, other, settled, self.log).text()

    def _note_commit(self, table: str, batch: int) -> None:
        if self._checkpoint is not None:
            rows, errors = self._last_batches.rows, self._last_batches.errors
            self._last_batches = LastBatches(batch, errors) if table == ROWS else LastBatches(rows, batch)
            self._last_batches.save(self._checkpoint.folder)


class TableWriter:
    """A table and its table of errors; `write` is the step of a runner."""

    def __init__(self, root: Path | Address, settings: TableSettings, report: Report, lane: str = "") -> None:
        """`lane` separates writers that each number their own batches."""
        self.root = root
        self.settled = settings
        self._state = state_folder(root)
        self.report = report
        self._writer, self._lane = settings.writer + lane, lane
        self._encoded = (
            EncodedBodies(settings, self._state / f"schemas{lane}.json") if settings.mode in ENCODED_MODES else None
        )
        place = TableLocation(root, self._state, self._writer, lane, partitioning=settings.partitioning)
        self._places = {ROWS: place, ERRORS: place.errors}
        self._lakes = {name: open_lake(settings.format, place) for name, place in self._places.items()}
        self._rows, self._errors = self._lakes[ROWS], self._lakes[ERRORS]
        settings.fields = restore_fields(settings, self._rows)
        self._progress = TableProgress(root, settings, self._lakes)

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
        for name in _inexact_columns(self._rows, self.settled.fields):
            raise ConfigError(
                f"{self.root} has integers in {name} that {self.settled.fields[name]} does not hold exactly; "
                "make the column decimal(38,0) or string"
            )
        for name, lake in self._lakes.items():
            if warning := missing_files_warning(self._places[name].path, lake):
                say(warning)
        return self._progress.resume(checkpoint, say)

    @property
    def newest_record(self) -> Record | None:
        """The record of the last commit of this writer. Raises: ConfigError, as `TableProgress.newest_record`."""
        return self._progress.newest_record()

    def note_log(self, noted: dict[str, Any]) -> None:
        """Record in the next commits which parts of a stored log the table has."""
        self._progress.log = noted

    def may_plan_again(self, batch: int) -> bool:
        """Whether neither table has rows of a batch of the stream."""
        return batch + self._first > self.last_batch

    def write(self, messages: DataFrame, batch: int) -> str:
        """Add a batch to the tables, unless they have it; returns a summary in words."""
        report = self.report
        before = report.written, report.errors
        batch += self._first
        if self.settled.mode in ("json", "schema", *ENCODED_MODES):
            self._write_objects(messages, batch)
        else:
            self._write_raw(messages, batch)
        return f"{counted(report.written - before[0], 'row')}, {counted(report.errors - before[1], 'error')}"

    def _write_raw(self, messages: DataFrame, batch: int) -> None:
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
        if self._encoded is not None:
            shape = self._encoded.shape(messages, batch)
            self._save_fields(shape.fields)
            return shape
        if (fields := self._progress.columns(batch)) is not None:
            return self.settled.objects(fields)
        fields = grow_fields(self.settled, messages, self._rows)
        if isinstance(self.root, Address):  # files there are not written again: other types are errors
            fields = {name: self.settled.fields.get(name, kind) for name, kind in fields.items()}
        self._save_fields(fields)
        return self.settled.objects()

    def _save_fields(self, fields: dict[str, str]) -> None:
        """Save the columns first: if that fails, the next attempt has the earlier ones."""
        if fields != self.settled.fields:
            save_settings(self._state, replace(self.settled, fields=fields))
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
            return self._stage(table, rows if had is None else rows_after(had, rows), batch)

        return self._progress.add(table, batch, staged, is_half=is_half)

    def _stage(self, table: str, rows: DataFrame, batch: int) -> Staged:
        lake, place, prefix = self._lakes[table], self._places[table], f"{self._writer}-{batch:09}"
        if isinstance(place.path, Address):
            found = stage_remote_rows(rows, lake, place, self.settled.format, prefix)
            if found.files:
                check_no_wider(lake, found.schema, place.path)
            return found
        found = stage_rows(rows, self._state / f"staged{self._lane}" / table, prefix, lake.layout)
        if found.files:
            widen_columns(lake, found.schema, self._state / f"rewritten{self._lane}")
        return found


def _counts() -> tuple[Column, Column]:
    """Messages, and those of them whose body was damaged (badRecords=null); a body that is empty is not null."""
    return f.count(f.lit(1)).alias("rows"), f.count_if(f.col("body").isNull()).alias("bad")


def grow_fields(settings: TableSettings, messages: DataFrame, table: Lake | None = None) -> dict[str, str]:
    """Return the columns with those that these messages add, and wider where they need it.

    Args:
        table: the table, if there is one. Names of `settings` that clash with one of its columns are dropped.
    """
    if settings.mode != "json":
        return settings.fields
    parts = messages.select(BODY).mapInArrow(partial(_fields_in_partition, settings.depth), "found binary").collect()
    found = merge_body_fields(msgspec.json.decode(part.found, type=BodyFields) for part in parts)
    return merge_fields(found, settings, table)


def merge_fields(body_fields: BodyFields, settings: TableSettings, table: Lake | None) -> dict[str, str]:
    """Return the columns of a table with those that bodies add; a bigint stays one if a double is not exact."""
    fields, partitioning = settings.fields, settings.partitioning
    present = table.columns() if table is not None else {}
    known = dict(sorted(fields.items(), key=lambda each: each[0] not in present))
    chosen_with = partial(json_columns, body_fields, known, settings.own_columns, type_changes=settings.type_changes)
    chosen = pin_types(partitioning, known, chosen_with())
    if table is None or isinstance(table, RemoteLake):
        return chosen
    long = _inexact_columns(table, chosen)
    return pin_types(partitioning, known, chosen_with(long)) if long else chosen


def restore_fields(settings: TableSettings, table: Lake) -> dict[str, str]:
    """Return the columns, at least as wide as in the table: the settings may be older than the table."""
    found, had = dict(settings.fields), arrow_types(settings.fields)
    for name, kind in table.columns().items() if settings.mode in ("json", "schema", *ENCODED_MODES) else ():
        if name in had:
            is_known = not (retypes(had[name], kind) or grows(had[name], kind))
        else:
            is_known = name in settings.own_columns or settings.mode == "schema"
        if not is_known:
            found[name] = ddl_of(from_arrow_type(kind))
    return found


def _inexact_columns(table: Lake, fields: Mapping[str, str]) -> list[str]:
    present = table.columns()
    return [
        name
        for name, kind in arrow_types(fields).items()
        if name in present and retypes(present[name], kind) and not can_widen(table, name, kind)
    ]


def _fields_in_partition(depth: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = fields_in((body for batch in batches for body in batch.column(BODY).to_pylist()), depth)
    yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(found)]})
