"""Rewrites of a table's files: small files become large ones, and columns get wider types.

Both work in memory that does not grow with the files. A rewrite of the whole table goes file by file:

    files of the table -> files in a folder of the state -> one commit that replaces all files

A reader sees the table before or after the commit. A run that is killed before the commit leaves files that no reader
sees, and the next run starts again.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.core.snapshot import sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.lake import FILE_BYTES, Lake
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.lake.widening import retypes, widen_values

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.lake import Lake
    from sparrowmq.spark.pipelines.lake.partitioning import Layout

_SMALL_DIVISOR: Final = 4  # a file of a quarter of the size is large enough to stay
TINY_BYTES: Final = 1 << 20
MERGE_AT_TINY_FILES: Final = 100
_MAX_MERGES: Final = 8  # of one commit; other partitions wait for the next one
_ROWS_PER_BATCH: Final = 50_000
REWRITTEN_PREFIX: Final = "rewritten"  # begins the names of files


class TinyFiles:
    """Counts the tiny files of each partition, which slow down commits; a commit merges them when there are many."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None  # what this process has not counted yet is not known

    def add(
        self, batch_files: Staged, list_tiny_partitions: Callable[[], Iterable[str]], merge: Callable[[str], int]
    ) -> None:
        """Count the files of a batch, once they are in the table.

        `list_tiny_partitions` returns the partition of each tiny file of the table. `merge` merges the tiny files of a
        partition if they are MERGE_AT_TINY_FILES or more, and returns how many are left.
        """
        if self._counts is None:
            self._counts = Counter(list_tiny_partitions())
        else:
            self._counts.update(file.partition for file in batch_files.files if file.size < TINY_BYTES)
        for partition, count in self._counts.most_common(_MAX_MERGES):
            if count >= MERGE_AT_TINY_FILES:
                self._counts[partition] = merge(partition)


def group_small_files(files: Sequence[Path], max_bytes: int = FILE_BYTES) -> Iterator[list[Path]]:
    """Yield groups of two or more small files, each of about `max_bytes` at most."""
    group: list[Path] = []
    size = 0
    for file in files:
        file_size = file.stat().st_size
        if file_size * _SMALL_DIVISOR >= max_bytes:
            continue
        if size + file_size > max_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file_size
    if len(group) > 1:
        yield group


def merge_files(files: Sequence[Path], target: Path) -> None:
    """Write the rows of Parquet files, in order, to one file; missing columns become null."""
    schemas = [pq.read_schema(file).remove_metadata() for file in files]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, schema, compression="snappy") as writer:
        for file in files:
            with pq.ParquetFile(file) as source:
                for batch in source.iter_batches(_ROWS_PER_BATCH):
                    writer.write_batch(_conform(schema, batch))
    sync(target)


def _conform(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        widen_values(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Makes other rows of rows; none if there are none.
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


def widen_columns(lake: Lake, schema: pa.Schema, folder: Path) -> list[str]:
    """Give columns the types of a schema where these are wider, and return them. `folder` is for new files."""
    columns = lake.columns()
    if wider := _wider_types(columns, schema):
        files = rewrite_files(lake.partitions(), folder, partial(_widen_batch, wider))
        kinds = pa.schema([(name, wider.get(name, kind)) for name, kind in columns.items()])
        lake.rewrite(Staged(files, kinds))
        shutil.rmtree(folder, ignore_errors=True)
    return list(wider)


def check_needs_no_wider_types(lake: Lake, schema: pa.Schema, address: object) -> None:
    """Raises: ConfigError, columns of a table behind an address would need wider types."""
    if wider := _wider_types(lake.columns(), schema):
        raise ConfigError(
            f"{address}: {', '.join(wider)} would need wider types, and only files on this machine are written again; "
            "begin a new table at another address"
        )


def _wider_types(columns: Mapping[str, pa.DataType], schema: pa.Schema) -> dict[str, pa.DataType]:
    return {
        field.name: field.type for field in schema if field.name in columns and retypes(columns[field.name], field.type)
    }


def can_widen(lake: Lake, name: str, kind: pa.DataType) -> bool:
    """Whether a wider type holds each value of a column exactly."""
    for file in lake.paths():
        with pq.ParquetFile(file) as source:
            if name not in source.schema_arrow.names:
                continue
            for batch in source.iter_batches(_ROWS_PER_BATCH, columns=[name]):
                try:
                    widen_values(batch.column(name), kind)
                except pa.ArrowInvalid:
                    return False
    return True


def rewrite_files(files: Mapping[Path, str], folder: Path, change: Change) -> list[StagedFile]:
    """Return new files with the changed rows of files, under their names; files without rows are left out."""
    shutil.rmtree(folder, ignore_errors=True)
    staged_files = []
    for number, (file, partition) in enumerate(sorted(files.items())):
        target = folder / f"{number:06}.parquet"
        rows = _rewrite_file(file, target, change)
        if rows:
            name = f"{partition}/{file.name}" if partition else file.name
            staged_files.append(StagedFile(target, name, partition, rows, target.stat().st_size))
    return staged_files


def with_new_names(batch_files: Staged, layout: Layout) -> Staged:
    """Give files names that no file of the table ever had."""
    prefix = f"{REWRITTEN_PREFIX}-{uuid.uuid4().hex}"
    files = [file.with_name(f"{prefix}-{number:05}", layout) for number, file in enumerate(batch_files.files)]
    return Staged(files, batch_files.schema)


def _rewrite_file(file: Path, target: Path, change: Change) -> int:
    """Write the changed rows of one file, and return how many there are."""
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetFile(file) as source:
        empty = pa.RecordBatch.from_pylist([], schema=source.schema_arrow.remove_metadata())
        with pq.ParquetWriter(target, change(empty).schema, compression="snappy") as writer:
            for batch in source.iter_batches(_ROWS_PER_BATCH):
                changed = change(batch)
                rows += changed.num_rows
                writer.write_batch(changed)
    return rows


def _widen_batch(wider_types: Mapping[str, pa.DataType], rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        widen_values(rows.column(index), wider_types.get(field.name, field.type))
        for index, field in enumerate(rows.schema)
    ]
    fields = [field.with_type(column.type) for field, column in zip(rows.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
