"""Keeps the cost of an Iceberg commit the same, however many came before: few snapshots, few manifests, few files.

    each commit              snapshots beyond the newest ten are dropped from the metadata
    each 50 commits          manifests become one; files that no kept snapshot has are noted, and go an hour later
    100 tiny files of a partition  become one file

Without this each commit copies the list of all snapshots, and writes a list of all manifests.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update.snapshot import ExpireSnapshots

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.iceberg_partitions import IcebergPartitions
from sparrowmq.spark.pipelines.lake.merging import TINY_BYTES, TINY_FILES, TinyFiles, merge
from sparrowmq.spark.pipelines.lake.unused_files import UnusedFiles

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged

_KEPT: Final = "history.expire.min-snapshots-to-keep"
# Properties of a table that its owner may change. A manifest has about 3,000 files in 512 KiB: pyiceberg needs 0.1 ms
# to copy the entry of one.
SETTINGS: Final = {
    _KEPT: "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "commit.manifest.target-size-bytes": str(512 << 10),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
UNUSED_S: Final = 3600.0  # for so long readers may need a file that the table has dropped
_MOST_UNUSED: Final = 1000  # an hour of batches, one each 10 seconds, leaves so many
_COMMITS: Final = 50


def missing_settings(table: Table) -> dict[str, str]:
    """The properties that a table of an earlier release lacks."""
    return {name: value for name, value in SETTINGS.items() if name not in table.properties}


def drop_snapshots(change: Transaction, kept: int | None = None, since_s: float = 0.0) -> None:
    """Drop all but the newest `kept`, by default as many as a property says; a branch or a tag keeps its own.

    Args:
        since_s: those before this time go, too, but for the newest one.
    """
    metadata = change.table_metadata
    kept = kept or int(metadata.properties.get(_KEPT, SETTINGS[_KEPT]))
    newest = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)[-kept:]
    newest = [each for each in newest if each is newest[-1] or each.timestamp_ms >= since_s * 1000]
    stay = {each.snapshot_id for each in newest} | {ref.snapshot_id for ref in metadata.refs.values()}
    if gone := [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in stay]:
        ExpireSnapshots(transaction=change).by_ids(gone).commit()


def demand_no_deletes(place: object, tasks: Iterable[FileScanTask]) -> None:
    """Raises: ConfigError, one of these files has rows that the table does not have any more."""
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

    def committed(self, table: Table, staged: Staged, summary: Mapping[str, str]) -> None:
        """Look after the table, after a commit of these files.

        Args:
            summary: of the commit; a snapshot of merged files repeats it.
        """
        self._tiny.add(
            staged,
            lambda: [partition for partition, _ in self._tiny_files(table)],
            lambda partition: self._merge(table, partition, summary),
        )
        self._commits += 1
        if self._commits % _COMMITS == 0:
            self.remove_unused(table)

    def remove_unused(self, table: Table, more: Iterable[str] = ()) -> None:
        """Note the metadata that no snapshot has any more, and `more`, and remove what was noted long ago."""
        needed = _metadata_of(table)
        self._unused.note([*(path for path in _metadata_there(table) if path not in needed), *more])
        needed |= tagged_files(table)
        needed |= {task.file.file_path for task in table.scan().plan_files()}  # it may have been rolled back
        self._unused.remove(table.io.delete, UNUSED_S, needed, _MOST_UNUSED)

    def _tiny_files(self, table: Table) -> Iterator[tuple[str, DataFile]]:
        """The tiny files of a table on this machine, each with the path of its partition."""
        for task in table.scan().plan_files():
            if (
                not task.delete_files
                and task.file.file_size_in_bytes < TINY_BYTES
                and task.file.file_path.startswith("file://")
            ):
                yield self._partitions.path(table.metadata, task.file.partition), task.file

    def _merge(self, table: Table, partition: str, summary: Mapping[str, str]) -> int:
        """Make one of the tiny files of a partition, if they are many; returns how many are left."""
        tiny = [file for each, file in self._tiny_files(table) if each == partition]
        if len(tiny) < TINY_FILES:
            return len(tiny)
        tiny.sort(key=lambda file: file.file_path)
        merged = str(Path(tiny[0].file_path).with_name(f"merged-{uuid.uuid4().hex}.parquet"))
        try:
            merge(
                [Path(file.file_path.removeprefix("file:")) for file in tiny],
                Path(merged.removeprefix("file:")),
            )
        except pa.ArrowException:  # a column has changed its type; the pipeline `compact` may know how
            return 0
        self._replace(table, tiny, f"file://{merged.removeprefix('file:')}", summary)
        self._unused.note(file.file_path for file in tiny)
        return 1

    def _replace(self, table: Table, files: Sequence[DataFile], by: str, summary: Mapping[str, str]) -> None:
        with table.transaction() as change:
            with change.update_snapshot(snapshot_properties=dict(summary)).overwrite() as new:
                for file in files:
                    new.delete_data_file(file)
                partition = files[0].partition
                new.append_data_file(self._partitions.described(table.io, table.metadata, by, partition))
            drop_snapshots(change)


def tagged_files(table: Table) -> set[str]:
    """The data files of snapshots that a tag or a branch of the table's owner keeps."""
    kept = {ref.snapshot_id for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
    return {file for each in kept for file in table.inspect.files(each).column("file_path").to_pylist()}


def _metadata_of(table: Table) -> set[str]:
    """The files of metadata that the table's snapshots consist of."""
    found = {table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)}
    for each in table.snapshots():
        found.add(each.manifest_list)
        found.update(manifest.manifest_path for manifest in each.manifests(table.io))
    return found


def _metadata_there(table: Table) -> list[str]:
    """All files in the table's folder of metadata."""
    assert isinstance(table.io, PyArrowFileIO)
    folder = table.metadata_location.rpartition("/")[0]
    scheme, place, path = table.io.parse_location(folder)
    found = table.io.fs_by_scheme(scheme, place).get_file_info(FileSelector(path))
    names = [each.base_name for each in found if each.is_file]
    return [f"{folder}/{name}" for name in names if name.endswith((".avro", ".metadata.json"))]
