"""Tries the rows of a table of errors again: rows that fit now move to the table, each of them once.

    bodies of the errors -> fields -> retry.json -> rows of the table -> errors without these rows
                                      the plan      one commit           one commit

The plan has the number of the batch and the columns. If the table has the batch, a start after a kill takes the rows
out of the errors by the same columns, so it takes out the same rows. If the table does not have the batch, nothing was
changed, and the plan is dropped.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.core import snapshot
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.compaction import rewrite_files, widen_columns
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles, Staged
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, BodyFields, Reader, add_body_fields, fields_in
from sparrowmq.spark.pipelines.tables.progress import Record
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, arrow_types
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, check_no_key, save_settings, state_folder
from sparrowmq.spark.pipelines.tables.table_writer import merge_fields

PLAN_FILE: Final = "retry.json"

_RETRIED_MODES: Final = ("json", "schema")
_LANE: Final = "-retried"
_ROWS_PER_BATCH: Final = 10_000


def finish_retry(root: Path | Address, settings: TableSettings) -> None:
    """Finish a retry that was killed; everything that changes a table does this first."""
    plan = snapshot.load(state_folder(root) / PLAN_FILE, RetryPlan)
    if isinstance(root, Path) and plan is not None and not plan.is_done:
        Retry(root, settings).finish()


class RetryPlan(msgspec.Struct):
    """A retry that has begun, with the number of its batch in the table, and the columns that rows must fit."""

    batch: int
    fields: dict[str, str]
    is_done: bool = False


@dataclass
class RetryResult:
    """Counts of the errors that fit now, and of the reasons of those that remain."""

    fitting: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def remaining(self) -> int:
        return self.reasons.total()


class Retry:
    """One table and its errors. Raises: ConfigError, the table has no errors that can be tried."""

    def __init__(self, root: Path, settings: TableSettings, *, is_read_only: bool = False) -> None:
        if settings.mode not in _RETRIED_MODES:
            raise ConfigError(
                f"{root} is of mode {settings.mode}; only the errors of the modes {' and '.join(_RETRIED_MODES)} can "
                "be tried again"
            )
        check_no_key(root, settings, "a retry")
        self._settings = settings
        self._state = state_folder(root)
        self._writer = settings.writer + _LANE
        location = TableLocation(
            root, self._state, self._writer, _LANE, is_read_only, partitioning=settings.partitioning
        )
        self._rows = open_lake(settings.format, location)
        self._errors = open_lake(settings.format, location.errors)

    def count_fitting(self) -> RetryResult:
        """Count the errors that would fit."""
        result, reader = RetryResult(), self._reader(self._new_fields())
        for batch in self._batches():
            for _ in _fitting_rows(batch, reader, result):
                pass
        return result

    def run(self) -> RetryResult:
        """Try all errors once, after finishing a retry that was killed."""
        self.finish()
        plan = RetryPlan(self._rows.last_batch() + 1, self._new_fields())
        snapshot.save(self._state / PLAN_FILE, plan)
        if plan.fields != self._settings.fields:
            self._settings.fields = plan.fields
            save_settings(self._state, self._settings)
        result = RetryResult()
        staged = self._stage_fitting(plan, result)
        if staged.files:
            widen_columns(self._rows, staged.schema, self._state / f"rewritten{_LANE}")
            record = Record(plan.batch, None, None, False, self._errors.last_batch(), self._settings.to_json())
            self._rows.commit(plan.batch, replace(staged, record=record.text()))
        self.finish()
        return result

    def finish(self) -> None:
        """Finish a retry that was killed after its commit to the table; drop one that was killed before."""
        plan = snapshot.load(self._state / PLAN_FILE, RetryPlan)
        if plan is None or plan.is_done:
            return
        if self._rows.last_batch() >= plan.batch:
            folder = self._state / f"rewritten-errors{_LANE}"
            files = rewrite_files(
                self._errors.partitions(), folder, partial(_remaining_errors, self._reader(plan.fields))
            )
            kinds = pa.schema(list(self._errors.columns().items()))
            self._errors.rewrite(Staged(files, kinds))
            shutil.rmtree(folder, ignore_errors=True)
        plan.batch, plan.is_done = min(plan.batch, self._rows.last_batch()), True
        snapshot.save(self._state / PLAN_FILE, plan)
        shutil.rmtree(self._state / f"staged{_LANE}", ignore_errors=True)

    def _new_fields(self) -> dict[str, str]:
        settings = self._settings
        if settings.mode != "json":
            return settings.fields
        body_fields: BodyFields = {}
        for batch in self._batches():
            add_body_fields(body_fields, fields_in(batch.column(BODY).to_pylist(), settings.depth))
        return merge_fields(body_fields, settings, self._rows)

    def _stage_fitting(self, plan: RetryPlan, result: RetryResult) -> Staged:
        folder, reader = self._state / f"staged{_LANE}", self._reader(plan.fields)
        shutil.rmtree(folder, ignore_errors=True)
        paths = sorted(self._errors.partitions().items())
        if not paths:
            return Staged([], pa.schema([]))
        coordinates_type = pq.read_schema(paths[0][0]).field(COORDINATES).type
        schema = pa.schema([(COORDINATES, coordinates_type), (DAY, pa.date32()), *arrow_types(plan.fields).items()])
        with PartitionFiles(folder, schema, self._rows.layout) as files:
            for path, day in paths:
                for batch in _read_batches(path):
                    for rows in _fitting_rows(batch, reader, result):
                        files.write(_table_rows(rows, BY_DAY.values(day)[DAY], schema))
        named_files = [
            file.with_name(f"{self._writer}-{plan.batch:09}-{number:05}", self._rows.layout)
            for number, file in enumerate(files.files)
        ]
        return Staged(named_files, schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self._errors.paths():
            yield from _read_batches(path)

    def _reader(self, fields: Mapping[str, str]) -> Reader:
        return self._settings.objects(fields).body_reader()


def _read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as source:
        yield from source.iter_batches(_ROWS_PER_BATCH, columns=[COORDINATES, BODY])


def _read_bodies(rows: pa.RecordBatch, reader: Reader) -> tuple[pa.RecordBatch, pa.Array]:
    (with_values,) = reader([rows.select([COORDINATES, BODY])])
    return with_values, with_values.column(len((COORDINATES, BODY)))


def _fitting_rows(rows: pa.RecordBatch, reader: Reader, result: RetryResult) -> Iterator[pa.RecordBatch]:
    with_values, reasons = _read_bodies(rows, reader)
    result.reasons.update(reason for reason in reasons.to_pylist() if reason is not None)
    fitting_rows = with_values.filter(pc.is_null(reasons))
    result.fitting += fitting_rows.num_rows
    if fitting_rows.num_rows:
        yield fitting_rows


def _table_rows(rows: pa.RecordBatch, day: str | None, schema: pa.Schema) -> pa.RecordBatch:
    days = pa.repeat(pa.scalar(day).cast(pa.date32()), rows.num_rows)
    columns = [rows.column(0), days, *rows.columns[3:]]
    return pa.RecordBatch.from_arrays(columns, names=schema.names).cast(schema)


def _remaining_errors(reader: Reader, rows: pa.RecordBatch) -> pa.RecordBatch:
    _, reasons = _read_bodies(rows, reader)
    with_new_reasons = rows.set_column(rows.schema.get_field_index("reason"), "reason", reasons)
    return with_new_reasons.filter(pc.is_valid(reasons))
