"""A table that is a folder of Parquet files behind an address, such as `s3://bucket/orders/_day=2026-01-31/…`.

    orders.staged/…                            where tasks write: readers of the table do not look there
    orders/.sparrowmq/commits/000000007.json   which files batch 7 has, and its record: this is the commit
    orders/_day=…/…                            then each is moved to its place, and the list is emptied

S3 cannot rename, so a move is a copy by the server and a removal. A crash in between leaves files to be moved; the next
start does that. Commits are in the table and not in the state, so a run with an older copy of the state sees them.
Files are never put together here: only a log of commits, as Delta and Iceberg have it, can replace files under the eyes
of readers.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import pyarrow as pa
from pyarrow import fs

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER, Place, staging_of
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged

_KEPT_COMMITS: Final = 10


class _Commit(msgspec.Struct):
    """A batch: the folder of its staged files, those that are to be moved, the columns of the table, and its record."""

    staged: str
    moves: list[str]
    columns: bytes
    record: str


class RemoteFolder:
    """The folder, and what was committed to it."""

    def __init__(self, place: Place) -> None:
        assert isinstance(place.path, Address)
        self._place = place
        self.layout = Layout(place.partitioning, keeps=False, has_log=False)
        self._storage = place.path.storage
        self._commits = f"{OWN_FOLDER}/commits{place.lane}/"
        if not place.only_looked_at and (last := self._last()) is not None:
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
        """As the newest commits of all lanes have it: a folder of files has no schema of its own."""
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
        for old in self._names(self._commits)[:-_KEPT_COMMITS]:
            self._storage.delete(old)

    def clear_staged(self) -> None:
        """Remove the files that no commit has; those of the last commit were moved when the folder was opened."""
        staging_of(self._place).storage.clear()

    def paths(self) -> list[Path]:
        return [Path(each.path) for each in self._storage.list() if each.path.endswith(".parquet")]

    def sizes(self) -> dict[Path, int]:
        return {}

    def partitions(self) -> dict[Path, str]:
        return {path: self.layout.partitioning.path_in(path.as_posix()) for path in self.paths()}

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
        limit = partitioning.limit(before)
        old = {path: each for path, each in self.partitions().items() if partitioning.has_begun(each, limit)}
        for path in old:
            self._storage.files.delete_file(path.as_posix())
        return len(set(old.values()))

    def _names(self, prefix: str = f"{OWN_FOLDER}/commits") -> list[str]:
        """The names of commits, in their order; by default those of all lanes."""
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
        """Move what a commit has not moved yet."""
        commit = self._load(commit_name)
        if not commit.moves:
            return
        staged = staging_of(self._place).storage
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
