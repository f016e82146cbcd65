"""Writes the rows of one batch as staged Parquet files, from the tasks of Spark.

In a folder: tasks write into a folder of the table's state, and a lake takes the files over. A batch that is written
again after a crash gets a folder of its own: on a cluster, workers of the driver that died may still write into the
folder before. Spark's engine writes the files of tables by the day, so bodies of megabytes stay in Java. Python's
workers write those of other tables.

At an address:

    task 0: rows -> a file on the worker's disk -> s3://bucket/orders/data/_day=…/w-000000007-3f…-0.parquet
    driver: the names, partitions and sizes of all -> one commit

Each file has a name that no other attempt uses, and no reader sees it before the commit. A task that fails removes its
files; `compact` removes those of a killed worker. A store that is away only delays a task.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f

from sparrowmq.core.process import freeze_loaded_objects
from sparrowmq.spark.pipelines.lake.address import Address, Storage
from sparrowmq.spark.pipelines.lake.lake import DATA_FOLDERS, Lake, TableLocation, staging_address
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Layout, Partitioning
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.retry_policy import MAX_WAIT_S, RetryPolicy, secret_values
from sparrowmq.spark.pipelines.lake.staged_files import (
    FILE_ROWS,
    PartitionFiles,
    Staged,
    StagedFile,
    files_from_rows,
    files_to_rows,
)
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_FOLDER_DAY = "_folder_day"


def stage_rows(rows: DataFrame, folder: Path, prefix: str, layout: Layout) -> Staged:
    """Write rows into a new folder in `folder`, which is cleared; `prefix` begins names in the table, by the batch."""
    shutil.rmtree(folder, ignore_errors=True)
    batch_folder = folder / uuid.uuid4().hex
    schema, partitioning = arrow_schema(rows.schema), layout.partitioning
    if partitioning.fields == BY_DAY.fields:
        files = _write_by_engine(rows, batch_folder, layout)
    else:
        task_rows = (
            cluster_rows(rows, partitioning).mapInArrow(_TaskFiles(batch_folder, schema, layout), FILE_ROWS).collect()
        )
        files = [replace(file, path=Path(file.name)) for file in files_from_rows(task_rows)]
    return Staged([file.with_name(f"{prefix}-{number:05}", layout) for number, file in enumerate(files)], schema)


def _write_by_engine(rows: DataFrame, batch_folder: Path, layout: Layout) -> list[StagedFile]:
    partition_column = _FOLDER_DAY if layout.keeps_columns else DAY
    divided = rows.withColumn(partition_column, f.col(DAY)) if layout.keeps_columns else rows
    divided.write.partitionBy(partition_column).parquet(str(batch_folder))
    return [
        StagedFile(
            path,
            "",
            f"{DAY}={path.parent.name.partition('=')[2]}",
            pq.read_metadata(path).num_rows,
            path.stat().st_size,
        )
        for path in sorted(batch_folder.glob(f"{partition_column}=*/*.parquet"))
    ]


@dataclass(frozen=True)
class _TaskFiles:
    """A function for `mapInArrow`: it writes the rows of a task, and returns a row for each of its files."""

    folder: Path
    schema: pa.Schema
    layout: Layout

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_loaded_objects()
        with PartitionFiles(self.folder, self.schema, self.layout) as files:
            for batch in batches:
                files.write(batch.select(self.schema.names).cast(self.schema))
        yield files_to_rows(replace(file, name=str(file.path)) for file in files.files)


def cluster_rows(rows: DataFrame, partitioning: Partitioning) -> DataFrame:
    """Bring rows with the same partition fields into one task, so that a batch has few files."""
    sources = sorted({field.source for field in partitioning.body_fields} & set(rows.columns))
    return rows.hint("rebalance", *(f.col(f"`{name}`") for name in sources)) if sources else rows


@dataclass(frozen=True)
class UploadTarget:
    """A place for the files of one batch, below a storage; a task waits for `wait_s` for a store that is away."""

    storage: Storage
    folder: str
    prefix: str
    layout: Layout
    wait_s: float = MAX_WAIT_S

    def upload_files(self, files: Sequence[StagedFile]) -> list[StagedFile]:
        """Upload files of this machine: all of them, or none."""
        retry = RetryPolicy(self.storage.url, secrets=secret_values({}), limit_s=self.wait_s)
        uploaded = list[StagedFile]()
        try:
            for number, file in enumerate(files):
                target_file = replace(
                    file.with_name(f"{self.prefix}-{uuid.uuid4().hex}-{number:05}", self.layout), path=None
                )
                uploaded.append(target_file)
                retry.call(partial(self.storage.upload, str(file.path), self.storage_name(target_file.name)))
        except BaseException:
            self.remove(uploaded)
            raise
        return uploaded

    def remove(self, files: Iterable[StagedFile]) -> None:
        """Remove files that belong to no commit, as far as possible."""
        with suppress(OSError):
            for file in files:
                self.storage.delete(self.storage_name(file.name))

    def storage_name(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name


def upload_target(lake: Lake, location: TableLocation, kind: str, prefix: str) -> UploadTarget:
    """The target of a batch for a table behind an address. Raises: ConfigError, another run has become the owner."""
    address, folder = location.path, DATA_FOLDERS.get(kind, "")
    assert isinstance(address, Address)
    if kind == "parquet":  # It has no log of commits: readers would see files at once.
        address, folder = staging_address(location), uuid.uuid4().hex
        assert isinstance(lake, RemoteLake)
        lake.clear_staged()
    return UploadTarget(address.storage, folder, prefix, lake.layout, location.wait_s)


def stage_remote_rows(rows: DataFrame, lake: Lake, location: TableLocation, kind: str, prefix: str) -> Staged:
    """Write rows for a table behind an address. Raises: ConfigError, another run has become the owner."""
    target, schema = upload_target(lake, location, kind, prefix), arrow_schema(rows.schema)
    write = RemoteTaskFiles(target, schema)
    files = files_from_rows(cluster_rows(rows, lake.layout.partitioning).mapInArrow(write, FILE_ROWS).collect())
    return Staged(sorted(files, key=lambda file: file.name), schema, folder=target.folder)


@dataclass(frozen=True)
class RemoteTaskFiles:
    """A function for `mapInArrow`: it writes the rows of a task, and returns a row for each of its files."""

    target: UploadTarget
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="sparrowmq-") as spool:
            with PartitionFiles(Path(spool), self.schema, self.target.layout) as files:
                for batch in batches:
                    files.write(batch.select(self.schema.names).cast(self.schema))
            file_rows = files_to_rows(self.target.upload_files(files.files))
        yield file_rows
