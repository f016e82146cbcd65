"""Writes the rows of one batch as Parquet files behind an address, from Spark's workers.

    task 0: rows -> a file on the worker's disk -> s3://bucket/orders/data/_day=…/w-000000007-3f…-0.parquet
    driver: the names, days and sizes of all -> one commit

Each file has a name that no other attempt uses, and no reader sees it before the commit. A task that fails removes
what it has written. What a killed worker leaves is removed by `compact`. A file is complete on the disk of the worker
before the first byte goes out, so a store that is away only delays the task, and memory does not grow with the file.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.address import Address, Storage
from sparrowmq.spark.pipelines.lake.lake import DATA_FOLDERS, Place, staging_of
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY, Staged, StagedFile
from sparrowmq.spark.pipelines.lake.waiting import Patience, secrets_of
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOUND: Final = "name string, day string, rows bigint, size bigint"
_MOST_OPEN: Final = 64  # days at a time in one task
_GROUP_BYTES: Final = 64 << 20


def stage_remotely(rows: DataFrame, place: Place, kind: str, prefix: str, *, keeps_day: bool) -> Staged:
    """Write rows for a table behind an address; the names of the files begin with their day and `prefix`.

    Args:
        keeps_day: whether the files hold the day too, and not only their folder's name.
    """
    to, folder = place.path, DATA_FOLDERS.get(kind, "")
    assert isinstance(to, Address)
    if kind == "parquet":  # It has no log of commits: readers would see files at once.
        to, folder = staging_of(place), uuid.uuid4().hex
        Patience(str(to)).over(to.storage.clear)
    schema = arrow_schema(rows.schema)
    write = TaskFiles(to.storage, folder, prefix, schema, keeps_day)
    found = rows.mapInArrow(write, _FOUND).collect()
    return Staged(
        sorted(
            (StagedFile(None, row.name, row.day, row.rows, row.size) for row in found),
            key=lambda file: file.name,
        ),
        schema,
        folder=folder,
    )


@dataclass(frozen=True)
class TaskFiles:
    """A function for `mapInArrow`: it writes the rows of a task, and returns a row for each of its files."""

    storage: Storage
    folder: str
    prefix: str
    schema: pa.Schema
    keeps_day: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="sparrowmq-") as spool:
            written = _Written(self, spool)
            for batch in batches:
                written.add(pa.Table.from_batches([batch]).cast(self.schema))
            found = written.upload()
        yield pa.RecordBatch.from_pylist(found, pa.schema([*_columns()]))


def _columns() -> Iterator[pa.Field]:
    for name, kind in (
        ("name", pa.string()),
        ("day", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
    ):
        yield pa.field(name, kind)


class _Written:
    """The files of one task, on its disk until `upload`."""

    def __init__(self, task: TaskFiles, spool: str) -> None:
        self._task = task
        self._spool = spool
        self._open: dict[str, pq.ParquetWriter] = {}
        self._files: list[tuple[str, str]] = []  # day, path on the disk
        self._kept: dict[str, list[pa.Table]] = {}
        self._kept_bytes = 0
        names = [name for name in task.schema.names if task.keeps_day or name != DAY]
        self._schema = pa.schema([task.schema.field(name) for name in names])

    def add(self, rows: pa.Table) -> None:
        days = rows.column(DAY)
        for day in pc.unique(days).to_pylist():
            chosen = rows.filter(pc.equal(days, pa.scalar(day, days.type))).select(self._schema.names)
            self._kept.setdefault(f"{day}", []).append(chosen)
            self._kept_bytes += chosen.nbytes
        if self._kept_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Write a group of rows to each file: groups as small as Spark's batches make files large and slow."""
        for day, parts in self._kept.items():
            self._writer(day).write_table(pa.concat_tables(parts))
        self._kept, self._kept_bytes = {}, 0

    def upload(self) -> list[dict[str, object]]:
        """Write all behind the address. A file that cannot be written takes the others of the task with it."""
        self._flush()
        for writer in self._open.values():
            writer.close()
        task, found = self._task, list[dict[str, object]]()
        patience = Patience(task.storage.url, secrets=secrets_of({}))
        try:
            for number, (day, path) in enumerate(self._files):
                name = f"{DAY}={day}/{task.prefix}-{uuid.uuid4().hex}-{number:05}.parquet"
                placed = f"{task.folder}/{name}" if task.folder else name
                sizes = {"rows": pq.read_metadata(path).num_rows, "size": os.path.getsize(path)}
                found.append({"name": name, "day": day, **sizes})
                patience.over(partial(task.storage.upload, path, placed))
        except BaseException:
            with suppress(OSError):
                for file in found:
                    task.storage.delete(f"{task.folder}/{file['name']}" if task.folder else str(file["name"]))
            raise
        return found

    def _writer(self, day: str) -> pq.ParquetWriter:
        if day not in self._open:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).close()
            path = os.path.join(self._spool, f"{len(self._files)}.parquet")
            self._files.append((day, path))
            self._open[day] = pq.ParquetWriter(path, self._schema, compression="snappy")
        return self._open[day]
