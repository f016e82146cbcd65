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
_AVRO: Final = b"Obj\x01"
# What pyiceberg raises for damaged metadata and manifests.
_UNREADABLE: Final = (OSError, EOFError, ValueError, LookupError, TypeError, ValidationError, zlib.error)
_LAST: Final = "sparrowmq.last."  # and the writer: a property of the table, for when snapshots have gone

_log = logging.getLogger(__name__)


class Iceberg:
    def __init__(self, place: TableLocation) -> None:
        self._place = place
        self.layout = Layout(place.partitioning, keeps_columns=True)
        self._partitions = IcebergPartitions(place.partitioning)
        self._name, self._uri = table_identifier(place.path), iceberg_location(place.path)
        self._upkeep = Upkeep(place.state, self._partitions)
        self._has_leftovers = True  # files of a commit that a crash, or an error, has cut short
        self._table: Table | None = None
        with explain_catalog_errors(place.path, place.state):
            self._catalog = open_catalog(place.path, place.state)
            self._load(place)

    def _load(self, place: TableLocation) -> None:
        """Find the table in its catalog, or by its metadata. Raises: ConfigError, BadStore."""
        try:
            self._table = self._catalog.load_table(self._name)
            check_location(self._table.location(), place.path)
        except NoSuchTableError:
            _check_new(place)
            self._catalog.create_namespace_if_not_exists(self._name[:-1])
        except _UNREADABLE as error:
            # A power cut may have emptied the newest metadata. A file that cannot be read now is none of these.
            if isinstance(place.path, Address) or _is_transient(error):
                raise
        if isinstance(place.path, Path) and not place.is_read_only:
            self._adopt_newest(place.path)
        self._check_partition()

    def _check_partition(self) -> None:
        if self._table is not None and self._table.current_snapshot() is not None:
            check_partition(self._place, self._partitions.describe_spec(self._table))

    def _adopt_newest(self, folder: Path) -> None:
        """Take over the table's newest metadata, if the catalog was lost, or is an older copy.

        Raises: BadStore, the table has no version that can be read.
        """
        newest = newest_metadata(folder)
        latest = next(iter(_metadata_in(folder)), None)
        damaged = None if latest is None else _damage_in(latest)
        if newest is None and any(metadata_version(each.name) > 0 for each in _metadata_in(folder)):
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
        known = -1
        if self._table is not None and damaged_file(self._table) is None:
            known = metadata_version(self._table.metadata_location)
        if newest is None or metadata_version(newest) <= known:
            return
        with suppress(NoSuchTableError):
            self._catalog.drop_table(self._name)
        self._table = self._catalog.register_table(self._name, newest)

    def _check_newest(self, table: Table) -> None:
        if isinstance(self._place.path, Address):  # its catalog may be shared, and is what counts
            return
        known = metadata_version(table.metadata_location)
        newer = (each for each in _metadata_in(self._place.path) if metadata_version(each.name) > known)
        if any(map(_is_whole, newer)):
            raise ConfigError(
                f"another run has written to {self._place.path}, with another copy of its state, or another program "
                "has changed it; stop the other run, and start again"
            )

    def last_batch(self) -> int:
        if self._table is None:
            return -1
        noted = self._table.properties.get(f"{_LAST}{self._place.writer}", "-1")
        return max(int(noted), int(self._summary().get(_BATCH) or -1))

    def record(self) -> str | None:
        """Refresh first: another program may have changed the table since it was opened."""
        if self._table is not None and not self._place.is_read_only:
            with explain_catalog_errors(self._place.path, self._place.state):
                self._table.refresh()
            self._check_partition()
        return self._summary().get(_RECORD)

    def _summary(self) -> Mapping[str, str]:
        return _summary_of(self._table, self._place.writer) if self._table else {}

    def columns(self) -> dict[str, pa.DataType]:
        schema = self._table.schema().as_arrow() if self._table else ()
        return {field.name: field.type for field in schema}

    def commit(self, batch: int, staged: Staged) -> None:
        place = self._place
        table = self._table or self._create(staged.schema)
        if table.current_snapshot() is None:  # a killed run may have made it, and not divided it yet
            self._partitions.set_spec(table)
        self._check_newest(table)
        data = place.path / "data"
        move_into_place(staged, data, f"{place.writer}-{batch:09}", has_leftovers=self._has_leftovers)
        self._has_leftovers = True
        summary = {_WRITER: place.writer, _BATCH: str(batch), _RECORD: staged.record}
        noted = {f"{_LAST}{place.writer}": str(batch), f"{_RECORD}.{place.writer}": staged.record}
        with name_damage(table), explain_catalog_errors(place.path, place.state), table.transaction() as change:
            if new_fields(staged.schema, self.columns()):
                with change.update_schema() as update:
                    update.union_by_name(staged.schema)
            change.set_properties(missing_settings(table) | noted)
            # The names of the files have the batch, and the table does not have that yet.
            files = {f"{self._uri}/data/{file.name}": file.partition for file in staged.files}
            # In one snapshot, as of two the first would lack rows.
            self._replace(change, self._data_files(staged.removed), files, summary)
            stay_s = place.replaced_stay_s
            drop_snapshots(change, since_s=0.0 if stay_s is None else time.time() - stay_s)
        self._has_leftovers = False
        self._sync(table)
        with name_damage(table):
            self._upkeep.after_commit(table, staged, summary)

    def _sync(self, table: Table) -> None:
        """Sync the files of the last commit: a power cut could empty them after the batch is done."""
        snapshot = table.current_snapshot()
        if isinstance(self._place.path, Address) or snapshot is None:
            return
        new = [each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id]
        files = [*(each.manifest_path for each in new), snapshot.manifest_list, table.metadata_location]
        for file in files:
            sync(Path(file.removeprefix("file://")))
        sync(self._place.path / "metadata")

    def _replace(
        self,
        change: Transaction,
        old: Iterable[DataFile],
        new: Mapping[str, str],
        summary: Mapping[str, str] | None = None,
    ) -> None:
        """Remove files, and add others: their URIs with the partition path of each."""
        assert self._table is not None
        metadata, io = change.table_metadata, self._table.io
        if metadata.name_mapping() is None:  # the files have no ids of columns
            mapping = metadata.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        found = [self._partitions.data_file(io, metadata, file, partition) for file, partition in new.items()]
        snapshot, gone = change.update_snapshot(dict(summary or {})), list(old)
        merges = metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED) == "true"
        appending = snapshot.merge_append if merges else snapshot.fast_append
        with snapshot.overwrite() if gone else appending() as update:
            for each in gone:
                update.delete_data_file(each)
            for each in found:
                update.append_data_file(each)

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
        if isinstance(self._place.path, Address):
            return Path(uri.removeprefix(f"{self._uri}/"))
        return Path(uri.removeprefix("file://"))

    def _data_files(self, paths: Sequence[Path]) -> list[DataFile]:
        known = self._tasks() if paths else {}
        if unknown := [str(path) for path in paths if path not in known]:
            raise FileNotFoundError(f"{unknown[0]} is no file of the table; its rows would stay")
        check_no_deletes(self._place.path, (known[path] for path in paths))
        return [known[path].file for path in paths]

    def rewrite(self, staged: Staged) -> None:
        """A column of another type is a new one to Iceberg: old snapshots would have nulls there, so they go."""
        assert self._table is not None
        check_no_deletes(self._place.path, self._tasks().values())
        known, old, new = self.columns(), self.paths(), with_new_names(staged, self.layout)
        data = self._place.path / "data"
        move_into_place(new, data, REWRITTEN_PREFIX, has_leftovers=False)
        with self._table.transaction() as change:
            change.delete(AlwaysTrue())
            with change.update_schema(allow_incompatible_changes=True) as update:
                for field in new.schema:
                    if retypes(known[field.name], field.type):
                        update.delete_column((field.name,))
            with change.update_schema() as update:
                update.union_by_name(new.schema)
            if new.files:
                self._replace(change, (), {f"file://{data / file.name}": file.partition for file in new.files})
            drop_snapshots(change, 1)
        self._sync(self._table)
        self._upkeep.remove_unused(self._table, [f"file://{file}" for file in old])

    def compact(self, before: date) -> None:
        """Old files are deleted an hour later, for readers that started before."""
        if (table := self._table) is None:
            return
        if isinstance(self._place.path, Address):
            raise ConfigError(
                f"{self._place.path}: files of Iceberg tables are put together only on this machine; let an engine "
                "that knows the catalog do that, such as Spark's rewrite_data_files, or keep the table as delta"
            )
        found = list(self._small_files(before).items())
        for begin in range(0, len(found), _MAX_COMPACTED_PARTITIONS):
            old, new = list[Path](), dict[str, str]()
            for partition, chosen in found[begin : begin + _MAX_COMPACTED_PARTITIONS]:
                for group in chosen:
                    name = f"compacted-{uuid.uuid4().hex}.parquet"
                    merged = self._place.folder / "data" / partition / name
                    merge_files(group, merged)
                    old += group
                    new[f"file://{merged}"] = partition
            with table.transaction() as change:
                self._replace(change, self._data_files(old), new)
            self._sync(table)
        self._drop_old_snapshots()

    def _small_files(self, before: date) -> dict[str, list[list[Path]]]:
        by_partition, plain = dict[str, list[Path]](), self._tasks()
        for path, partition in sorted(self.partitions().items()):
            if not plain[path].delete_files and self.layout.partitioning.starts_before(partition, before):
                by_partition.setdefault(partition, []).append(path)
        found = {each: list(group_small_files(files, self._place.file_bytes)) for each, files in by_partition.items()}
        return {partition: chosen for partition, chosen in found.items() if chosen}

    def expire(self, before: date) -> int:
        partitioning = self.layout.partitioning
        limit = partitioning.period_start(before)
        old = {each for each in self.partitions().values() if partitioning.starts_before(each, limit)}
        if old and self._table is not None:
            self._table.delete(f"{DAY} < '{limit}'")
            self._sync(self._table)
        return len(old)

    def _drop_old_snapshots(self) -> None:
        """Drop old snapshots, after saving the last batch of each writer, which may be recorded only there."""
        assert self._table is not None
        summaries = [each.summary for each in self._table.snapshots() if each.summary is not None]
        last = {each[_WRITER]: each[_BATCH] for each in summaries if each.get(_WRITER)}
        with self._table.transaction() as change:
            change.set_properties({f"{_LAST}{writer}": str(batch) for writer, batch in last.items()})
            drop_snapshots(change, 1)
        self._sync(self._table)
        used = {
            file["file_path"].removeprefix("file://")
            for snapshot in self._table.snapshots()
            for file in self._table.inspect.files(snapshot.snapshot_id).to_pylist()
        }
        there = (self._place.folder / "data").rglob("*.parquet")
        self._upkeep.remove_unused(self._table, [f"file://{file}" for file in there if str(file) not in used])

    def _create(self, schema: pa.Schema) -> Table:
        table = self._catalog.create_table(self._name, schema, location=self._uri, properties=SETTINGS)
        # A power cut before the first commit takes the table back to this version.
        if isinstance(self._place.path, Path):
            sync(Path(table.metadata_location.removeprefix("file://")))
        self._table = table
        return table


