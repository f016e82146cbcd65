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
from sparrowmq.spark.pipelines.lake.compaction import rewritten, widen
from sparrowmq.spark.pipelines.lake.lake import Place, open_lake
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles, Staged
from sparrowmq.spark.pipelines.tables.json_bodies import BODY, Found, Reader, found_in, merge
from sparrowmq.spark.pipelines.tables.progress import Record
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, arrow_types
from sparrowmq.spark.pipelines.tables.table_settings import Settled, demand_no_key, keep, state_of
from sparrowmq.spark.pipelines.tables.table_writer import fields_for

PLAN: Final = "retry.json"

_MODES: Final = ("json", "schema")
_LANE: Final = "-retried"
_ROWS: Final = 10_000


def finish_retry(root: Path | Address, settled: Settled) -> None:
    """Bring a retry to its end that was killed; all that changes a table does this first."""
    plan = snapshot.load(state_of(root) / PLAN, Plan)
    if isinstance(root, Path) and plan is not None and not plan.is_done:
        Retry(root, settled).finish()


class Plan(msgspec.Struct):
    """A retry that has begun.

    Attributes:
        batch: its number in the table. fields: the columns that rows must fit. is_done: it has come to its end.
    """

    batch: int
    fields: dict[str, str]
    is_done: bool = False


@dataclass
class Tried:
    """Counts of the errors that were tried, and of the reasons of those that stay."""

    fit: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def rest(self) -> int:
        return self.reasons.total()


class Retry:
    """One table and its errors.

    Args:
        only_looked_at: nothing is changed; only `look` may be called.
    Raises:
        ConfigError: the table has no errors that can be tried.
    """

    def __init__(self, root: Path, settled: Settled, *, only_looked_at: bool = False) -> None:
        if settled.mode not in _MODES:
            raise ConfigError(
                f"{root} is of mode {settled.mode}; only the errors of the modes {' and '.join(_MODES)} can be "
                "tried again"
            )
        demand_no_key(root, settled, "a retry")
        self._settled = settled
        self._state = state_of(root)
        self._writer = settled.writer + _LANE
        place = Place(root, self._state, self._writer, _LANE, only_looked_at, partitioning=settled.partitioning)
        self._rows = open_lake(settled.format, place)
        self._errors = open_lake(settled.format, place.of_errors)

    def look(self) -> Tried:
        """Count what would fit."""
        return self._count(self._grown())

    def run(self) -> Tried:
        """Try all errors once, after the end of a retry that was killed."""
        self.finish()
        plan = Plan(self._rows.last_batch() + 1, self._grown())
        snapshot.save(self._state / PLAN, plan)
        if plan.fields != self._settled.fields:
            self._settled.fields = plan.fields
            keep(self._state, self._settled)
        tried = Tried()
        staged = self._staged(plan, tried)
        if staged.files:
            widen(self._rows, staged.schema, self._state / f"rewritten{_LANE}")
            record = Record(plan.batch, None, None, False, self._errors.last_batch(), self._settled.said())
            self._rows.commit(plan.batch, replace(staged, record=record.text()))
        self.finish()
        return tried

    def finish(self) -> None:
        """Bring a retry to its end that was killed after the table got the rows; drop it if it was killed before."""
        plan = snapshot.load(self._state / PLAN, Plan)
        if plan is None or plan.is_done:
            return
        if self._rows.last_batch() >= plan.batch:
            folder = self._state / f"rewritten-errors{_LANE}"
            files = rewritten(self._errors.partitions(), folder, partial(_still_bad, self._reader(plan.fields)))
            kinds = pa.schema(list(self._errors.columns().items()))
            self._errors.rewrite(Staged(files, kinds))
            shutil.rmtree(folder, ignore_errors=True)
        plan.batch, plan.is_done = min(plan.batch, self._rows.last_batch()), True
        snapshot.save(self._state / PLAN, plan)
        shutil.rmtree(self._state / f"staged{_LANE}", ignore_errors=True)

    def _grown(self) -> dict[str, str]:
        """The columns, with those that the errors' bodies add, and wider where these need it."""
        settled = self._settled
        if settled.mode != "json":
            return settled.fields
        found: Found = {}
        for batch in self._batches():
            merge(found, found_in(batch.column(BODY).to_pylist(), settled.depth))
        return fields_for(found, settled, self._rows)

    def _count(self, fields: Mapping[str, str]) -> Tried:
        tried, reader = Tried(), self._reader(fields)
        for batch in self._batches():
            for _ in _good(batch, reader, tried):
                pass
        return tried

    def _staged(self, plan: Plan, tried: Tried) -> Staged:
        """The rows that fit."""
        folder, reader = self._state / f"staged{_LANE}", self._reader(plan.fields)
        shutil.rmtree(folder, ignore_errors=True)
        paths = sorted(self._errors.partitions().items())
        if not paths:
            return Staged([], pa.schema([]))
        place = pq.read_schema(paths[0][0]).field(COORDINATES).type
        schema = pa.schema([(COORDINATES, place), (DAY, pa.date32()), *arrow_types(plan.fields).items()])
        with PartitionFiles(folder, schema, self._rows.layout) as files:
            for path, day in paths:
                for batch in _batches_of(path):
                    for good in _good(batch, reader, tried):
                        files.write(_renamed(good, BY_DAY.values(day)[DAY], schema))
        named = [
            file.named(f"{self._writer}-{plan.batch:09}-{number:05}", self._rows.layout)
            for number, file in enumerate(files.written)
        ]
        return Staged(named, schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self._errors.paths():
            yield from _batches_of(path)

    def _reader(self, fields: Mapping[str, str]) -> Reader:
        return self._settled.objects(fields).body_reader()


def _batches_of(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as source:
        yield from source.iter_batches(_ROWS, columns=[COORDINATES, BODY])


def _read(rows: pa.RecordBatch, reader: Reader) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the columns of bodies beside the place of each, and the reasons."""
    (read,) = reader([rows.select([COORDINATES, BODY])])
    return read, read.column(len((COORDINATES, BODY)))


def _good(rows: pa.RecordBatch, reader: Reader, tried: Tried) -> Iterator[pa.RecordBatch]:
    """The rows that fit now, if there are any."""
    read, reasons = _read(rows, reader)
    tried.reasons.update(reason for reason in reasons.to_pylist() if reason is not None)
    good = read.filter(pc.is_null(reasons))
    tried.fit += good.num_rows
    if good.num_rows:
        yield good


def _renamed(rows: pa.RecordBatch, day: str | None, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as the table has them, with the day of their file."""
    days = pa.repeat(pa.scalar(day).cast(pa.date32()), rows.num_rows)
    columns = [rows.column(0), days, *rows.columns[3:]]
    return pa.RecordBatch.from_arrays(columns, names=schema.names).cast(schema)


def _still_bad(reader: Reader, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The errors that stay, with the reasons of now."""
    _, reasons = _read(rows, reader)
    renewed = rows.set_column(rows.schema.get_field_index("reason"), "reason", reasons)
    return renewed.filter(pc.is_valid(reasons))
