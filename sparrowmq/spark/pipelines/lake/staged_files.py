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
    """A Parquet file with rows of one partition; `name` is where it belongs, relative to the table's folder.

    Attributes:
        path: where it is; None if it was written where it belongs, under a name that no other has.
        partition: its path.
    """

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
    """The rows of one batch.

    Attributes:
        record: what its commit says about it (`progress.py`). folder: where they were written, behind an address.
        removed: files of the table that the same commit takes out.
    """

    files: Sequence[StagedFile]
    schema: pa.Schema
    record: str = ""
    folder: str | None = None
    removed: Sequence[Path] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def move_into_place(staged: Staged, folder: Path | Address, prefix: str, *, has_leftovers: bool) -> None:
    """Move the files to where they belong below `folder`. At an address they are there already.

    Args:
        may_have_left: an earlier attempt may have left files with this prefix; they go. It takes a look at all files.
    """
    if not isinstance(folder, Path):
        return
    names = {file.name for file in staged.files}
    for left in folder.rglob(f"{prefix}-*.parquet") if has_leftovers else ():
        if str(left.relative_to(folder)) not in names:
            left.unlink()
    for file in staged.files:
        assert file.path is not None
        sync(file.path)  # before a commit names it: neither Spark nor pyarrow does
        move_file(file.path, folder / file.name)


@dataclass
class PartitionFiles:
    """The files of one table's rows. Use it as a context: files are whole when it was left without an error.

    Attributes:
        schema: of the rows. written: the files, without the names that they get in the table.
    """

    folder: Path
    schema: pa.Schema
    layout: Layout
    files: list[StagedFile] = field(default_factory=list)
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
        if self._held_bytes >= BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            for rows in pa.Table.from_batches(held).combine_chunks().to_batches():
                for partition, some in self.layout.split_rows(rows):
                    self._of(partition).write(some)

    def _of(self, partition: str) -> _OneFile:
        if partition not in self._open:
            if len(self._open) >= MAX_OPEN_FILES:
                self._end(next(iter(self._open)))
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            writer = self._stack.enter_context(pq.ParquetWriter(path, self.layout.file_schema(self.schema)))
            self._open[partition] = _OneFile(path, writer)
        return self._open[partition]

    def _end(self, partition: str) -> None:
        file = self._open.pop(partition)
        file.writer.close()
        self.files.append(StagedFile(file.path, "", partition, file.rows, file.path.stat().st_size))


@dataclass
class _OneFile:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.writer.write_batch(rows, row_group_size=GROUP_ROWS)


def files_to_rows(files: Iterable[StagedFile]) -> pa.RecordBatch:
    """Return files as rows, for the driver."""
    found = [{name: getattr(file, name) for name in _SCHEMA.names} for file in files]
    return pa.RecordBatch.from_pylist(found, _SCHEMA)


def files_from_rows(rows: Iterable[Any]) -> list[StagedFile]:
    """Return the files of such rows, without their paths."""
    return [StagedFile(None, row.name, row.partition, row.rows, row.size) for row in rows]
