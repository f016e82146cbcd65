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
_ROWS_PER_BATCH: Final = 50_000


@dataclass(frozen=True)
class KeyedBatch:
    """The rows of a batch by their key; `folder` is for new files, and `target` for a table behind an address."""

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
        kept_rows = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        with PartitionFiles(self.folder, staged.schema, lake.layout) as files:
            for batch in kept_rows.select(staged.schema.names).cast(staged.schema).to_batches():
                files.write(batch)
        partitions = lake.partitions()
        replaced = list(self._files_with_keys(sorted(partitions), keys))
        rewritten = [
            file for path in replaced if (file := self._rewrite_without(path, partitions[path], keys)) is not None
        ]
        added = [self.name_file(file) for file in [*files.files, *rewritten]]
        if self.target is not None:
            added = self.target.upload_files(added)
        return replace(staged, files=added, removed=replaced)

    def _open(self, path: Path | str | None) -> pq.ParquetFile:
        if self.target is None:
            return pq.ParquetFile(path)
        storage = self.target.storage
        return pq.ParquetFile(storage.path(str(path)), filesystem=storage.files)

    def _read_staged(self, staged: Staged, layout: Layout) -> pa.Table:
        tables = []
        for file in staged.files:
            with self._open(file.path if self.target is None else self.target.storage_name(file.name)) as source:
                rows = source.read()
            tables.append(layout.add_path_columns(rows, file.partition, staged.schema))
        return pa.concat_tables(tables)

    def _files_with_keys(self, paths: Sequence[Path], keys: pa.Array) -> Iterator[Path]:
        least, greatest = pc.min_max(keys).values()
        for path in paths:
            with self._open(path) as file:
                if self.key not in file.schema_arrow.names or self._excludes(file, least, greatest):
                    continue
                file_keys = file.read(columns=[self.key]).column(0)
            if pc.any(pc.is_in(file_keys, value_set=keys.cast(file_keys.type))).as_py():
                yield path

    def _excludes(self, file: pq.ParquetFile, least: pa.Scalar, greatest: pa.Scalar) -> bool:
        field_index = file.schema_arrow.get_field_index(self.key)
        leaves = (file.schema.column(index).path for index in range(file.metadata.num_columns))
        column = next(index for index, path in enumerate(leaves) if path == file.schema_arrow.field(field_index).name)
        for group in range(file.metadata.num_row_groups):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is None or not bounds.has_min_max:
                return False
            if bounds.min <= greatest.as_py() and bounds.max >= least.as_py():
                return False
        return True

    def _rewrite_without(self, path: Path, partition: str, keys: pa.Array) -> StagedFile | None:
        """Write the other rows of a file to a new one; None if there are none."""
        target, rows = self.folder / f"{uuid.uuid4().hex}.parquet", 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._open(path) as source, pq.ParquetWriter(target, source.schema_arrow) as writer:
            for batch in source.iter_batches(_ROWS_PER_BATCH):
                batch_keys = batch.column(self.key)
                kept_rows = batch.filter(pc.invert(pc.is_in(batch_keys, value_set=keys.cast(batch_keys.type))))
                rows += kept_rows.num_rows
                writer.write_batch(kept_rows)
        return StagedFile(target, "", partition, rows, target.stat().st_size) if rows else None


def last_row_by_key(rows: pa.Table, key: str) -> pa.Table:
    """Return the last row of each key: the later one in a queue; of two queues, that with the greater name."""
    places = rows.column(COORDINATES).combine_chunks()
    order = pa.table({name: pc.struct_field(places, name) for name in _ORDER})
    ordered = rows.take(pc.sort_indices(order, sort_keys=[(name, "ascending") for name in _ORDER]))
    numbered_keys: Any = pa.table({"key": ordered.column(key), "at": pa.array(range(len(ordered)), pa.int64())})
    return ordered.take(numbered_keys.group_by("key").aggregate([("at", "max")]).column("at_max"))


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
        key_index = list(self.kinds).index(self.key)
        deleted = self._by_mark(messages, values)
        is_empty = pc.fill_null(pc.equal(pc.binary_length(messages.column(BODY)), 0), False)
        if pc.any(is_empty).as_py():
            keys_and_reasons = [
                _key_in_keys(keys, values[key_index].type) if empty else (problem, key)
                for empty, keys, problem, key in zip(
                    *(array.to_pylist() for array in (is_empty, messages.column("keys"), reason, values[key_index])),
                    strict=True,
                )
            ]
            reason = pa.array([problem for problem, _ in keys_and_reasons], pa.string())
            values[key_index] = pa.array([key for _, key in keys_and_reasons], values[key_index].type)
            deleted = pc.or_(deleted, is_empty)
        lacks_key = pc.and_(pc.is_null(reason), pc.is_null(values[key_index]))
        reason = pc.if_else(lacks_key, pa.scalar(f"the key {self.key} is null"), reason)
        return reason, [*values, deleted]

    def _by_mark(self, messages: pa.RecordBatch, values: list[pa.Array]) -> pa.Array:
        if self.deletes is None:
            return pa.repeat(False, messages.num_rows)
        name, has_value, value = self.deletes.partition("=")
        mark = value if has_value else "true"
        is_deleted = pc.equal(pc.map_lookup(messages.column("properties"), name, "first"), mark)
        if name in self.kinds:
            field = values[list(self.kinds).index(name)]
            if not pa.types.is_nested(field.type):
                text = pa.binary() if pa.types.is_binary(field.type) else pa.string()
                is_deleted = pc.or_kleene(is_deleted, pc.equal(field.cast(text), pa.scalar(mark).cast(text)))
        return pc.fill_null(is_deleted, False)


def _key_in_keys(keys: str | None, kind: pa.DataType) -> tuple[str | None, object]:
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