def _check_new(place: TableLocation) -> None:
    """Raises: ConfigError, the place has a table that the catalog in the state does not have (any more).

    The first file of metadata is written before the catalog has the table, so a killed run may have left that.
    """
    if not isinstance(place.path, Address) or place.path.catalog is not None:
        return
    if any(metadata_version(each.path) > 0 for each in place.path.storage.list("metadata", deep=False)):
        raise ConfigError(
            f"{place.path} has a table, but its catalog {place.state / 'catalog.db'} is gone; restore it from a backup"
        )


def newest_metadata(folder: Path) -> str | None:
    """The address of the newest metadata of a table, also if a catalog says otherwise; None if there is no table.

    A killed run may have written the first half of a file: no catalog ever had that. A power cut may have emptied the
    files of the last commit.
    """
    return next((f"file://{path}" for path in _metadata_in(folder) if _is_whole(path)), None)


def _metadata_in(folder: Path) -> list[Path]:
    found = (folder / "metadata").glob("[0-9]*-*.metadata.json")
    return sorted(found, key=lambda path: metadata_version(path.name), reverse=True)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)


def _is_whole(metadata: Path) -> bool:
    return _damage_in(metadata) is None


def _damage_in(metadata: Path) -> str | None:
    try:
        return damaged_file(StaticTable.from_metadata(f"file://{metadata}"))
    except _UNREADABLE as error:
        if _is_transient(error):
            raise
        return str(metadata)


