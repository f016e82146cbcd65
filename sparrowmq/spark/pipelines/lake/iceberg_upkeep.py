"""Keeps the cost of an Iceberg commit the same, however many came before: few snapshots, few manifests, few files.

    each commit              snapshots beyond the newest ten are dropped from the metadata
    each 50 commits          manifests become one; files that no kept snapshot has are noted, and go an hour later
    100 tiny files of a day  become one file

Without this each commit copies the list of all snapshots, and writes a list of all manifests.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO, parquet_file_to_data_file
from pyiceberg.table.update.snapshot import ExpireSnapshots

from sparrowmq import snapshot
from sparrowmq.spark.pipelines.lake.merging import TINY_BYTES, TINY_FILES, TinyFiles, merge
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

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


def drop_snapshots(change: Transaction, kept: int | None = None) -> None:
    """Drop all but the newest `kept`, by default as many as a property says; a branch or a tag keeps its own."""
    metadata = change.table_metadata
    kept = kept or int(metadata.properties.get(_KEPT, SETTINGS[_KEPT]))
    newest = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)[-kept:]
    if len(newest) < len(metadata.snapshots):
        oldest = datetime.fromtimestamp(min(each.timestamp_ms for each in newest) / 1000, UTC)
        ExpireSnapshots(transaction=change).older_than(oldest).commit()


class Upkeep:
    """Removes and merges files of one table between its commits."""

    def __init__(self, state: Path) -> None:
        self._unused = _Unused(state / "unused.json")
        self._commits = 0
        self._tiny = TinyFiles()

    def committed(self, table: Table, staged: Staged, summary: Mapping[str, str]) -> None:
        """Look after the table, after a commit of these files.

        Args:
            summary: of the commit; a snapshot of merged files repeats it.
        """
        self._tiny.add(staged, lambda day: self._merge(table, day, summary))
        self._commits += 1
        if self._commits % _COMMITS == 0:
            self.remove_unused(table)

    def remove_unused(self, table: Table, more: Iterable[str] = ()) -> None:
        """Note the metadata that no snapshot has any more, and `more`, and remove what was noted long ago."""
        needed = _metadata_of(table)
        self._unused.note([*(path for path in _metadata_there(table) if path not in needed), *more])
        self._unused.remove(table, needed)

    def _merge(self, table: Table, day: str, summary: Mapping[str, str]) -> int:
        """Make one of the tiny files of a day, if they are many; returns how many are left."""
        tiny = [
            task.file
            for task in table.scan(f"{DAY} = '{day}'").plan_files()
            if task.file.file_size_in_bytes < TINY_BYTES and task.file.file_path.startswith("file://")
        ]
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

    def _replace(self, table: Table, files: Iterable[DataFile], by: str, summary: Mapping[str, str]) -> None:
        with table.transaction() as change:
            with change.update_snapshot(snapshot_properties=dict(summary)).overwrite() as new:
                for file in files:
                    new.delete_data_file(file)
                new.append_data_file(parquet_file_to_data_file(table.io, table.metadata, by))
            drop_snapshots(change)


class _Unused:
    """Files that a table has dropped, with the time when that was noted; kept in a file over restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._since: dict[str, float] = snapshot.load(path, dict[str, float]) or {}

    def note(self, files: Iterable[str]) -> None:
        for file in files:
            self._since.setdefault(file, time.time())

    def remove(self, table: Table, needed: set[str]) -> None:
        """Remove the files that were noted long ago; more than _MOST_UNUSED are not kept."""
        by_age = sorted(set(self._since) - needed, key=self._since.__getitem__)
        before = time.time() - UNUSED_S
        for number, file in enumerate(by_age):
            if self._since[file] > before and len(by_age) - number <= _MOST_UNUSED:
                break
            with suppress(FileNotFoundError):  # a run that died before it saved its notes has removed it
                table.io.delete(file)
            del self._since[file]
        self._since = {file: since for file, since in self._since.items() if file not in needed}
        snapshot.save(self._path, self._since, encode=msgspec.json.encode)


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
