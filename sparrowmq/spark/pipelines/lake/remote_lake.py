"""A table behind an address: it waits for a store that is away, and is written by one run at a time.

    s3://bucket/orders/.sparrowmq/owner.json     {"writer": "5f…", "run": "9a…"}

No lock of a file system reaches all machines. So the last run that opened the table for writing is its owner. Each run
puts its own name into the file, and looks for it before it changes anything. The run before finds another name, and
ends. A run with another state is not let in at all, as it would write rows a second time that the table has.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from pyarrow import fs

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Storage
from sparrowmq.spark.pipelines.lake.catalogs import catalog_secrets
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER
from sparrowmq.spark.pipelines.lake.parquet import RemoteParquetFolder
from sparrowmq.spark.pipelines.lake.partitioning import Layout
from sparrowmq.spark.pipelines.lake.retry_policy import RetryPolicy
from sparrowmq.spark.pipelines.running.report import to_stderr

if TYPE_CHECKING:
    import pyarrow as pa

    from sparrowmq.spark.pipelines.lake.lake import Lake, TableLocation
    from sparrowmq.spark.pipelines.lake.staged_files import Staged

R = TypeVar("R")

OWNER: Final = f"{OWN_FOLDER}/owner.json"


class _Owner(msgspec.Struct, frozen=True):
    """The state that the table belongs to, and the run that writes it."""

    writer: str
    run: str


class Ownership:
    """Lets one state, and one run with that state, write a table."""

    def __init__(self, storage: Storage, writer: str) -> None:
        self._storage = storage
        self._owner = _Owner(writer, uuid.uuid4().hex)

    def claim(self) -> None:
        """Make this run the owner. Raises: ConfigError, the table is another state's, or one is inside of the other."""
        self._storage.check_bucket()
        owner = self._read_owner()
        if owner is None:
            self._check_apart()
        if owner is not None and owner.writer != self._owner.writer:
            raise ConfigError(
                f"{self._storage.url} belongs to another state folder, from another run's --state; "
                "give that one, or write to another address"
            )
        self._storage.write(OWNER, msgspec.json.encode(self._owner))

    def _check_apart(self) -> None:
        """A merge of a Delta table removes all files below its address that its log does not name."""
        url, advice = self._storage.url, "; write to another address"
        for folder in map(str, PurePosixPath(self._storage.path()).parents):
            if folder not in (".", "/") and self._has_owner(folder):
                raise ConfigError(f"{url} is inside of the table at {folder}{advice}")
        for file in self._storage.list():
            if file.path.endswith(f"/{OWNER}"):
                raise ConfigError(f"{url} has the table at {file.path.removesuffix(f'/{OWNER}')} in it{advice}")

    def _has_owner(self, folder: str) -> bool:
        try:
            return bool(self._storage.files.get_file_info(f"{folder}/{OWNER}").type == fs.FileType.File)
        except OSError:  # the account may not look there
            return False

    def check(self) -> None:
        """Raises: ConfigError, another run has become the owner."""
        if self._read_owner() != self._owner:
            raise ConfigError(
                f"another run has begun to write {self._storage.url}; this one ends, as two would write rows twice"
            )

    def _read_owner(self) -> _Owner | None:
        content = self._storage.read(OWNER)
        return None if content is None else msgspec.json.decode(content, type=_Owner)


def open_remote_lake(location: TableLocation, lake_class: type[Lake]) -> RemoteLake:
    """A lake of a format, at the address of a place. Raises: ConfigError, it belongs to another state."""
    assert isinstance(location.path, Address)
    secrets = catalog_secrets(location.path)
    retry = RetryPolicy(location.path.description, say=to_stderr, secrets=secrets, limit_s=location.wait_s)
    owner = location.writer.removesuffix(location.lane)
    ownership = None if location.is_read_only else Ownership(location.path.storage, owner)
    return RemoteLake(lambda: lake_class(location), retry, ownership)


class RemoteLake:
    """A lake behind an address; `open_lake` opens it, again after each fault. `ownership` is None to look only."""

    def __init__(self, open_lake: Callable[[], Lake], retry: RetryPolicy, ownership: Ownership | None) -> None:
        self._layout: Layout | None = None
        self._open = open_lake
        self._retry = retry
        self._ownership = ownership
        if ownership is not None:
            retry.call(ownership.claim)
        self._lake: Lake | None = None

    @property
    def layout(self) -> Layout:
        self._layout = self._layout or self._call(lambda lake: lake.layout)
        return self._layout

    def forget(self) -> None:
        """Forget the opened table; this run stays its owner."""
        self._lake = None

    def last_batch(self) -> int:
        return self._call(lambda lake: lake.last_batch())

    def record(self) -> str | None:
        return self._call(lambda lake: lake.record())

    def columns(self) -> Mapping[str, pa.DataType]:
        return self._call(lambda lake: lake.columns())

    def commit(self, batch: int, staged: Staged) -> None:
        """Commit unless the table has the batch: after a lost answer only the table knows."""

        def commit(lake: Lake) -> None:
            if lake.last_batch() < batch:
                lake.commit(batch, staged)

        self._call(commit, writes=True)

    def clear_staged(self) -> None:
        """Remove the files of a Parquet folder that no commit has."""

        def clear(lake: Lake) -> None:
            assert isinstance(lake, RemoteParquetFolder)
            lake.clear_staged()

        self._call(clear, writes=True)

    def paths(self) -> list[Path]:
        return self._call(lambda lake: lake.paths())

    def sizes(self) -> Mapping[Path, int]:
        return self._call(lambda lake: lake.sizes())

    def partitions(self) -> Mapping[Path, str]:
        return self._call(lambda lake: lake.partitions())

    def retire(self, before_s: float) -> Collection[Path]:
        return self._call(lambda lake: lake.retire(before_s), writes=True)

    def rewrite(self, staged: Staged) -> None:
        raise ConfigError(f"{self._retry.target}: only files on this machine are written again")

    def compact(self, before: date) -> None:
        self._call(lambda lake: lake.compact(before), writes=True)

    def expire(self, before: date) -> int:
        return self._call(lambda lake: lake.expire(before), writes=True)

    def _call(self, operation: Callable[[Lake], R], *, writes: bool = False) -> R:
        """Call the lake. Raises: ConfigError, a write, or an unfinished commit, and another run owns the table."""

        def attempt() -> R:
            if self._ownership is not None and (writes or self._lake is None):
                self._ownership.check()
            lake = self._lake or self._open()
            self._lake = None  # after a fault it may be behind
            answer = operation(lake)
            self._lake = lake
            return answer

        return self._retry.call(attempt)
