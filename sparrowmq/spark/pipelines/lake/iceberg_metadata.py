"""The metadata of an Iceberg table: its partitions, the upkeep of its snapshots, and the times of its commits.

Partitions are real partition transforms of the table's specification. Spark, Trino and pyiceberg skip files by
conditions on the columns themselves: there are no partition columns. The store time is the field `_mq.storeTimestamp`.
A data file gets its partition values from its path, because the bounds in a file's footer do not say which bucket it
belongs to.

Upkeep keeps the cost of a commit the same, however many came before. Without it, each commit would copy the list of all
snapshots, and write a list of all manifests.

    each commit              snapshots beyond the newest ten are dropped from the metadata
    each 50 commits          manifests become one; files that no snapshot needs are noted, and deleted an hour later
    100 tiny files of a partition  become one file

Commit times never go back, even if the clock of this machine does. Iceberg's Java refuses a table whose snapshots, or
versions of metadata, go back by more than a minute, and pyiceberg writes the time of the clock.

    clock          10:00   11:00   10:10         10:20
    commits        10:00   11:00   11:00 + 1 ms  11:00 + 2 ms
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow.fs import FileSelector
from pyiceberg import types
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.compaction import MERGE_AT_TINY_FILES, TINY_BYTES, TinyFiles, merge_files
from sparrowmq.spark.pipelines.lake.partitioning import (
    TIME_TRANSFORMS,
    PartitionField,
    Partitioning,
    partition_text,
    time_text,
)
from sparrowmq.spark.pipelines.lake.unused_files import UnusedFiles

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import CommitTableResponse, FileScanTask, StagedTable, Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

    from sparrowmq.spark.pipelines.lake.staged_files import Staged

_EPOCH: Final = datetime(1970, 1, 1)
_HOUR_US: Final = 3_600_000_000
_PARTITION_INDEX: Final = 3  # the place of the partition among the fields of a data file
_MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
# Properties of a table that its owner may change. A manifest has about 3,000 files in 512 KiB: pyiceberg needs 0.1 ms
# to copy the entry of one.
SETTINGS: Final = {
    _MIN_SNAPSHOTS: "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "commit.manifest.target-size-bytes": str(512 << 10),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
UNUSED_DELAY_S: Final = 3600.0  # for so long readers may need a file that the table has dropped
_MAX_UNUSED_FILES: Final = 1000  # an hour of batches, one each 10 seconds, leaves so many
_COMMITS_PER_UPKEEP: Final = 50


class IcebergPartitions:
    def __init__(self, partitioning: Partitioning) -> None:
        self._partitioning = partitioning

    def set_spec(self, table: Table) -> None:
        if self._partitioning.fields and not table.spec().fields:
            with table.update_spec() as update:
                for field in self._partitioning.fields:
                    update.add_field(field.source, _transform(field), field.name)

    def describe_spec(self, table: Table) -> str:
        """Return the partition spec of a table in words."""
        schema = table.schema()
        expected = [(field.source, str(_transform(field))) for field in self._partitioning.fields]
        spec = [(schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
        if spec == expected:
            return str(self._partitioning)
        return ", ".join(f"{transform} of {source}" for source, transform in spec) or "none"

    def data_file(self, io: FileIO, metadata: TableMetadata, path: str, partition: str | Record) -> DataFile:
        """Return the manifest entry of a Parquet file; `partition`: a path, or the record of another entry."""
        unpartitioned = metadata.model_copy(
            update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0}
        )
        file = parquet_file_to_data_file(io, unpartitioned, path)
        file[_PARTITION_INDEX] = self.record(metadata, partition) if isinstance(partition, str) else partition
        file.spec_id = metadata.default_spec_id
        return file

    def record(self, metadata: TableMetadata, path: str) -> Record:
        texts = self._partitioning.values(path)
        kinds = _source_types(self._partitioning, metadata)
        return Record(
            *(
                None if (text := texts[field.name]) is None else _partition_value(field, kind, text)
                for field, kind in zip(self._partitioning.fields, kinds, strict=True)
            )
        )

    def path(self, metadata: TableMetadata, partition: Record) -> str:
        kinds = _source_types(self._partitioning, metadata)
        return self._partitioning.path_for(
            {
                field.name: None if (value := partition[index]) is None else _path_text(field, kinds[index], value)
                for index, field in enumerate(self._partitioning.fields)
            }
        )


_TRANSFORMS: Final[Mapping[str, Callable[[], Transform[Any, Any]]]] = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}


def _transform(field: PartitionField) -> Transform[Any, Any]:
    if field.transform in ("bucket", "truncate"):
        return (BucketTransform if field.transform == "bucket" else TruncateTransform)(field.width)
    return _TRANSFORMS[field.transform]()


def _source_types(partitioning: Partitioning, metadata: TableMetadata) -> list[types.IcebergType]:
    schema = metadata.schema()
    return [schema.find_field(field.source).field_type for field in partitioning.fields]


def _partition_value(field: PartitionField, kind: types.IcebergType, text: str) -> Any:
    if field.transform == "bucket":
        return int(text)
    if field.transform in TIME_TRANSFORMS:
        return _periods_since_1970(field.transform, text)
    match kind:
        case types.StringType():
            return text
        case types.DateType():
            return (date.fromisoformat(text) - _EPOCH.date()).days
        case types.BooleanType():
            return text == "true"
        case types.DecimalType():
            return Decimal(text)
    return int(text)


def _periods_since_1970(unit: str, text: str) -> int:
    """The years, months, days or hours from 1970 to a time."""
    parts = [int(part) for part in text.split("-")]
    if unit == "year":
        return parts[0] - 1970
    if unit == "month":
        return (parts[0] - 1970) * 12 + parts[1] - 1
    days = (date(*parts[:3]) - _EPOCH.date()).days
    return days if unit == "day" else days * 24 + parts[3]


def _path_text(field: PartitionField, kind: types.IcebergType, value: Any) -> str:
    """A value of a manifest, as paths have it."""
    match field.transform:
        case "year":
            return f"{1970 + value:04}"
        case "month":
            return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
        case "day":
            kind = types.DateType()
        case "hour":
            return time_text("hour", micros_to_timestamp(value * _HOUR_US))
    is_days = isinstance(kind, types.DateType) and isinstance(value, int) and field.transform != "bucket"
    return partition_text(days_to_date(value) if is_days else value)


def missing_settings(table: Table) -> dict[str, str]:
    """Return the properties that a table of an earlier release lacks."""
    return {name: value for name, value in SETTINGS.items() if name not in table.properties}


def drop_snapshots(change: Transaction, keep_count: int | None = None, since_s: float = 0.0) -> None:
    """Drop all but the newest `keep_count` without a branch or tag, and but for the newest those before `since_s`."""
    metadata = change.table_metadata
    keep_count = keep_count or int(metadata.properties.get(_MIN_SNAPSHOTS, SETTINGS[_MIN_SNAPSHOTS]))
    newest = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)[-keep_count:]
    newest = [snapshot for snapshot in newest if snapshot is newest[-1] or snapshot.timestamp_ms >= since_s * 1000]
    kept_ids = {snapshot.snapshot_id for snapshot in newest} | {ref.snapshot_id for ref in metadata.refs.values()}
    if dropped_ids := [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in kept_ids]:
        ExpireSnapshots(transaction=change).by_ids(dropped_ids).commit()


def check_no_deletes(place: object, tasks: Iterable[FileScanTask]) -> None:
    """Raises: ConfigError, a delete file removed rows of one of these files."""
    if any(task.delete_files for task in tasks):
        raise ConfigError(
            f"another program took rows out of {place} by delete files, and its data files still have them; let it "
            "write these again (CALL system.rewrite_data_files with 'delete-file-threshold' = '1'), and set "
            "write.delete.mode, write.update.mode and write.merge.mode of the table to copy-on-write"
        )


class Upkeep:
    """Removes and merges files of one table between its commits."""

    def __init__(self, state: Path, partitions: IcebergPartitions) -> None:
        self._partitions = partitions
        self._unused = UnusedFiles(state / "unused.json")
        self._commits = 0
        self._tiny = TinyFiles()

    def after_commit(self, table: Table, staged: Staged, summary: Mapping[str, str]) -> None:
        """Look after the table, after a commit of these files; a snapshot of merged files repeats its summary."""
        self._tiny.add(
            staged,
            lambda: [partition for partition, _ in self._tiny_files(table)],
            lambda partition: self._merge(table, partition, summary),
        )
        self._commits += 1
        if self._commits % _COMMITS_PER_UPKEEP == 0:
            self.remove_unused(table)

    def remove_unused(self, table: Table, more: Iterable[str] = ()) -> None:
        """Note unreferenced metadata and the files in `more`, and delete files that were noted long ago."""
        needed = _referenced_metadata(table)
        self._unused.note([*(path for path in _existing_metadata(table) if path not in needed), *more])
        needed |= tagged_files(table)
        needed |= {task.file.file_path for task in table.scan().plan_files()}  # it may have been rolled back
        self._unused.remove(table.io.delete, UNUSED_DELAY_S, needed, _MAX_UNUSED_FILES)

    def _tiny_files(self, table: Table) -> Iterator[tuple[str, DataFile]]:
        for task in table.scan().plan_files():
            if (
                not task.delete_files
                and task.file.file_size_in_bytes < TINY_BYTES
                and task.file.file_path.startswith("file://")
            ):
                yield self._partitions.path(table.metadata, task.file.partition), task.file

    def _merge(self, table: Table, partition: str, summary: Mapping[str, str]) -> int:
        """Merge the tiny files of a partition if there are many; returns the count of tiny files after that."""
        tiny_files = [file for file_partition, file in self._tiny_files(table) if file_partition == partition]
        if len(tiny_files) < MERGE_AT_TINY_FILES:
            return len(tiny_files)
        tiny_files.sort(key=lambda file: file.file_path)
        merged = str(Path(tiny_files[0].file_path).with_name(f"merged-{uuid.uuid4().hex}.parquet"))
        try:
            merge_files(
                [Path(file.file_path.removeprefix("file:")) for file in tiny_files], Path(merged.removeprefix("file:"))
            )
        except pa.ArrowException:  # a column has changed its type; the pipeline `compact` may know how
            return 0
        self._replace(table, tiny_files, f"file://{merged.removeprefix('file:')}", summary)
        self._unused.note(file.file_path for file in tiny_files)
        return 1

    def _replace(self, table: Table, files: Sequence[DataFile], merged: str, summary: Mapping[str, str]) -> None:
        with table.transaction() as change:
            with change.update_snapshot(snapshot_properties=dict(summary)).overwrite() as update:
                for file in files:
                    update.delete_data_file(file)
                partition = files[0].partition
                update.append_data_file(self._partitions.data_file(table.io, table.metadata, merged, partition))
            drop_snapshots(change)


def tagged_files(table: Table) -> set[str]:
    """Return the data files of snapshots that have a tag or a branch."""
    snapshot_ids = {ref.snapshot_id for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    return {
        file
        for snapshot_id in snapshot_ids
        for file in table.inspect.files(snapshot_id).column("file_path").to_pylist()
    }


def _referenced_metadata(table: Table) -> set[str]:
    files = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        files.add(snapshot.manifest_list)
        files.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
    return files


def _existing_metadata(table: Table) -> list[str]:
    assert isinstance(table.io, PyArrowFileIO)
    folder = table.metadata_location.rpartition("/")[0]
    scheme, host, path = table.io.parse_location(folder)
    infos = table.io.fs_by_scheme(scheme, host).get_file_info(FileSelector(path))
    names = [info.base_name for info in infos if info.is_file]
    return [f"{folder}/{name}" for name in names if name.endswith((".avro", ".metadata.json"))]


class OrderedCatalog(SqlCatalog):
    """A catalog in a database whose commit times never go back."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: tuple[str, ...],
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        last_ms = 0 if current_table is None else current_table.metadata.last_updated_ms
        ordered = tuple(_order_times(last_ms, updates))
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, ordered)
        time_ms = max(staged.metadata.last_updated_ms, last_ms)  # of a commit without a snapshot
        staged.metadata = staged.metadata.model_copy(update={"last_updated_ms": time_ms})
        return staged


def order_commit_times(catalog: Catalog) -> Catalog:
    """Make the snapshot times of any catalog ascend; catalog servers refuse others."""
    commit = catalog.commit_table

    def commit_table(
        table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        return commit(table, requirements, tuple(_order_times(table.metadata.last_updated_ms, updates)))

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    return catalog


def _order_times(time_ms: int, updates: Iterable[TableUpdate]) -> Iterator[TableUpdate]:
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            time_ms = max(time_ms + 1, update.snapshot.timestamp_ms)
            snapshot = update.snapshot.model_copy(update={"timestamp_ms": time_ms})
            update = update.model_copy(update={"snapshot": snapshot})
        yield update
