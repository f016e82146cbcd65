"""A batch of a table with a key: the last message of a key is its row, and a tombstone removes the row.

    staged rows -> the last one of each key -> new files
    files of the table that have one of the keys -> the same without these rows
                                                    one commit adds both to the table, and removes the old files

Files without any of the keys stay. A file whose bounds exclude all keys is not even read. Readers need nothing special
for such a table, because there are no delete files. Memory: the rows of one batch, and a part of one file. If the table
is behind an address, the driver reads its files there, writes new ones on its own disk, and uploads them.

A tombstone is one of these messages:

    an empty body               the first of the message's KEYS is the key
    deletes = "op=d"            a message with this property, or with this value in this field of its body
    deletes = "gone"            the same as gone=true
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.lake import Lake
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles, Staged, StagedFile
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from sparrowmq.spark.pipelines.tables.json_bodies import BODY
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

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
    name_file: Callable[[StagedFile], StagedFile]
    target: UploadTarget | None = None

    def apply_to(self, lake: Lake, staged: Staged) -> Staged:
        """Return the files to add to and to remove from the table, for staged rows."""
        rows = last_row_by_key(self._read_staged(staged, lake.layout), self.key)
        if self.target is not None:
            self.target.remove(staged.files)
        keys = rows.column(self.key).combine_chunks()
        new = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        with PartitionFiles(self.folder, staged.schema, lake.layout) as files:
            for batch in new.select(staged.schema.names).cast(staged.schema).to_batches():
                files.write(batch)
        partitions = lake.partitions()
        touched = list(self._files_with_keys(sorted(partitions), keys))
        rest = [file for path in touched if (file := self._rewrite_without(path, partitions[path], keys)) is not None]
        found = [self.name_file(file) for file in [*files.files, *rest]]
        if self.target is not None:
            found = self.target.upload_files(found)
        return replace(staged, files=found, removed=touched)

    def _open(self, path: Path | str | None) -> pq.ParquetFile:
        if self.target is None:
            return pq.ParquetFile(path)
        storage = self.target.storage
        return pq.ParquetFile(storage.path(str(path)), filesystem=storage.files)

    def _read_staged(self, staged: Staged, layout: Layout) -> pa.Table:
        found = []
        for file in staged.files:
            with self._open(file.path if self.target is None else self.target.storage_name(file.name)) as source:
                rows = source.read()
            found.append(layout.add_path_columns(rows, file.partition, staged.schema))
        return pa.concat_tables(found)

    def _files_with_keys(self, paths: Sequence[Path], keys: pa.Array) -> Iterator[Path]:
        least, greatest = pc.min_max(keys).values()
        for path in paths:
            with self._open(path) as file:
                if self.key not in file.schema_arrow.names or self._excludes(file, least, greatest):
                    continue
                had = file.read(columns=[self.key]).column(0)
            if pc.any(pc.is_in(had, value_set=keys.cast(had.type))).as_py():
                yield path

    def _excludes(self, file: pq.ParquetFile, least: pa.Scalar, greatest: pa.Scalar) -> bool:
        at = file.schema_arrow.get_field_index(self.key)
        column = next(index for index, path in enumerate(_leaves(file)) if path == file.schema_arrow.field(at).name)
        for group in range(file.metadata.num_row_groups):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is None or not bounds.has_min_max:
                return False
            if bounds.min <= greatest.as_py() and bounds.max >= least.as_py():
                return False
        return True

    def _rewrite_without(self, path: Path, partition: str, keys: pa.Array) -> StagedFile | None:
        """Write the other rows of a file to a new one; None if there are none."""
        new, rows = self.folder / f"{uuid.uuid4().hex}.parquet", 0
        new.parent.mkdir(parents=True, exist_ok=True)
        with self._open(path) as source, pq.ParquetWriter(new, source.schema_arrow) as writer:
            for batch in source.iter_batches(_ROWS):
                had = batch.column(self.key)
                rest = batch.filter(pc.invert(pc.is_in(had, value_set=keys.cast(had.type))))
                rows += rest.num_rows
                writer.write_batch(rest)
        return StagedFile(new, "", partition, rows, new.stat().st_size) if rows else None


def last_row_by_key(rows: pa.Table, key: str) -> pa.Table:
    """Return the last row of each key: the later one in a queue; of two queues, that with the greater name."""
    places = rows.column(COORDINATES).combine_chunks()
    order = pa.table({name: pc.struct_field(places, name) for name in _ORDER})
    ordered = rows.take(pc.sort_indices(order, sort_keys=[(name, "ascending") for name in _ORDER]))
    numbered: Any = pa.table({"key": ordered.column(key), "at": pa.array(range(len(ordered)), pa.int64())})
    return ordered.take(numbered.group_by("key").aggregate([("at", "max")]).column("at_max"))


def _leaves(file: pq.ParquetFile) -> Iterator[str]:
    for index in range(file.metadata.num_columns):
        yield file.schema.column(index).path


@dataclass(frozen=True)
class Tombstones:
    """Finds tombstones. `key`, `deletes`: as in `TableSettings`. `kinds`: the columns of bodies."""

    key: str
    deletes: str | None
    kinds: Mapping[str, DataType]

    def mark_rows(
        self, messages: pa.RecordBatch, reason: pa.Array, values: list[pa.Array]
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the reasons, and the columns with one more: whether a row deletes. A missing key is a reason."""
        if self.key not in self.kinds:
            missing = pa.scalar(f"the body has no {self.key}, which is the key")
            return pc.coalesce(reason, missing), [*values, pa.repeat(False, len(reason))]
        at = list(self.kinds).index(self.key)
        deleted = self._by_mark(messages, values)
        is_empty = pc.fill_null(pc.equal(pc.binary_length(messages.column(BODY)), 0), False)
        if pc.any(is_empty).as_py():
            found = [
                _from_keys(keys, values[at].type) if empty else (why, key)
                for empty, keys, why, key in zip(
                    *(each.to_pylist() for each in (is_empty, messages.column("keys"), reason, values[at])), strict=True
                )
            ]
            reason = pa.array([why for why, _ in found], pa.string())
            values[at] = pa.array([key for _, key in found], values[at].type)
            deleted = pc.or_(deleted, is_empty)
        lacks = pc.and_(pc.is_null(reason), pc.is_null(values[at]))
        reason = pc.if_else(lacks, pa.scalar(f"the key {self.key} is null"), reason)
        return reason, [*values, deleted]

    def _by_mark(self, messages: pa.RecordBatch, values: list[pa.Array]) -> pa.Array:
        if self.deletes is None:
            return pa.repeat(False, messages.num_rows)
        name, is_given, value = self.deletes.partition("=")
        wanted = value if is_given else "true"
        found = pc.equal(pc.map_lookup(messages.column("properties"), name, "first"), wanted)
        if name in self.kinds:
            field = values[list(self.kinds).index(name)]
            if not pa.types.is_nested(field.type):
                text = pa.binary() if pa.types.is_binary(field.type) else pa.string()
                found = pc.or_kleene(found, pc.equal(field.cast(text), pa.scalar(wanted).cast(text)))
        return pc.fill_null(found, False)


def _from_keys(keys: str | None, kind: pa.DataType) -> tuple[str | None, object]:
    words = (keys or "").split()
    if not words:
        return "an empty body deletes the row of a key, and the message has no KEYS", None
    try:
        key = pa.scalar(words[0]).cast(kind).as_py()
        is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        # Arrow reads 0x1, and too many digits as another number.
        if not is_number or Decimal(words[0]) == key:
            return None, key
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidOperation):
        pass
    return f"the body is empty, and its KEYS {words[0]} are no {kind}", None
