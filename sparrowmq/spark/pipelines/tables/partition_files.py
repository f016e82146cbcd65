"""Writes rows as Parquet files, one for each partition, into a folder that no reader looks into.

Rows are held until there are enough for row groups that are worth reading. Then they are sorted by partition, and each
partition gets its rows at once. Few files are open at a time, and the memory is limited, however many rows and
partitions come.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.uncommitted_files import StagedFile

GROUP_ROWS: Final = 65_536
HELD_BYTES: Final = 32 << 20  # of all partitions together; sorting them takes as much again
MOST_OPEN: Final = 64  # files at a time
FOUND: Final = "name string, partition string, rows bigint, size bigint"  # of tasks, about their files


@dataclass
class PartitionFiles:
    """The files of one table's rows. Use it as a context: files are whole when it was left without an error.

    Attributes:
        schema: of the rows. written: the files, without the names that they get in the table.
    """

    folder: Path
    schema: pa.Schema
    layout: Layout
    written: list[StagedFile] = field(default_factory=list)
    _open: dict[str, _OneFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _held_bytes: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        with self._stack:
            if kind is None:
                self._flush()
                for partition in sorted(self._open):
                    self._end(partition)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, each to the file of its partition."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            for rows in pa.Table.from_batches(held).combine_chunks().to_batches():
                for partition, some in self.layout.divided(rows):
                    self._of(partition).write(some)

    def _of(self, partition: str) -> _OneFile:
        if partition not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open)))
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            writer = self._stack.enter_context(pq.ParquetWriter(path, self.layout.in_files(self.schema)))
            self._open[partition] = _OneFile(path, writer)
        return self._open[partition]

    def _end(self, partition: str) -> None:
        file = self._open.pop(partition)
        file.writer.close()
        self.written.append(StagedFile(file.path, "", partition, file.rows, file.path.stat().st_size))


@dataclass
class _OneFile:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.writer.write_batch(rows, row_group_size=GROUP_ROWS)


def as_rows(files: Iterable[StagedFile]) -> pa.RecordBatch:
    """Files as rows that a task returns to the driver."""
    found = [{name: getattr(file, name) for name in _SCHEMA.names} for file in files]
    return pa.RecordBatch.from_pylist(found, _SCHEMA)


def from_rows(rows: Iterable[Any]) -> list[StagedFile]:
    """The files in the rows of tasks, without their paths."""
    return [StagedFile(None, row.name, row.partition, row.rows, row.size) for row in rows]


_SCHEMA: Final = pa.schema(
    [("name", pa.string()), ("partition", pa.string()), ("rows", pa.int64()), ("size", pa.int64())]
)
