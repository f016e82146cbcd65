"""Writes the rows of one batch as Parquet files behind an address, from Spark's workers.

    task 0: rows -> a file on the worker's disk -> s3://bucket/orders/data/_day=…/w-000000007-3f…-0.parquet
    driver: the names, partitions and sizes of all -> one commit

Each file has a name that no other attempt uses, and no reader sees it before the commit. A task that fails removes
what it has written. What a killed worker leaves is removed by `compact`. A file is complete on the disk of the worker
before the first byte goes out, so a store that is away only delays the task, and memory does not grow with the file.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from sparrowmq.spark.pipelines.lake.address import Address, Storage
from sparrowmq.spark.pipelines.lake.lake import DATA_FOLDERS, Lake, Place, staging_of
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged, StagedFile
from sparrowmq.spark.pipelines.lake.waiting import LIMIT_S, Patience, secrets_of
from sparrowmq.spark.pipelines.tables.batch_files import together
from sparrowmq.spark.pipelines.tables.partition_files import FOUND, PartitionFiles, as_rows, from_rows
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Target:
    """A place for the files of one batch.

    Attributes:
        folder: below the storage, where they wait for the commit. prefix: of their names, behind the partition.
        layout: of the table.
        wait_s: how long a task waits for a store that is away.
    """

    storage: Storage
    folder: str
    prefix: str
    layout: Layout
    wait_s: float = LIMIT_S

    def uploaded(self, files: Sequence[StagedFile]) -> list[StagedFile]:
        """Write files of this machine there. A file that cannot be written takes the others with it."""
        patience = Patience(self.storage.url, secrets=secrets_of({}), limit_s=self.wait_s)
        found = list[StagedFile]()
        try:
            for number, file in enumerate(files):
                new = replace(file.named(f"{self.prefix}-{uuid.uuid4().hex}-{number:05}", self.layout), path=None)
                found.append(new)
                patience.over(partial(self.storage.upload, str(file.path), self.placed(new.name)))
        except BaseException:
            self.remove(found)
            raise
        return found

    def remove(self, files: Iterable[StagedFile]) -> None:
        """Remove files that no commit gets, as far as the store lets."""
        with suppress(OSError):
            for file in files:
                self.storage.delete(self.placed(file.name))

    def placed(self, name: str) -> str:
        """The name below the storage of a file."""
        return f"{self.folder}/{name}" if self.folder else name


def target_in(lake: Lake, place: Place, kind: str, prefix: str) -> Target:
    """The target of a batch for a table behind an address; `prefix` begins the names of its files.

    Raises: ConfigError, another run has become the owner.
    """
    to, folder = place.path, DATA_FOLDERS.get(kind, "")
    assert isinstance(to, Address)
    if kind == "parquet":  # It has no log of commits: readers would see files at once.
        to, folder = staging_of(place), uuid.uuid4().hex
        assert isinstance(lake, RemoteLake)
        lake.clear_staged()
    return Target(to.storage, folder, prefix, lake.layout, place.wait_s)


def stage_remotely(rows: DataFrame, lake: Lake, place: Place, kind: str, prefix: str) -> Staged:
    """Write rows for a table behind an address. Raises: ConfigError, another run has become the owner."""
    target, schema = target_in(lake, place, kind, prefix), arrow_schema(rows.schema)
    write = TaskFiles(target, schema)
    found = from_rows(together(rows, lake.layout.partitioning).mapInArrow(write, FOUND).collect())
    return Staged(sorted(found, key=lambda file: file.name), schema, folder=target.folder)


@dataclass(frozen=True)
class TaskFiles:
    """A function for `mapInArrow`: it writes the rows of a task, and returns a row for each of its files."""

    target: Target
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="sparrowmq-") as spool:
            with PartitionFiles(Path(spool), self.schema, self.target.layout) as files:
                for batch in batches:
                    files.write(batch.select(self.schema.names).cast(self.schema))
            found = as_rows(self.target.uploaded(files.written))
        yield found
