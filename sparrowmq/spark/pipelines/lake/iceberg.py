"""An Iceberg table, written without Spark's jar for Iceberg: by the package pyiceberg.

Its catalog is a file of the table's state (SQLite). A batch is one snapshot that says, in its summary, which batch of
which writer it is.
"""

from __future__ import annotations

import errno
import logging
import os
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import StaticTable, TableProperties

from sparrowmq.core.digits import whole_number
from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.catalogs import (
    check_location,
    explain_catalog_errors,
    iceberg_location,
    open_catalog,
    table_identifier,
)
from sparrowmq.spark.pipelines.lake.compaction import REWRITTEN_PREFIX, group_small_files, merge_files, with_new_names
from sparrowmq.spark.pipelines.lake.iceberg_metadata import (
    SETTINGS,
    IcebergPartitions,
    Upkeep,
    check_no_deletes,
    drop_snapshots,
    missing_settings,
    tagged_files,
)
from sparrowmq.spark.pipelines.lake.lake import TableLocation, check_partition, new_fields
from sparrowmq.spark.pipelines.lake.partitioning import DAY, Layout
from sparrowmq.spark.pipelines.lake.staged_files import move_into_place
from sparrowmq.spark.pipelines.lake.widening import retypes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

    from sparrowmq.spark.pipelines.lake.staged_files import Staged

_WRITER: Final = "sparrowmq.writer"
_BATCH: Final = "sparrowmq.batch"
_RECORD: Final = "sparrowmq.record"
_MAX_COMPACTED_PARTITIONS: Final = 64  # partitions of one commit
_AVRO_MAGIC: Final = b"Obj\x01"
# What pyiceberg raises for damaged metadata and manifests.
_READ_ERRORS: Final = (OSError, EOFError, ValueError, LookupError, TypeError, ValidationError, zlib.error)
_LAST_BATCH_PREFIX: Final = "sparrowmq.last."  # and the writer: a property of the table, for when snapshots have gone

_log = logging.getLogger(__name__)


