"""A batch of a table with a key: the last message of a key is its row, and a tombstone takes the row out.

    staged rows -> the last one of each key -> new files
    files of the table that have one of the keys -> the same without these rows
                                                    one commit puts both into the table, and takes the old files out

Files that have none of the keys stay. A file whose bounds exclude all keys is not even read. Readers need nothing
special for such a table, as there are no delete files. Memory: the rows of one batch, and a part of one file.

If the table is at an address, the driver reads its files there, writes new ones on its own disk, and uploads them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.lake import Lake
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables.partition_files import PartitionFiles
from sparrowmq.spark.pipelines.tables.remote_files import Target
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES

DELETED: Final = "\0deleted"  # a column of staged rows only; no field of a body has this name (`is_name`)

_ORDER: Final = ("brokerName", "queueId", "queueOffset")
_ROWS: Final = 50_000


@dataclass(frozen=True)
class KeyedBatch:
    """The rows of a batch by their key.

    Attributes:
        key: the column. folder: for new files. named: gives files their names.
        target: of the batch, if the table is behind an address.
    """

    key: str
    folder: Path
    named: Callable[[StagedFile], StagedFile]
    target: Target | None = None

    def on(self, lake: Lake, staged: Staged) -> Staged:
        """Return the files that the table gets, and those that it loses, for staged rows."""
        rows = last_of_each(self._read(staged, lake.layout), self.key)
        if self.target is not None:
            self.target.remove(staged.files)
        keys = rows.column(self.key).combine_chunks()
        new = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        with PartitionFiles(self.folder, staged.schema, lake.layout) as files:
            for batch in new.select(staged.schema.names).cast(staged.schema).to_batches():
                files.write(batch)
        partitions = lake.partitions()
        touched = list(self._touched(sorted(partitions), keys))
        rest = [file for path in touched if (file := self._without(path, partitions[path], keys)) is not None]
        found = [self.named(file) for file in [*files.written, *rest]]
        if self.target is not None:
            found = self.target.uploaded(found)
        return replace(staged, files=found, removed=touched)

    def _open(self, path: Path | str | None) -> pq.ParquetFile:
        """A file of the table, or a staged one."""
        if self.target is None:
            return pq.ParquetFile(path)
        storage = self.target.storage
        return pq.ParquetFile(storage.path(str(path)), filesystem=storage.files)

    def _read(self, staged: Staged, layout: Layout) -> pa.Table:
        found = []
        for file in staged.files:
            with self._open(file.path if self.target is None else self.target.placed(file.name)) as source:
                rows = source.read()
            found.append(layout.whole(rows, file.partition, staged.schema))
        return pa.concat_tables(found)

    def _touched(self, paths: Sequence[Path], keys: pa.Array) -> Iterator[Path]:
        """The files that have one of the keys."""
        least, greatest = pc.min_max(keys).values()
        for path in paths:
            with self._open(path) as file:
                if self.key not in file.schema_arrow.names or self._excludes(file, least, greatest):
                    continue
                had = file.read(columns=[self.key]).column(0)
            if pc.any(pc.is_in(had, value_set=keys.cast(had.type))).as_py():
                yield path

    def _excludes(self, file: pq.ParquetFile, least: pa.Scalar, greatest: pa.Scalar) -> bool:
        """Whether the bounds of a file exclude all keys between two."""
        at = file.schema_arrow.get_field_index(self.key)
        column = next(index for index, path in enumerate(_leaves(file)) if path == file.schema_arrow.field(at).name)
        for group in range(file.metadata.num_row_groups):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is None or not bounds.has_min_max:
                return False
            if bounds.min <= greatest.as_py() and bounds.max >= least.as_py():
                return False
        return True

    def _without(self, path: Path, partition: str, keys: pa.Array) -> StagedFile | None:
        """A new file with the other rows of one; None if there are none."""
        new, rows = self.folder / f"{uuid.uuid4().hex}.parquet", 0
        new.parent.mkdir(parents=True, exist_ok=True)
        with self._open(path) as source, pq.ParquetWriter(new, source.schema_arrow) as writer:
            for batch in source.iter_batches(_ROWS):
                had = batch.column(self.key)
                rest = batch.filter(pc.invert(pc.is_in(had, value_set=keys.cast(had.type))))
                rows += rest.num_rows
                writer.write_batch(rest)
        return StagedFile(new, "", partition, rows, new.stat().st_size) if rows else None


def last_of_each(rows: pa.Table, key: str) -> pa.Table:
    """Return the last row of each key: later in its queue. Of two queues the one with the greater name counts."""
    places = rows.column(COORDINATES).combine_chunks()
    order = pa.table({name: pc.struct_field(places, name) for name in _ORDER})
    ordered = rows.take(pc.sort_indices(order, sort_keys=[(name, "ascending") for name in _ORDER]))
    numbered: Any = pa.table({"key": ordered.column(key), "at": pa.array(range(len(ordered)), pa.int64())})
    return ordered.take(numbered.group_by("key").aggregate([("at", "max")]).column("at_max"))


def _leaves(file: pq.ParquetFile) -> Iterator[str]:
    for index in range(file.metadata.num_columns):
        yield file.schema.column(index).path
