"""A table that is a folder of Parquet files, `_day=2026-01-31/…`, which everything reads.

In a folder of this machine (`ParquetFolder`):

    table/.sparrowmq/000000007.json     the files of batch 7, and its record: written first, and that is the commit
    table/_day=…/…-000000007-*.parquet  then each file is moved to its place, and the list is emptied

A crash in between leaves files to be moved; the next start does it. If the state with the files was lost meanwhile, the
next start takes the commit back. Spark's own sink keeps a log of files that only Spark reads.

At an address, such as `s3://bucket/orders/_day=2026-01-31/…` (`RemoteParquetFolder`):

    orders.staged/…                            where tasks write: readers of the table do not look there
    orders/.sparrowmq/commits/000000007.json   the files of batch 7, and its record: this is the commit
    orders/_day=…/…                            then each file is moved to its place, and the list is emptied

S3 cannot rename, so a move is a copy by the server and a removal. Files are never merged there: only a log of commits,
as Delta and Iceberg have, can replace files while readers use them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.compaction import group_small_files, merge_files
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER, TableLocation, another_run_error, staging_address
from sparrowmq.spark.pipelines.lake.partitioning import DAY, Layout
from sparrowmq.spark.pipelines.lake.staged_files import Staged
from sparrowmq.spark.pipelines.lake.widening import fits
from sparrowmq.spark.pipelines.running.folders import move_file

_MAX_COMMIT_FILES: Final = 10
_MERGE_FILE: Final = "merge.json"
_BATCH_FILE: Final = re.compile(r"(.+)-([0-9]{9})-[0-9]+\.parquet$")


class _Folder(ABC):
    """The base of both kinds: no log knows the files, so there are neither sizes nor a history."""

    def __init__(self, location: TableLocation) -> None:
        self._location = location
        self.layout = Layout(location.partitioning, keeps_columns=False, has_log=False)

    @abstractmethod
    def paths(self) -> list[Path]:
        """Every file of the table."""

    def sizes(self) -> dict[Path, int]:
        return {}

    def partitions(self) -> dict[Path, str]:
        return {path: self.layout.partitioning.partition_of_file(path.as_posix()) for path in self.paths()}

    def retire(self, before_s: float) -> tuple[()]:
        return ()


class ParquetFolder(_Folder):
    """A table in a folder."""

    def __init__(self, location: TableLocation) -> None:
        super().__init__(location)
        self._commits = location.folder / f"{OWN_FOLDER}{location.lane}"
        self._old_commits = location.state / f"commits{location.lane}"  # where earlier releases had them
        self._merge_file = location.state / _MERGE_FILE
        if not location.is_read_only:
            self._finish()
            self._finish_merge()

    def last_batch(self) -> int:
        commits = [*self._commits.glob("[0-9]*.json"), *self._old_commits.glob("*.json")]
        return max((int(path.stem) for path in commits), default=-1)

    def record(self) -> str | None:
        return _commit_record(_last_commit(self._commits))

    def columns(self) -> dict[str, pa.DataType]:
        """From the last batch of each writer; merged files may lack newer columns."""
        files = self.paths()
        columns: dict[str, pa.DataType] = {}
        for file in _last_batch_files(files) or files:
            for field in pq.read_schema(file):
                known_type = columns.get(field.name)
                columns[field.name] = field.type if known_type is None or fits(known_type, field.type) else known_type
        return {DAY: pa.date32(), **columns} if columns and DAY in self.layout.path_only_columns else columns

    def commit(self, batch: int, staged: Staged) -> None:
        location = self._location
        moves = {str(file.path): str(location.path / file.name) for file in staged.files}
        _sync_files(moves)
        commit = self._commits / f"{batch:09}.json"
        self._write(commit, {"moves": moves, "record": staged.record}, is_new=True)
        self._finish()
        for old_commit in sorted(self._commits.glob("[0-9]*.json"))[:-_MAX_COMMIT_FILES]:
            old_commit.unlink()

    def paths(self) -> list[Path]:
        return sorted(self._location.folder.glob(self.layout.partitioning.pattern))

    def rewrite(self, staged: Staged) -> None:
        """Each file is replaced under its name, so no reader misses a row or sees it twice."""
        moves = {str(file.path): str(self._location.folder / file.name) for file in staged.files}
        _sync_files(moves)
        replaced = {str(path) for path in self.paths()} - set(moves.values())
        self._write(self._merge_file, {"moves": moves, "gone": sorted(replaced)})
        self._finish_merge()

    def compact(self, before: date) -> None:
        """A reader during the merge may miss rows, or see rows twice."""
        partitioning = self.layout.partitioning
        for folder in self._folders(lambda partition: partitioning.starts_before(partition, before)):
            for group in group_small_files(sorted(folder.glob("*.parquet")), self._location.file_bytes):
                merged = self._location.state / "compacted" / f"compacted-{uuid.uuid4().hex}.parquet"
                merge_files(group, merged)
                moves = {str(merged): str(folder / merged.name)}
                _sync_files(moves)
                self._write(self._merge_file, {"moves": moves, "gone": [str(file) for file in group]})
                self._finish_merge()

    def expire(self, before: date) -> int:
        limit = self.layout.partitioning.period_start(before)
        folders = self._folders(lambda partition: self.layout.partitioning.starts_before(partition, limit))
        for folder in folders:
            shutil.rmtree(folder)
        return len(folders)

    def _folders(self, is_chosen: Callable[[str], bool]) -> list[Path]:
        return sorted({path.parent for path, partition in self.partitions().items() if is_chosen(partition)})

    def _finish_merge(self) -> None:
        """Replace files by the merged one; after a crash the next start finishes this."""
        if not self._merge_file.exists():
            return
        merge = _read_commit(self._merge_file)
        _move_files(merge["moves"])
        for file in merge["gone"]:
            Path(file).unlink(missing_ok=True)
        self._merge_file.unlink()

    def _finish(self) -> None:
        """Move the files that the last commit has not moved yet. If one is gone, undo the commit."""
        for folder in (self._old_commits, self._commits):
            for commit in sorted(folder.glob("[0-9]*.json"))[-1:]:
                content = _read_commit(commit)
                moves = content.get("moves", {}) if folder == self._commits else content
                if all(os.path.exists(staged) or os.path.exists(target) for staged, target in moves.items()):
                    _move_files(moves)
                    if moves:
                        self._write(commit, {"moves": {}, "record": content.get("record", "")})
                else:
                    for target in moves.values():
                        Path(target).unlink(missing_ok=True)
                    commit.unlink()

    def _write(self, path: Path, content: Mapping[str, Any], *, is_new: bool = False) -> None:
        """Write a file atomically, also in a power cut. Raises: ConfigError, a new file exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        with open(temporary, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        if not is_new:
            temporary.rename(path)
            return
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise another_run_error(int(path.stem), self._location.path) from None
        finally:
            temporary.unlink()


def _last_batch_files(files: Iterable[Path]) -> list[Path]:
    """Return a file of the last batch of each writer. File times are not reliable: clocks are set back."""
    last_files: dict[str, tuple[int, Path]] = {}
    for file in files:
        if match := _BATCH_FILE.match(file.name):
            last_files[match[1]] = max(last_files.get(match[1], (-1, file)), (int(match[2]), file))
    return [file for _, file in last_files.values()]


def commits_at(folder: Path, state: Path) -> list[str] | None:
    """Return the last commit of each writer; None while a commit or a merge is unfinished."""
    commits = [commit for commit in map(_last_commit, sorted(folder.glob(f"{OWN_FOLDER}*"))) if commit is not None]
    if (state / _MERGE_FILE).exists() or any(_read_commit(commit).get("moves") for commit in commits):
        return None
    return [str(commit) for commit in commits]


def record_at(folder: Path) -> str | None:
    """Return the record of the last batch of the stream's writer, else of another writer."""
    commits = map(_last_commit, sorted(folder.glob(f"{OWN_FOLDER}*")))
    return next((record for commit in commits if (record := _commit_record(commit)) is not None), None)


def _last_commit(folder: Path) -> Path | None:
    return max(folder.glob("[0-9]*.json"), default=None)


def _commit_record(commit: Path | None) -> str | None:
    return str(_read_commit(commit).get("record") or "") or None if commit else None


def _read_commit(commit: Path) -> dict[str, Any]:
    """Raises: BadStore, the file is damaged. It was synced before its batch was done, so the disk lost it."""
    try:
        content: object = json.loads(commit.read_text())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise BadStore(
            f"{commit} is damaged, and it says which files its batch has; restore the table and its state from a backup"
        )
    return content


def _sync_files(files: Iterable[str]) -> None:
    """Sync files before a commit names them: neither Spark nor pyarrow does."""
    for file in files:
        sync(Path(file))


def _move_files(moves: Mapping[str, str]) -> None:
    for staged, target in moves.items():
        if os.path.exists(staged):
            move_file(staged, Path(target))


class _Commit(msgspec.Struct):
    """The folder of staged files of a batch, the files to move, the columns of the table, and the record."""

    staged: str
    moves: list[str]
    columns: bytes
    record: str


class RemoteParquetFolder(_Folder):
    """A table at an address."""

    def __init__(self, location: TableLocation) -> None:
        super().__init__(location)
        assert isinstance(location.path, Address)
        self._storage = location.path.storage
        self._commits = f"{OWN_FOLDER}/commits{location.lane}/"
        if not location.is_read_only and (last_commit := self._last_commit_name()) is not None:
            self._finish(last_commit)

    def last_batch(self) -> int:
        last = self._last_commit_name()
        return -1 if last is None else int(PurePosixPath(last).stem)

    def record(self) -> str | None:
        last = self._last_commit_name()
        return None if last is None else self._load(last).record or None

    def columns(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self._schema()}

    def _schema(self) -> pa.Schema:
        """From the newest commits of all lanes: a folder has no schema of its own."""
        newest = {name.rpartition("/")[0]: name for name in self._names()}.values()
        schemas = [pa.ipc.read_schema(pa.BufferReader(self._load(name).columns)) for name in newest]
        return pa.unify_schemas([pa.schema([]), *schemas])

    def commit(self, batch: int, staged: Staged) -> None:
        assert staged.folder is not None
        added_columns = self.layout.partitioning.columns(staged.schema.remove_metadata())
        schema = pa.unify_schemas([self._schema(), added_columns])
        columns = schema.serialize().to_pybytes()
        name = f"{self._commits}{batch:09}.json"
        self._save(name, _Commit(staged.folder, [file.name for file in staged.files], columns, staged.record))
        self._finish(name)
        for old_commit in self._names(self._commits)[:-_MAX_COMMIT_FILES]:
            self._storage.delete(old_commit)

    def clear_staged(self) -> None:
        """Remove the files of no commit; opening the folder has moved those of the last commit."""
        staging_address(self._location).storage.clear()

    def paths(self) -> list[Path]:
        return [Path(info.path) for info in self._storage.list() if info.path.endswith(".parquet")]

    def rewrite(self, staged: Staged) -> None:
        raise ConfigError(f"{self._location.path}: only files on this machine are written again")

    def compact(self, before: date) -> None:
        raise ConfigError(
            f"{self._location.path} is a folder of Parquet files, and those are put together only on this machine; "
            "keep tables behind addresses as delta or iceberg"
        )

    def expire(self, before: date) -> int:
        partitioning = self.layout.partitioning
        limit = partitioning.period_start(before)
        old_files = {
            path: partition
            for path, partition in self.partitions().items()
            if partitioning.starts_before(partition, limit)
        }
        for path in old_files:
            self._storage.files.delete_file(path.as_posix())
        return len(set(old_files.values()))

    def _names(self, prefix: str = f"{OWN_FOLDER}/commits") -> list[str]:
        names = (self._storage.relative(info.path) for info in self._storage.list(OWN_FOLDER))
        return sorted(name for name in names if name.startswith(prefix) and name.endswith(".json"))

    def _last_commit_name(self) -> str | None:
        return max(self._names(self._commits), default=None)

    def _load(self, name: str) -> _Commit:
        content = self._storage.read(name)
        try:
            return msgspec.json.decode(content or b"", type=_Commit)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._storage.path(name)} cannot be read ({error}); restore it, or move the table and "
                f"{self._location.state} away to begin again"
            ) from None

    def _save(self, name: str, commit: _Commit) -> None:
        self._storage.write(name, msgspec.json.encode(commit))

    def _finish(self, commit_name: str) -> None:
        commit = self._load(commit_name)
        if not commit.moves:
            return
        staged = staging_address(self._location).storage
        for name in commit.moves:
            self._move_staged(staged.path(f"{commit.staged}/{name}"), name)
        self._save(commit_name, _Commit("", [], commit.columns, commit.record))

    def _move_staged(self, source: str, name: str) -> None:
        files, target = self._storage.files, self._storage.path(name)
        source_info, target_info = files.get_file_info([source, target])
        if source_info.type == fs.FileType.File:
            self._storage.make_folder(name)
            files.move(source, target)
        elif target_info.type != fs.FileType.File:
            raise ConfigError(
                f"{source} is gone before it was moved to {target}; restore it, or move the table and "
                f"{self._location.state} away to begin again"
            )