class Iceberg:
    def __init__(self, location: TableLocation) -> None:
        self._location = location
        self.layout = Layout(location.partitioning, keeps_columns=True)
        self._partitions = IcebergPartitions(location.partitioning)
        self._name, self._uri = table_identifier(location.path), iceberg_location(location.path)
        self._upkeep = Upkeep(location.state, self._partitions)
        self._has_leftovers = True  # files of a commit that a crash, or an error, has cut short
        self._table: Table | None = None
        with explain_catalog_errors(location.path, location.state):
            self._catalog = open_catalog(location.path, location.state)
            self._load(location)

    def _load(self, location: TableLocation) -> None:
        """Find the table in its catalog, or by its metadata. Raises: ConfigError, BadStore."""
        try:
            self._table = self._catalog.load_table(self._name)
            check_location(self._table.location(), location.path)
        except NoSuchTableError:
            _check_absent_in_catalog(location)
            self._catalog.create_namespace_if_not_exists(self._name[:-1])
        except _READ_ERRORS as error:
            # A power cut may have emptied the newest metadata. A file that cannot be read now is none of these.
            if isinstance(location.path, Address) or _is_transient(error):
                raise
        if isinstance(location.path, Path) and not location.is_read_only:
            self._adopt_newest(location.path)
        self._check_partition()

    def _check_partition(self) -> None:
        if self._table is not None and self._table.current_snapshot() is not None:
            check_partition(self._location, self._partitions.describe_spec(self._table))

    def _adopt_newest(self, folder: Path) -> None:
        """Take over the table's newest metadata, if the catalog was lost, or is older. Raises: BadStore."""
        newest = newest_metadata(folder)
        latest = next(iter(_metadata_files(folder)), None)
        damaged = None if latest is None else _damage_in(latest)
        if newest is None and any(metadata_version(file.name) > 0 for file in _metadata_files(folder)):
            raise BadStore(
                f"{damaged} is damaged or gone, and {folder} has no earlier version that is whole; restore the file, "
                "or the table, from a backup"
            )
        if newest is not None and damaged is not None:
            _log.warning(
                "%s is damaged or gone, so %s goes on from its version %d; if earlier rows are missing now, restore "
                "the file from a backup",
                damaged,
                folder,
                metadata_version(newest),
            )
        if newest is None and self._table is None:  # a power cut may have emptied the metadata of a new table
            with suppress(NoSuchTableError):
                self._catalog.drop_table(self._name)
        known_version = -1
        if self._table is not None and damaged_file(self._table) is None:
            known_version = metadata_version(self._table.metadata_location)
        if newest is None or metadata_version(newest) <= known_version:
            return
        with suppress(NoSuchTableError):
            self._catalog.drop_table(self._name)
        self._table = self._catalog.register_table(self._name, newest)

    def _check_newest(self, table: Table) -> None:
        if isinstance(self._location.path, Address):  # its catalog may be shared, and is what counts
            return
        known_version = metadata_version(table.metadata_location)
        newer = (file for file in _metadata_files(self._location.path) if metadata_version(file.name) > known_version)
        if any(map(_is_whole, newer)):
            raise ConfigError(
                f"another run has written to {self._location.path}, with another copy of its state, or another program "
                "has changed it; stop the other run, and start again"
            )

    def last_batch(self) -> int:
        if self._table is None:
            return -1
        stored_batch = self._table.properties.get(f"{_LAST_BATCH_PREFIX}{self._location.writer}", "-1")
        return max(int(stored_batch), int(self._summary().get(_BATCH) or -1))

    def record(self) -> str | None:
        """Refresh first: another program may have changed the table since it was opened."""
        if self._table is not None and not self._location.is_read_only:
            with explain_catalog_errors(self._location.path, self._location.state):
                self._table.refresh()
            self._check_partition()
        return self._summary().get(_RECORD)

    def _summary(self) -> Mapping[str, str]:
        return _writer_summary(self._table, self._location.writer) if self._table else {}

    def columns(self) -> dict[str, pa.DataType]:
        schema = self._table.schema().as_arrow() if self._table else ()
        return {field.name: field.type for field in schema}

    def commit(self, batch: int, staged: Staged) -> None:
        location = self._location
        table = self._table or self._create(staged.schema)
        if table.current_snapshot() is None:  # a killed run may have made it, and not divided it yet
            self._partitions.set_spec(table)
        self._check_newest(table)
        data = location.path / "data"
        move_into_place(staged, data, f"{location.writer}-{batch:09}", has_leftovers=self._has_leftovers)
        self._has_leftovers = True
        summary = {_WRITER: location.writer, _BATCH: str(batch), _RECORD: staged.record}
        properties = {
            f"{_LAST_BATCH_PREFIX}{location.writer}": str(batch),
            f"{_RECORD}.{location.writer}": staged.record,
        }
        with name_damage(table), explain_catalog_errors(location.path, location.state), table.transaction() as change:
            if new_fields(staged.schema, self.columns()):
                with change.update_schema() as update:
                    update.union_by_name(staged.schema)
            change.set_properties(missing_settings(table) | properties)
            # The names of the files have the batch, and the table does not have that yet.
            files = {f"{self._uri}/data/{file.name}": file.partition for file in staged.files}
            # In one snapshot, as of two the first would lack rows.
            self._replace(change, self._data_files(staged.removed), files, summary)
            stay_s = location.replaced_stay_s
            drop_snapshots(change, since_s=0.0 if stay_s is None else time.time() - stay_s)
        self._has_leftovers = False
        self._sync(table)
        with name_damage(table):
            self._upkeep.after_commit(table, staged, summary)

    def _sync(self, table: Table) -> None:
        """Sync the files of the last commit: a power cut could empty them after the batch is done."""
        snapshot = table.current_snapshot()
        if isinstance(self._location.path, Address) or snapshot is None:
            return
        new_manifests = [
            manifest for manifest in snapshot.manifests(table.io) if manifest.added_snapshot_id == snapshot.snapshot_id
        ]
        files = [
            *(manifest.manifest_path for manifest in new_manifests),
            snapshot.manifest_list,
            table.metadata_location,
        ]
        for file in files:
            sync(Path(file.removeprefix("file://")))
        sync(self._location.path / "metadata")

    def _replace(
        self,
        change: Transaction,
        removed_files: Iterable[DataFile],
        added_files: Mapping[str, str],
        summary: Mapping[str, str] | None = None,
    ) -> None:
        """Remove files, and add others: their URIs with the partition path of each."""
        assert self._table is not None
        metadata, io = change.table_metadata, self._table.io
        if metadata.name_mapping() is None:  # the files have no ids of columns
            mapping = metadata.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        entries = [self._partitions.data_file(io, metadata, uri, partition) for uri, partition in added_files.items()]
        snapshot, removed = change.update_snapshot(dict(summary or {})), list(removed_files)
        can_merge = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
        append = snapshot.merge_append if can_merge else snapshot.fast_append
        with snapshot.overwrite() if removed else append() as update:
            for file in removed:
                update.delete_data_file(file)
            for file in entries:
                update.append_data_file(file)

    def paths(self) -> list[Path]:
        return sorted(self._files())

    def sizes(self) -> dict[Path, int]:
        return {path: file.file_size_in_bytes for path, file in self._files().items()}

    def partitions(self) -> dict[Path, str]:
        if (table := self._table) is None:
            return {}
        return {path: self._partitions.path(table.metadata, file.partition) for path, file in self._files().items()}

    def retire(self, before_s: float) -> set[Path]:
        """Snapshots with a tag or a branch stay, and so do their files."""
        if (table := self._table) is None:
            return set()
        table.refresh()
        self._check_newest(table)
        with table.transaction() as change:
            drop_snapshots(change, since_s=before_s)
        return set(map(self._path, tagged_files(table)))

    def _files(self) -> dict[Path, DataFile]:
        return {path: task.file for path, task in self._tasks().items()}

    def _tasks(self) -> dict[Path, FileScanTask]:
        with name_damage(self._table):
            tasks = self._table.scan().plan_files() if self._table else ()
            return {self._path(task.file.file_path): task for task in tasks}

    def _path(self, uri: str) -> Path:
        if isinstance(self._location.path, Address):
            return Path(uri.removeprefix(f"{self._uri}/"))
        return Path(uri.removeprefix("file://"))

    def _data_files(self, paths: Sequence[Path]) -> list[DataFile]:
        tasks = self._tasks() if paths else {}
        if missing := [str(path) for path in paths if path not in tasks]:
            raise FileNotFoundError(f"{missing[0]} is no file of the table; its rows would stay")
        check_no_deletes(self._location.path, (tasks[path] for path in paths))
        return [tasks[path].file for path in paths]

    def rewrite(self, staged: Staged) -> None:
        """A column of another type is a new one to Iceberg: old snapshots would have nulls there, so they go."""
        assert self._table is not None
        check_no_deletes(self._location.path, self._tasks().values())
        columns, old_paths, renamed = self.columns(), self.paths(), with_new_names(staged, self.layout)
        data = self._location.path / "data"
        move_into_place(renamed, data, REWRITTEN_PREFIX, has_leftovers=False)
        with self._table.transaction() as change:
            change.delete(AlwaysTrue())
            with change.update_schema(allow_incompatible_changes=True) as update:
                for field in renamed.schema:
                    if retypes(columns[field.name], field.type):
                        update.delete_column((field.name,))
            with change.update_schema() as update:
                update.union_by_name(renamed.schema)
            if renamed.files:
                self._replace(change, (), {f"file://{data / file.name}": file.partition for file in renamed.files})
            drop_snapshots(change, 1)
        self._sync(self._table)
        self._upkeep.remove_unused(self._table, [f"file://{file}" for file in old_paths])

    def compact(self, before: date) -> None:
        """Old files are deleted an hour later, for readers that started before."""
        if (table := self._table) is None:
            return
        if isinstance(self._location.path, Address):
            raise ConfigError(
                f"{self._location.path}: files of Iceberg tables are put together only on this machine; let an engine "
                "that knows the catalog do that, such as Spark's rewrite_data_files, or keep the table as delta"
            )
        groups_by_partition = list(self._small_files(before).items())
        for begin in range(0, len(groups_by_partition), _MAX_COMPACTED_PARTITIONS):
            old_files, new_files = list[Path](), dict[str, str]()
            for partition, groups in groups_by_partition[begin : begin + _MAX_COMPACTED_PARTITIONS]:
                for group in groups:
                    name = f"compacted-{uuid.uuid4().hex}.parquet"
                    merged = self._location.folder / "data" / partition / name
                    merge_files(group, merged)
                    old_files += group
                    new_files[f"file://{merged}"] = partition
            with table.transaction() as change:
                self._replace(change, self._data_files(old_files), new_files)
            self._sync(table)
        self._drop_old_snapshots()

    def _small_files(self, before: date) -> dict[str, list[list[Path]]]:
        paths_by_partition, tasks = dict[str, list[Path]](), self._tasks()
        for path, partition in sorted(self.partitions().items()):
            if not tasks[path].delete_files and self.layout.partitioning.starts_before(partition, before):
                paths_by_partition.setdefault(partition, []).append(path)
        groups = {
            partition: list(group_small_files(files, self._location.file_bytes))
            for partition, files in paths_by_partition.items()
        }
        return {partition: files for partition, files in groups.items() if files}

    def expire(self, before: date) -> int:
        partitioning = self.layout.partitioning
        limit = partitioning.period_start(before)
        old_partitions = {
            partition for partition in self.partitions().values() if partitioning.starts_before(partition, limit)
        }
        if old_partitions and self._table is not None:
            self._table.delete(f"{DAY} < '{limit}'")
            self._sync(self._table)
        return len(old_partitions)

    def _drop_old_snapshots(self) -> None:
        """Drop old snapshots, after saving the last batch of each writer, which may be recorded only there."""
        assert self._table is not None
        summaries = [snapshot.summary for snapshot in self._table.snapshots() if snapshot.summary is not None]
        last_batches = {summary[_WRITER]: summary[_BATCH] for summary in summaries if summary.get(_WRITER)}
        with self._table.transaction() as change:
            change.set_properties(
                {f"{_LAST_BATCH_PREFIX}{writer}": str(batch) for writer, batch in last_batches.items()}
            )
            drop_snapshots(change, 1)
        self._sync(self._table)
        used = {
            file["file_path"].removeprefix("file://")
            for snapshot in self._table.snapshots()
            for file in self._table.inspect.files(snapshot.snapshot_id).to_pylist()
        }
        existing = (self._location.folder / "data").rglob("*.parquet")
        self._upkeep.remove_unused(self._table, [f"file://{file}" for file in existing if str(file) not in used])

    def _create(self, schema: pa.Schema) -> Table:
        table = self._catalog.create_table(self._name, schema, location=self._uri, properties=SETTINGS)
        # A power cut before the first commit takes the table back to this version.
        if isinstance(self._location.path, Path):
            sync(Path(table.metadata_location.removeprefix("file://")))
        self._table = table
        return table


