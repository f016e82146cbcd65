"""Staged files: the rows of one batch as Parquet files that no reader sees before the commit.

`PartitionFiles` writes them, one for each partition. It buffers rows until there are enough for row groups that are
worth reading, sorts them by partition, and writes each partition's rows at once. Few files are open at a time, and
memory is limited, however many rows and partitions come. `move_into_place` moves the files into the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.core.snapshot import sync
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.running.folders import move_file

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.address import Address

GROUP_ROWS: Final = 65_536
BUFFER_BYTES: Final = 32 << 20  # of all partitions together; sorting them takes as much again
MAX_OPEN_FILES: Final = 64  # files at a time
FILE_ROWS: Final = "name string, partition string, rows bigint, size bigint"  # of tasks, about their files
_SCHEMA: Final = pa.schema(
    [("name", pa.string()), ("partition", pa.string()), ("rows", pa.int64()), ("size", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file with rows of one partition; `path` is None if it was written under its `name` in the table."""

    path: Path | None
    name: str
    partition: str
    rows: int
    size: int

    def with_name(self, stem: str, layout: Layout) -> StagedFile:
        """Return the file with its name in the table."""
        return replace(self, name=layout.name(self.partition, stem))


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one batch, in `folder` behind an address; its commit takes the files `removed` out of the table."""

    files: Sequence[StagedFile]
    schema: pa.Schema
    record: str = ""
    folder: str | None = None
    removed: Sequence[Path] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def move_into_place(staged: Staged, folder: Path | Address, prefix: str, *, has_leftovers: bool) -> None:
    """Move files to their places in a folder; at an address they are there. Other files of the prefix may go."""
    if not isinstance(folder, Path):
        return
    names = {file.name for file in staged.files}
    for leftover in folder.rglob(f"{prefix}-*.parquet") if has_leftovers else ():
        if str(leftover.relative_to(folder)) not in names:
            leftover.unlink()
    for file in staged.files:
        assert file.path is not None
        sync(file.path)  # before a commit names it: neither Spark nor pyarrow does
        move_file(file.path, folder / file.name)


@dataclass
class PartitionFiles:
    """The files of one table's rows, without names in the table; whole when this context was left without an error."""

    folder: Path
    schema: pa.Schema
    layout: Layout
    files: list[StagedFile] = field(default_factory=list)
    _open: dict[str, _OpenFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _buffered: list[pa.RecordBatch] = field(default_factory=list)
    _buffered_bytes: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        with self._stack:
            if kind is None:
                self._flush()
                for partition in sorted(self._open):
                    self._close_file(partition)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, each to the file of its partition."""
        self._buffered.append(rows)
        self._buffered_bytes += rows.nbytes
        if self._buffered_bytes >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        batches, self._buffered, self._buffered_bytes = self._buffered, [], 0
        if batches:
            for rows in pa.Table.from_batches(batches).combine_chunks().to_batches():
                for partition, partition_rows in self.layout.split_rows(rows):
                    self._file_for(partition).write(partition_rows)

    def _file_for(self, partition: str) -> _OpenFile:
        if partition not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close_file(next(iter(self._open)))
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            writer = self._stack.enter_context(pq.ParquetWriter(path, self.layout.file_schema(self.schema)))
            self._open[partition] = _OpenFile(path, writer)
        return self._open[partition]

    def _close_file(self, partition: str) -> None:
        file = self._open.pop(partition)
        file.writer.close()
        self.files.append(StagedFile(file.path, "", partition, file.rows, file.path.stat().st_size))


@dataclass
class _OpenFile:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.writer.write_batch(rows, row_group_size=GROUP_ROWS)


def files_to_rows(files: Iterable[StagedFile]) -> pa.RecordBatch:
    """Return files as rows, for the driver."""
    return pa.RecordBatch.from_pylist(
        [{name: getattr(file, name) for name in _SCHEMA.names} for file in files], _SCHEMA
    )


def files_from_rows(rows: Iterable[Any]) -> list[StagedFile]:
    """Return the files of such rows, without their paths."""
    return [StagedFile(None, row.name, row.partition, row.rows, row.size) for row in rows]
