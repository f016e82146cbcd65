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
from sparrowmq.spark.pipelines.lake.compaction import can_widen, check_needs_no_wider_types, widen_columns
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
    parse_record,
    parse_stream_record,
    resume_offsets,
    state_difference,
    table_offsets_in,
)
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, arrow_types, rows_after
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, save_settings, state_folder
from sparrowmq.spark.source.partition_ranges import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparrowmq.spark.pipelines.lake.staged_files import Staged


StageRows = Callable[["Offsets | None"], "Staged"]
ROWS, ERRORS = "rows", "errors"


class TableProgress:
    """The position of a table and its table of errors, compared with the checkpoint of a stream."""

    def __init__(self, root: Path | Address, settings: TableSettings, tables: dict[str, Lake]) -> None:
        """`tables`: the table, as ROWS, and its table of errors, as ERRORS."""
        self._root = root
        self._settings = settings
        self._tables = tables
        self._checkpoint: Checkpoint | None = None
        self._table_offsets: dict[str, Offsets] = {}
        self._last_batches = LastBatches()
        self._fields: dict[str, str] | None = None
        self.log: dict[str, Any] | None = None  # as `Record` has it, for the next commits

    def newest_record(self) -> Record | None:
        """Return the record of the last commit to one of the tables, if known. Raises: ConfigError."""
        last_batches = {name: lake.last_batch() for name, lake in self._tables.items()}
        rows, errors = (parse_record(self._tables[name].record()) for name in (ROWS, ERRORS))
        records = [record for record in (errors, rows) if record is not None]  # errors come last in a batch
        newest = max(records, key=lambda record: record.batch, default=None)
        if newest is None or newest.batch < max(last_batches.values()):
            return None
        if newest.log is not None and newest.other != last_batches[ROWS if newest is errors else ERRORS]:
            raise ConfigError(
                f"{self._root} and {self._root}.errors are of different times, so a message could be missing or twice; "
                "restore both from the same time"
            )
        return newest

    def resume(self, folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
        """Compare the tables with the checkpoint in `folder`, and prepare for writing.

        Returns the offsets where a new checkpoint is to begin; None if Spark may go on, or the table is a new one.
        Raises: ConfigError, it is not known which messages the table has.
        """
        settings, last_batches = self._settings, {name: lake.last_batch() for name, lake in self._tables.items()}
        records = {name: parse_stream_record(lake.record()) for name, lake in self._tables.items()}
        rows, errors = records[ROWS], records[ERRORS]
        self._last_batches = LastBatches.load(folder)
        self._table_offsets = {name: from_json(record.end) for name, record in records.items() if record and record.end}
        self._checkpoint = checkpoint = self._checkpoint_in(folder)
        damage = self._repair_checkpoint(folder, max(last_batches.values()), say)
        if last_batches[ROWS] < 0 <= self._last_batches.rows:
            raise ConfigError(
                f"{self._root} is empty, but {folder} ends with batch {self._last_batches.rows}; restore the table, or "
                f"move {folder.parent} away to begin again"
            )
        if max(self._last_batches.errors, rows.other if rows else -1) >= 0 and last_batches[ERRORS] < 0:
            check_errors_exist(self._root)
        if max(last_batches.values()) >= 0 and rows is None and errors is None and not (folder / "metadata").exists():
            raise ConfigError(
                f"{self._root} has rows, but {folder} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {folder.parent} away to begin again"
            )
        difference = damage or state_difference(rows, errors, self._last_batches, checkpoint)
        if damage and max(last_batches.values()) < 0:
            checkpoint.move_aside()
            say(f"{damage}; the table has no rows yet, and is begun again")
            difference = None
        if difference is None:
            return settings.resumed if checkpoint.last() < settings.first else None
        if isinstance(self._root, Path):
            for table in self._tables.values():
                check_committed(table, settings.writer)
        offsets = resume_offsets(rows, errors)
        if offsets is None:
            raise ConfigError(f"{self._root}: {difference}, and not all of it is there; restore the table or its state")
        known_batches = (*last_batches.values(), self._last_batches.rows, self._last_batches.errors, checkpoint.last())
        checkpoint.move_aside()
        settings.first, settings.resumed = max(known_batches) + 1, offsets
        reached = {name: last_batches[name] if record is None else record.batch for name, record in records.items()}
        self._checkpoint, self._last_batches = self._checkpoint_in(folder), LastBatches(reached[ROWS], reached[ERRORS])
        say(f"{self._root}: {difference}; goes on behind what the table has, with a new checkpoint")
        return offsets

    def _repair_checkpoint(self, folder: Path, last: int, say: Callable[[str], None]) -> str | None:
        first = self._settings.first
        try:
            repair(folder, lambda batch: batch + first > last, say)
        except BadStore as error:
            say(str(error).partition(";")[0])
            return "its state is damaged"
        return None

    def _checkpoint_in(self, folder: Path) -> Checkpoint:
        settings = self._settings
        begin = settings.resumed or (settings.begin and {"v": 1, "topics": settings.begin})
        return Checkpoint(folder, settings.first, begin)

    def add(self, table: str, batch: int, stage: StageRows, *, is_half: bool = False) -> int:
        """Add a batch to a table, unless that has it; returns its rows.

        `stage` writes the files of a batch, without rows before some offsets. If it `is_half`, the batch has errors,
        too, which are added next.
        """
        lake = self._tables[table]
        if batch <= lake.last_batch():
            return 0
        self._check_not_rolled_back(table)
        staged = stage(self._overlap(table, batch))
        if staged.files:
            lake.commit(batch, replace(staged, record=self._commit_record(table, batch, is_half=is_half)))
            if self._checkpoint is not None:
                rows, errors = self._last_batches.rows, self._last_batches.errors
                self._last_batches = LastBatches(batch, errors) if table == ROWS else LastBatches(rows, batch)
                self._last_batches.save(self._checkpoint.folder)
        return staged.rows

    def _check_not_rolled_back(self, table: str) -> None:
        """Raises: ConfigError, another program took a table back meanwhile, as `RESTORE` of Delta does."""
        record = parse_stream_record(self._tables[table].record())
        last_known = self._last_batches.rows if table == ROWS else self._last_batches.errors
        if record is not None and record.batch < last_known:
            raise ConfigError(
                f"another program took {self._root} back from batch {last_known} to batch {record.batch}; start again: "
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
        table_offsets = self._table_offsets.get(table)
        if table_offsets is None or self._checkpoint is None:
            return None
        start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        if start is None or end is None:
            return None
        overlap = table_offsets_in(table_offsets, from_json(start), from_json(end))
        if overlap is None:
            del self._table_offsets[table]
        return overlap

    def _commit_record(self, table: str, batch: int, *, is_half: bool) -> str:
        start = end = None
        if self._checkpoint is not None:
            start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        other = self._tables[ROWS if table == ERRORS else ERRORS].last_batch()
        settings = self._settings.to_json() | ({} if self._fields is None else {"fields": self._fields})
        return Record(batch, start, end, is_half, other, settings, self.log).text()


class TableWriter:
    """A table and its table of errors; `write` is the step of a runner."""

    def __init__(self, root: Path | Address, settings: TableSettings, report: Report, lane: str = "") -> None:
        """`lane` separates writers that each number their own batches."""
        self.root = root
        self.settings = settings
        self._state = state_folder(root)
        self.report = report
        self._writer, self._lane = settings.writer + lane, lane
        self._encoded = (
            EncodedBodies(settings, self._state / f"schemas{lane}.json") if settings.mode in ENCODED_MODES else None
        )
        location = TableLocation(root, self._state, self._writer, lane, partitioning=settings.partitioning)
        self._locations = {ROWS: location, ERRORS: location.errors}
        self._lakes = {name: open_lake(settings.format, location) for name, location in self._locations.items()}
        self._rows, self._errors = self._lakes[ROWS], self._lakes[ERRORS]
        settings.fields = restore_fields(settings, self._rows)
        self._progress = TableProgress(root, settings, self._lakes)

    @property
    def _first(self) -> int:
        return 0 if self._lane else self.settings.first

    @property
    def last_batch(self) -> int:
        """The number of the last batch of which one of the tables has rows; -1 before the first."""
        return max(self._rows.last_batch(), self._errors.last_batch())

    def resume(self, checkpoint: Path, say: Say) -> dict[str, Any] | None:
        """As `TableProgress.resume`. Raises: ConfigError, also if a type does not hold the values of a column."""
        for name in _inexact_columns(self._rows, self.settings.fields):
            raise ConfigError(
                f"{self.root} has integers in {name} that {self.settings.fields[name]} does not hold exactly; "
                "make the column decimal(38,0) or string"
            )
        for name, lake in self._lakes.items():
            if warning := missing_files_warning(self._locations[name].path, lake):
                say(warning)
        return self._progress.resume(checkpoint, say)

    @property
    def newest_record(self) -> Record | None:
        """The record of the last commit of this writer. Raises: ConfigError, as `TableProgress.newest_record`."""
        return self._progress.newest_record()

    def note_log(self, log_state: dict[str, Any]) -> None:
        """Record in the next commits which parts of a stored log the table has."""
        self._progress.log = log_state

    def may_plan_again(self, batch: int) -> bool:
        """Whether neither table has rows of a batch of the stream."""
        return batch + self._first > self.last_batch

    def write(self, messages: DataFrame, batch: int) -> str:
        """Add a batch to the tables, unless they have it; returns a summary in words."""
        report = self.report
        counts_before = report.written, report.errors
        batch += self._first
        if self.settings.mode in ("json", "schema", *ENCODED_MODES):
            self._write_objects(messages, batch)
        else:
            self._write_raw(messages, batch)
        return (
            f"{counted(report.written - counts_before[0], 'row')}, {counted(report.errors - counts_before[1], 'error')}"
        )

    def _write_raw(self, messages: DataFrame, batch: int) -> None:
        if batch > self._rows.last_batch():
            count = Observation()
            rows, _ = self.settings.shape().split(messages.observe(count, *_counts()))
            self.report.written += self._add_rows(ROWS, rows, batch)
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
            return self.settings.objects(fields)
        fields = grow_fields(self.settings, messages, self._rows)
        if isinstance(self.root, Address):  # files there are not written again: other types are errors
            fields = {name: self.settings.fields.get(name, kind) for name, kind in fields.items()}
        self._save_fields(fields)
        return self.settings.objects()

    def _save_fields(self, fields: dict[str, str]) -> None:
        """Save the columns first: if that fails, the next attempt has the earlier ones."""
        if fields != self.settings.fields:
            save_settings(self._state, replace(self.settings, fields=fields))
            self.settings.fields = fields

    def _write_rows(self, shape: Objects, rows: DataFrame, batch: int) -> None:
        count, damaged, errors = rows.agg(*_counts(), f.count("reason").alias("errors")).collect()[0]
        self.report.add_batch(batch - self._first, count, damaged)
        if errors < count:
            self.report.written += self._add_rows(ROWS, shape.table_rows(rows), batch, is_half=errors > 0)
        if errors:
            self.report.errors += self._add_rows(ERRORS, shape.error_rows(rows), batch)

    def _add_rows(self, table: str, rows: DataFrame, batch: int, *, is_half: bool = False) -> int:
        def stage(offsets: Offsets | None) -> Staged:
            return self._stage(table, rows if offsets is None else rows_after(offsets, rows), batch)

        return self._progress.add(table, batch, stage, is_half=is_half)

    def _stage(self, table: str, rows: DataFrame, batch: int) -> Staged:
        lake, location, prefix = self._lakes[table], self._locations[table], f"{self._writer}-{batch:09}"
        if isinstance(location.path, Address):
            staged = stage_remote_rows(rows, lake, location, self.settings.format, prefix)
            if staged.files:
                check_needs_no_wider_types(lake, staged.schema, location.path)
            return staged
        staged = stage_rows(rows, self._state / f"staged{self._lane}" / table, prefix, lake.layout)
        if staged.files:
            widen_columns(lake, staged.schema, self._state / f"rewritten{self._lane}")
        return staged


def _counts() -> tuple[Column, Column]:
    """Messages, and those of them whose body was damaged (badRecords=null); a body that is empty is not null."""
    return f.count(f.lit(1)).alias("rows"), f.count_if(f.col("body").isNull()).alias("bad")


def grow_fields(settings: TableSettings, messages: DataFrame, table: Lake | None = None) -> dict[str, str]:
    """Return the columns with those that these messages add, and wider where they need it."""
    if settings.mode != "json":
        return settings.fields
    parts = messages.select(BODY).mapInArrow(partial(_fields_in_partition, settings.depth), "found binary").collect()
    body_fields = merge_body_fields(msgspec.json.decode(part.found, type=BodyFields) for part in parts)
    return merge_fields(body_fields, settings, table)


def merge_fields(body_fields: BodyFields, settings: TableSettings, table: Lake | None) -> dict[str, str]:
    """Return the columns of a table with those that bodies add; a bigint stays one if a double is not exact."""
    fields, partitioning = settings.fields, settings.partitioning
    present = table.columns() if table is not None else {}
    columns = dict(sorted(fields.items(), key=lambda column: column[0] not in present))
    choose = partial(json_columns, body_fields, columns, settings.own_columns, type_changes=settings.type_changes)
    new_columns = pin_types(partitioning, columns, choose())
    if table is None or isinstance(table, RemoteLake):
        return new_columns
    long = _inexact_columns(table, new_columns)
    return pin_types(partitioning, columns, choose(long)) if long else new_columns


def restore_fields(settings: TableSettings, table: Lake) -> dict[str, str]:
    """Return the columns, at least as wide as in the table: the settings may be older than the table."""
    fields, old_types = dict(settings.fields), arrow_types(settings.fields)
    for name, kind in table.columns().items() if settings.mode in ("json", "schema", *ENCODED_MODES) else ():
        if name in old_types:
            is_known = not (retypes(old_types[name], kind) or grows(old_types[name], kind))
        else:
            is_known = name in settings.own_columns or settings.mode == "schema"
        if not is_known:
            fields[name] = ddl_of(from_arrow_type(kind))
    return fields


def _inexact_columns(table: Lake, fields: Mapping[str, str]) -> list[str]:
    present = table.columns()
    return [
        name
        for name, kind in arrow_types(fields).items()
        if name in present and retypes(present[name], kind) and not can_widen(table, name, kind)
    ]


def _fields_in_partition(depth: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    body_fields = fields_in((body for batch in batches for body in batch.column(BODY).to_pylist()), depth)
    yield pa.RecordBatch.from_pydict({"found": [msgspec.json.encode(body_fields)]})