def _check_absent_in_catalog(location: TableLocation) -> None:
    """Raises: ConfigError, the catalog lacks the table; a killed run leaves only the first file of metadata."""
    if not isinstance(location.path, Address) or location.path.catalog is not None:
        return
    if any(metadata_version(file.path) > 0 for file in location.path.storage.list("metadata", deep=False)):
        raise ConfigError(
            f"{location.path} has a table, but its catalog {location.state / 'catalog.db'} is gone; restore it from "
            "a backup"
        )


def newest_metadata(folder: Path) -> str | None:
    """The address of the newest metadata of a table, also if a catalog says otherwise; None if there is no table.

    A killed run may have written the first half of a file: no catalog ever had that. A power cut may have emptied the
    files of the last commit.
    """
    return next((f"file://{path}" for path in _metadata_files(folder) if _is_whole(path)), None)


def _metadata_files(folder: Path) -> list[Path]:
    files = (folder / "metadata").glob("[0-9]*-*.metadata.json")
    return sorted(files, key=lambda path: metadata_version(path.name), reverse=True)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)


def _is_whole(metadata: Path) -> bool:
    return _damage_in(metadata) is None


def _damage_in(metadata: Path) -> str | None:
    try:
        return damaged_file(StaticTable.from_metadata(f"file://{metadata}"))
    except _READ_ERRORS as error:
        if _is_transient(error):
            raise
        return str(metadata)


