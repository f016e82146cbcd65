"""Writes rows as Parquet files, one for each day, into a folder that no reader looks into.

Rows are collected to row groups that are worth reading. The memory is limited, however many rows and days come.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY, StagedFile

GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 64 << 20  # of all files together
MOST_OPEN: Final = 64  # days at a time


@dataclass
class DayFiles:
    """The files of one table's rows. Use it as a context: files are whole when it was left without an error.

    Attributes:
        keeps_day: whether the files have the column of the day, and not only their folder's name.
        written: the files, without the names that they get in the table.
    """

    folder: Path
    schema: pa.Schema
    keeps_day: bool
    written: list[StagedFile] = field(default_factory=list)
    _open: dict[str, _OneFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _held_bytes: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        with self._stack:
            if kind is None:
                for day in sorted(self._open):
                    self._end(day)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, each to the file of its day."""
        days = rows.column(DAY)
        kept = rows if self.keeps_day else rows.drop_columns([DAY])
        for day in pc.unique(days):
            some = kept.filter(pc.equal(days, day)) if len(rows) else kept
            self._of(str(day.as_py())).add(some)
        self._held_bytes += kept.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._held_bytes = 0
            for file in self._open.values():
                file.flush()

    def _of(self, day: str) -> _OneFile:
        if day not in self._open:
            if len(self._open) >= MOST_OPEN:
                self._end(next(iter(self._open)))
            self.folder.mkdir(parents=True, exist_ok=True)
            schema = self.schema if self.keeps_day else self.schema.remove(self.schema.get_field_index(DAY))
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            writer = self._stack.enter_context(pq.ParquetWriter(path, schema))
            self._open[day] = _OneFile(path, writer)
        return self._open[day]

    def _end(self, day: str) -> None:
        file = self._open.pop(day)
        file.flush()
        file.writer.close()
        self.written.append(StagedFile(file.path, "", day, file.rows, file.path.stat().st_size))


@dataclass
class _OneFile:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _held_rows: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.rows += rows.num_rows
        self._held_rows += rows.num_rows
        if self._held_rows >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self.writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._held_rows = [], 0
