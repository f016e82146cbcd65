"""Writes rows as Parquet files, one for each day, into a folder that no reader looks into.

Rows are collected to row groups that are worth reading, so the memory of one file is limited, however many rows come.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY

GROUP_ROWS: Final = 65_536
GROUP_BYTES: Final = 32 << 20


class DayFile(NamedTuple):
    """A written file."""

    path: str
    day: str
    rows: int


@dataclass
class DayFiles:
    """The files of one table's rows. Use it as a context: files are whole when it was left without an error.

    Attributes:
        keeps_day: whether the files have the column of the day, and not only their folder's name.
    """

    folder: Path
    schema: pa.Schema
    keeps_day: bool
    written: list[DayFile] = field(default_factory=list)
    _open: dict[str, _OneFile] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        with self._stack:
            if kind is None:
                for day, file in sorted(self._open.items()):
                    file.flush()
                    self.written.append(DayFile(str(file.path), day, file.rows))

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows, each to the file of its day."""
        days = rows.column(DAY)
        kept = rows if self.keeps_day else rows.drop_columns([DAY])
        for day in pc.unique(days):
            some = kept.filter(pc.equal(days, day)) if len(rows) else kept
            self._of(str(day.as_py())).add(some)

    def _of(self, day: str) -> _OneFile:
        if day not in self._open:
            self.folder.mkdir(parents=True, exist_ok=True)
            schema = self.schema if self.keeps_day else self.schema.remove(self.schema.get_field_index(DAY))
            path = self.folder / f"{uuid.uuid4().hex}.parquet"
            writer = self._stack.enter_context(pq.ParquetWriter(path, schema))
            self._open[day] = _OneFile(path, writer)
        return self._open[day]


@dataclass
class _OneFile:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _held_rows: int = 0
    _held_bytes: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._held.append(rows)
        self.rows += rows.num_rows
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= GROUP_ROWS or self._held_bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self.writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._held_rows, self._held_bytes = [], 0, 0