@contextmanager
def name_damage(table: Table | None) -> Iterator[None]:
    """Raises: BadStore, instead of a read error, if a file of a table in a folder is damaged."""
    try:
        yield
    except _READ_ERRORS as error:
        is_here = table is not None and table.location().startswith("file://")
        if table is None or not is_here or (file := damaged_file(table, with_entries=True)) is None:
            raise
        raise BadStore(
            f"{file} is damaged, and it says which files the table has; restore it, or the table, from a backup"
        ) from error


def damaged_file(table: Table, *, with_entries: bool = False) -> str | None:
    """Return the first damaged file of a table in a folder; `with_entries`: the manifests are decoded, too."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        has_rows = any(name.startswith(_LAST_BATCH_PREFIX) for name in table.properties)
        return _strip_scheme(table.metadata_location) if has_rows else None
    file = snapshot.manifest_list
    try:
        manifests = {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
        for file, manifest in manifests.items():
            if not _is_whole_manifest(Path(_strip_scheme(file)), manifest.manifest_length):
                return _strip_scheme(file)
            if with_entries:
                manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    except _READ_ERRORS as error:
        if _is_transient(error):
            raise
        return _strip_scheme(file)
    return None


def _strip_scheme(uri: str) -> str:
    return uri.removeprefix("file://")


def _is_whole_manifest(path: Path, length: int) -> bool:
    with path.open("rb") as file:
        return file.read(len(_AVRO_MAGIC)) == _AVRO_MAGIC and file.seek(0, os.SEEK_END) == length


def metadata_version(metadata: str) -> int:
    """Return the version at the start of the name of a metadata file; -1 without one."""
    number = whole_number(metadata.rpartition("/")[2].partition("-")[0])
    return -1 if number is None else number


def record_at(folder: Path) -> str | None:
    """Return the record of the last batch of a table, without its catalog."""
    newest = newest_metadata(folder)
    return _writer_summary(StaticTable.from_metadata(newest), "").get(_RECORD) if newest else None


def _writer_summary(table: Table, writer: str) -> Mapping[str, str]:
    """Of the last snapshot of a writer ("" for any) that led to the present one; else what a property has of it."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        if summary is not None and (snapshot_writer := summary.get(_WRITER)) and writer in ("", snapshot_writer):
            return {name: text for name in (_WRITER, _BATCH, _RECORD) if (text := summary.get(name))}
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    names = [name for name in table.properties if name.startswith(f"{_RECORD}.{writer}")]
    return {_RECORD: table.properties[min(names, key=len)]} if names else {}
