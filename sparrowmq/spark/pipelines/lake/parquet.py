"""A table that is a folder of Parquet files, `_day=2026-01-31/…`, which everything reads.

In a folder of this machine (`ParquetFolder`):

    table/.sparrowmq/000000007.json     the files of batch 7, and its record: written first, and that is the commit
    table/_day=…/…-000000007-*.parquet  then each file is moved to its place, and the list is emptied

A crash in between leaves files to be moved; the next start does it. If the state with the files was lost meanwhile, the
next start takes the commit back. Readers ignore names that begin with a dot. Spark's own sink keeps a log of files that
only Spark reads: all other readers of its folders see a batch twice that was written again.

At an address, such as `s3://bucket/orders/_day=2026-01-31/…` (`RemoteParquetFolder`):

    orders.staged/…                            where tasks write: readers of the table do not look there
    orders/.sparrowmq/commits/000000007.json   the files of batch 7, and its record: this is the commit
    orders/_day=…/…                            then each file is moved to its place, and the list is emptied

S3 cannot rename, so a move is a copy by the server and a removal. Commits are in the table and not in the state, so a
run with an older copy of the state sees them. Files are never merged there: only a log of commits, as Delta and Iceberg
have, can replace files while readers use them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
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

_MAX_COMMITS: Final = 10
_MERGE: Final = "merge.json"
_BATCH_FILE: Final = re.compile(r"(.+)-([0-9]{9})-[0-9]+\.parquet$")


class ParquetFolder:
    """A table in a folder."""

    def __init__(self, place: TableLocation) -> None:
        self._place = place
        self.layout = Layout(place.partitioning, keeps_columns=False, has_log=False)
        self._commits = place.folder / f"{OWN_FOLDER}{place.lane}"
        self._earlier = place.state / f"commits{place.lane}"  # where earlier releases had them
        self._merges = place.state / _MERGE
        if not place.is_read_only:
            self._finish()
            self._finish_merge()

    def last_batch(self) -> int:
        found = [*self._commits.glob("[0-9]*.json"), *self._earlier.glob("*.json")]
        return max((int(path.stem) for path in found), default=-1)

    def record(self) -> str | None:
        return _record_of(max(self._commits.glob("[0-9]*.json"), default=None))

    def columns(self) -> dict[str, pa.DataType]:
        """From the last batch of each writer; merged files may lack newer columns."""
        files = self.paths()
        found: dict[str, pa.DataType] = {}
        for file in _last_batch_files(files) or files:
            for field in pq.read_schema(file):
                had = found.get(field.name)
                found[field.name] = field.type if had is None or fits(had, field.type) else had
        return {DAY: pa.date32(), **found} if found and DAY in self.layout.path_only_columns else found

    def commit(self, batch: int, staged: Staged) -> None:
        place = self._place
        moves = {str(file.path): str(place.path / file.name) for file in staged.files}
        _sync(moves)
        commit = self._commits / f"{batch:09}.json"
        self._write(commit, {"moves": moves, "record": staged.record}, is_new=True)
        self._finish()
        for old in sorted(self._commits.glob("[0-9]*.json"))[:-_MAX_COMMITS]:
            old.unlink()

    def paths(self) -> list[Path]:
        return sorted(self._place.folder.glob(self.layout.partitioning.pattern))

    def sizes(self) -> dict[Path, int]:
        return {}

    def partitions(self) -> dict[Path, str]:
        return {path: self.layout.partitioning.partition_of_file(path.as_posix()) for path in self.paths()}

    def retire(self, before_s: float) -> tuple[()]:
        """A folder has no history."""
        return ()

    def rewrite(self, staged: Staged) -> None:
        """Each file is replaced under its name, so no reader misses a row or sees it twice."""
        moves = {str(file.path): str(self._place.folder / file.name) for file in staged.files}
        _sync(moves)
        gone = {str(path) for path in self.paths()} - set(moves.values())
        self._write(self._merges, {"moves": moves, "gone": sorted(gone)})
        self._finish_merge()

    def compact(self, before: date) -> None:
        """A reader during the merge may miss rows, or see rows twice."""
        partitioning = self.layout.partitioning
        for folder in self._folders(lambda partition: partitioning.starts_before(partition, before)):
            for group in group_small_files(sorted(folder.glob("*.parquet")), self._place.file_bytes):
                merged = self._place.state / "compacted" / f"compacted-{uuid.uuid4().hex}.parquet"
                merge_files(group, merged)
                moves = {str(merged): str(folder / merged.name)}
                _sync(moves)
                self._write(self._merges, {"moves": moves, "gone": [str(file) for file in group]})
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
        if not self._merges.exists():
            return
        begun = _read_commit(self._merges)
        _move(begun["moves"])
        for file in begun["gone"]:
            Path(file).unlink(missing_ok=True)
        self._merges.unlink()

    def _finish(self) -> None:
        """Move the files that the last commit has not moved yet. If one is gone, undo the commit."""
        for folder in (self._earlier, self._commits):
            for commit in sorted(folder.glob("[0-9]*.json"))[-1:]:
                said = _read_commit(commit)
                moves = said.get("moves", {}) if folder == self._commits else said
                if all(os.path.exists(staged) or os.path.exists(target) for staged, target in moves.items()):
                    _move(moves)
                    if moves:
                        self._write(commit, {"moves": {}, "record": said.get("record", "")})
                else:
                    for target in moves.values():
                        Path(target).unlink(missing_ok=True)
                    commit.unlink()

    def _write(self, path: Path, content: Mapping[str, Any], *, is_new: bool = False) -> None:
        """Write a file atomically, also in a power cut. Raises: ConfigError, a new file exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".tmp")
        with open(new, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        if not is_new:
            new.rename(path)
            return
        try:
            os.link(new, path)
        except FileExistsError:
            raise another_run_error(int(path.stem), self._place.path) from None
        finally:
            new.unlink()


def _last_batch_files(files: Iterable[Path]) -> list[Path]:
    """Return a file of the last batch of each writer. File times are not reliable: clocks are set back."""
    last: dict[str, tuple[int, Path]] = {}
    for file in files:
        if found := _BATCH_FILE.match(file.name):
            last[found[1]] = max(last.get(found[1], (-1, file)), (int(found[2]), file))
    return [file for _, file in last.values()]


def commits_at(folder: Path, state: Path) -> list[str] | None:
    """Return the last commit of each writer; None while a commit or a merge is unfinished."""
    last = [max(each.glob("[0-9]*.json"), default=None) for each in sorted(folder.glob(f"{OWN_FOLDER}*"))]
    commits = [commit for commit in last if commit is not None]
    if (state / _MERGE).exists() or any(_read_commit(commit).get("moves") for commit in commits):
        return None
    return [str(commit) for commit in commits]


def record_at(folder: Path) -> str | None:
    """Return the record of the last batch of the stream's writer, else of another writer."""
    last = (max(each.glob("[0-9]*.json"), default=None) for each in sorted(folder.glob(f"{OWN_FOLDER}*")))
    return next((record for commit in last if (record := _record_of(commit)) is not None), None)


def _record_of(commit: Path | None) -> str | None:
    return str(_read_commit(commit).get("record") or "") or None if commit else None


def _read_commit(commit: Path) -> dict[str, Any]:
    """Raises: BadStore, the file is damaged. It was synced before its batch was done, so the disk lost it."""
    try:
        said: object = json.loads(commit.read_text())
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise BadStore(
            f"{commit} is damaged, and it says which files its batch has; restore the table and its state from a backup"
        )
    return said


def _sync(files: Iterable[str]) -> None:
    """Sync files before a commit names them: neither Spark nor pyarrow does."""
    for file in files:
        sync(Path(file))


def _move(moves: Mapping[str, str]) -> None:
    for staged, target in moves.items():
        if os.path.exists(staged):
            move_file(staged, Path(target))


class _Commit(msgspec.Struct):
    """The folder of staged files of a batch, the files to move, the columns of the table, and the record."""

    staged: str
    moves: list[str]
    columns: bytes
    record: str


class RemoteParquetFolder:
    """A table in a folder."""

    def __init__(self, place: TableLocation) -> None:
        assert isinstance(place.path, Address)
        self._place = place
        self.layout = Layout(place.partitioning, keeps_columns=False, has_log=False)
        self._storage = place.path.storage
        self._commits = f"{OWN_FOLDER}/commits{place.lane}/"
        if not place.is_read_only and (last := self._last()) is not None:
            self._finish(last)

    def last_batch(self) -> int:
        last = self._last()
        return -1 if last is None else int(PurePosixPath(last).stem)

    def record(self) -> str | None:
        last = self._last()
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
        added = self.layout.partitioning.columns(staged.schema.remove_metadata())
        schema = pa.unify_schemas([self._schema(), added])
        columns = schema.serialize().to_pybytes()
        name = f"{self._commits}{batch:09}.json"
        self._save(name, _Commit(staged.folder, [file.name for file in staged.files], columns, staged.record))
        self._finish(name)
        for old in self._names(self._commits)[:-_MAX_COMMITS]:
            self._storage.delete(old)

    def clear_staged(self) -> None:
        """Remove the files of no commit; opening the folder has moved those of the last commit."""
        staging_address(self._place).storage.clear()

    def paths(self) -> list[Path]:
        return [Path(each.path) for each in self._storage.list() if each.path.endswith(".parquet")]

    def sizes(self) -> dict[Path, int]:
        return {}

    def partitions(self) -> dict[Path, str]:
        return {path: self.layout.partitioning.partition_of_file(path.as_posix()) for path in self.paths()}

    def retire(self, before_s: float) -> tuple[()]:
        """A folder has no history."""
        return ()

    def rewrite(self, staged: Staged) -> None:
        raise ConfigError(f"{self._place.path}: only files on this machine are written again")

    def compact(self, before: date) -> None:
        raise ConfigError(
            f"{self._place.path} is a folder of Parquet files, and those are put together only on this machine; "
            "keep tables behind addresses as delta or iceberg"
        )

    def expire(self, before: date) -> int:
        partitioning = self.layout.partitioning
        limit = partitioning.period_start(before)
        old = {path: each for path, each in self.partitions().items() if partitioning.starts_before(each, limit)}
        for path in old:
            self._storage.files.delete_file(path.as_posix())
        return len(set(old.values()))

    def _names(self, prefix: str = f"{OWN_FOLDER}/commits") -> list[str]:
        found = (self._storage.relative(each.path) for each in self._storage.list(OWN_FOLDER))
        return sorted(name for name in found if name.startswith(prefix) and name.endswith(".json"))

    def _last(self) -> str | None:
        return max(self._names(self._commits), default=None)

    def _load(self, name: str) -> _Commit:
        content = self._storage.read(name)
        try:
            return msgspec.json.decode(content or b"", type=_Commit)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self._storage.path(name)} cannot be read ({error}); restore it, or move the table and "
                f"{self._place.state} away to begin again"
            ) from None

    def _save(self, name: str, commit: _Commit) -> None:
        self._storage.write(name, msgspec.json.encode(commit))

    def _finish(self, commit_name: str) -> None:
        commit = self._load(commit_name)
        if not commit.moves:
            return
        staged = staging_address(self._place).storage
        for name in commit.moves:
            self._move(staged.path(f"{commit.staged}/{name}"), name)
        self._save(commit_name, _Commit("", [], commit.columns, commit.record))

    def _move(self, source: str, name: str) -> None:
        files, target = self._storage.files, self._storage.path(name)
        found, there = files.get_file_info([source, target])
        if found.type == fs.FileType.File:
            self._storage.make_folder(name)
            files.move(source, target)
        elif there.type != fs.FileType.File:
            raise ConfigError(
                f"{source} is gone before it was moved to {target}; restore it, or move the table and "
                f"{self._place.state} away to begin again"
            )