@contextmanager
def name_damage(table: Table | None) -> Iterator[None]:
    """Raises: BadStore, instead of a read error, if a file of a table in a folder is damaged."""
    try:
        yield
    except _UNREADABLE as error:
        is_here = table is not None and table.location().startswith("file://")
        if table is None or not is_here or (file := damaged_file(table, with_entries=True)) is None:
            raise
        raise BadStore(
            f"{file} is damaged, and it says which files the table has; restore it, or the table, from a backup"
        ) from error


def damaged_file(table: Table, *, with_entries: bool = False) -> str | None:
    """Return the first damaged file of a table in a folder; None if all manifests have their begin, and their length.

    Args:
        with_entries: whether to decode the manifests, too.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        has_rows = any(name.startswith(_LAST) for name in table.properties)
        return _path_of(table.metadata_location) if has_rows else None
    file = snapshot.manifest_list
    try:
        manifests = {each.manifest_path: each for each in snapshot.manifests(table.io)}
        for file, manifest in manifests.items():
            if not _is_avro(Path(_path_of(file)), manifest.manifest_length):
                return _path_of(file)
            if with_entries:
                manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    except _UNREADABLE as error:
        if _is_transient(error):
            raise
        return _path_of(file)
    return None


def _path_of(uri: str) -> str:
    return uri.removeprefix("file://")


def _is_avro(path: Path, length: int) -> bool:
    with path.open("rb") as file:
        return file.read(len(_AVRO)) == _AVRO and file.seek(0, os.SEEK_END) == length


def metadata_version(metadata: str) -> int:
    """Return the version at the start of the name of a metadata file; -1 without one."""
    number = whole_number(metadata.rpartition("/")[2].partition("-")[0])
    return -1 if number is None else number


def record_at(folder: Path) -> str | None:
    """Return the record of the last batch of a table, without its catalog."""
    newest = newest_metadata(folder)
    return _summary_of(StaticTable.from_metadata(newest), "").get(_RECORD) if newest else None


def _summary_of(table: Table, writer: str) -> Mapping[str, str]:
    """Of the last snapshot of a writer that led to the present one; a property has it when snapshots are gone.

    Args:
        writer: "" for any.
    """
    at = table.current_snapshot()
    while at is not None:
        said = at.summary
        if said is not None and (found := said.get(_WRITER)) and writer in ("", found):
            return {name: text for name in (_WRITER, _BATCH, _RECORD) if (text := said.get(name))}
        at = table.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    names = [name for name in table.properties if name.startswith(f"{_RECORD}.{writer}")]
    return {_RECORD: table.properties[min(names, key=len)]} if names else {}
