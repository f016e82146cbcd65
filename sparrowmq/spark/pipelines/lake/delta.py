"""A Delta table, written without Spark's jar for Delta: by the package deltalake.

A batch is one transaction. It adds its files under the writer's name and the batch's number, as Delta's own sink does
(`txn` in the log), so the table itself records the last batch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, footer_of, storage_options
from sparrowmq.spark.pipelines.lake.delta_features import demand_plain_files, demand_writable, features_named
from sparrowmq.spark.pipelines.lake.delta_log import LOG, demand_whole, mend
from sparrowmq.spark.pipelines.lake.file_statistics import delta_statistics, statistics_columns
from sparrowmq.spark.pipelines.lake.lake import Place, added, demand_partition, of_another_run
from sparrowmq.spark.pipelines.lake.merging import TINY_BYTES, TINY_FILES, TinyFiles
from sparrowmq.spark.pipelines.lake.partitioning import Layout, plain
from sparrowmq.spark.pipelines.lake.rewriting import REWRITTEN, under_new_names
from sparrowmq.spark.pipelines.lake.uncommitted_files import take_over

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged, StagedFile

# New tables have no such property: replaced files stay for a week, and versions for 30 days if they are among the last.
_HISTORY: Final = "delta.logRetentionDuration"
_EARLIER_HISTORY: Final = "interval 1 days"  # of tables that earlier releases made
# Each commit reads the log behind the last checkpoint again: with 100 versions, the default, a commit takes twice the
# CPU. On a store the files of more checkpoints would stay for 30 days.
_OF_FOLDERS: Final[dict[str, str | None]] = {"delta.checkpointInterval": "20"}
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
_WRITER: Final = "sparrowmq.writer"
_RECORD: Final = "sparrowmq.record"
_VERSIONS: Final = 500  # that a log in a folder keeps
_OF_VERSION: Final = re.compile(r"[0-9]{20}\.")
_LOOK: Final = (1, 20, 1000, None)  # commits that are looked at; the last one is this writer's as a rule
_STATISTICS: Final = "delta.dataSkippingStatsColumns"


class Delta:
    def __init__(self, place: Place) -> None:
        self._place = place
        self.layout = Layout(place.partitioning, keeps=False)
        self._by = list(place.partitioning.names)
        self._may_have_left = True  # files of a commit that a crash, or an error, has cut short
        self._tiny = TinyFiles()
        self._shortened = -_VERSIONS  # the version at which the log was looked at
        self._said: dict[str, str] = {}  # of the last commit; commits that merge files repeat it
        _demand_no_escape(place.path)
        if isinstance(place.path, Path) and not place.only_looked_at:
            mend(place.path)
        path, self._options = str(place.path), storage_options(str(place.path))
        is_there = DeltaTable.is_deltatable(path, self._options)
        self._table = _opened(place.path, self._options) if is_there else None
        self._on_disk = -1 if self._table is None else self._table.version()
        if self._table is not None and (by := self._table.metadata().partition_columns) != self._by:
            demand_partition(place, ", ".join(by))

    def last_batch(self) -> int:
        version = self._table.transaction_version(self._place.writer) if self._table else None
        return -1 if version is None else version

    def record(self) -> str | None:
        if self._table is None:
            return None
        self._table.update_incremental()  # an older one numbers the versions of its history wrongly
        record = _record_of(self._table, self._place.writer)
        if record is None and self.last_batch() >= 0:
            raise ConfigError(
                f"{self._place.path} was taken back to a version before its first batch; restore a later version, or "
                "move the table and its state away to begin again"
            )
        return record or None

    def columns(self) -> dict[str, pa.DataType]:
        schema = pa.schema(self._table.schema()) if self._table else ()
        return {field.name: field.type for field in schema}

    def commit(self, batch: int, staged: Staged) -> None:
        place, schema = self._place, self.layout.partitioning.columns(staged.schema)
        if self._table is None:
            self._table = DeltaTable.create(
                str(place.path),
                schema,
                partition_by=self._by,
                configuration=_OF_FOLDERS if isinstance(place.path, Path) else {},
                storage_options=self._options,
            )
            self._sync_log()
        else:
            demand_writable(place.path, self._table)
            demand_whole(place.path)  # the next checkpoint would leave out an empty version for good
        if _STATISTICS not in self._table.metadata().configuration:  # also a table of an earlier release
            columns = statistics_columns(
                field
                for field in pa.schema(self._table.schema().to_arrow()).remove_metadata()
                if field.name not in self._by
            )
            self._table.alter.set_table_properties({_STATISTICS: columns})
        if fields := added(schema, self.columns()):
            kinds = {field.name: field for field in Schema.from_arrow(schema).fields}
            self._table.alter.add_columns([kinds[field.name] for field in fields])
        self._sync_log()
        if self._may_have_left:
            self._demand_new(batch)
        take_over(staged, place.path, f"{place.writer}-{batch:09}", may_have_left=self._may_have_left)
        self._may_have_left = True
        self._said = {_WRITER: place.writer, _RECORD: staged.record}
        with features_named(place.path):
            self._table.create_write_transaction(
                [*self._adds(staged), *self._removes(staged.removed)],
                "append",
                self._table.schema(),
                self._by,
                commit_properties=CommitProperties(
                    custom_metadata=self._said, app_transactions=[Transaction(place.writer, batch)]
                ),
            )
        self._may_have_left = False
        self._table.update_incremental()
        self._sync_log()
        self._tiny.add(staged, self._partitions_of_tiny, self._merge)
        self._shorten_log()

    def _demand_new(self, batch: int) -> None:
        """Raises: ConfigError, another run has written the batch; its files would count as left ones."""
        assert self._table is not None
        self._table.update_incremental()
        if self.last_batch() >= batch:
            raise of_another_run(batch, self._place.path)

    @contextmanager
    def _synced(self) -> Iterator[None]:
        """Bring to the disk the files that deltalake writes itself in a block, and the commits about them."""
        had = set(self._files())
        yield
        for path in sorted(set(self._files()) - had) if isinstance(self._place.path, Path) else ():
            sync(path)
        self._sync_log()

    def _sync_log(self) -> None:
        """Bring the last commits to the disk: no reader can open a table whose commits a power cut has emptied.

        A new column, or a new table, is a commit of its own, and on the disk before the next one.
        """
        assert self._table is not None
        if isinstance(self._place.path, Path) and self._on_disk < self._table.version():
            log = self._place.path / LOG
            versions = range(self._on_disk + 1, self._table.version() + 1)
            new = [f"{each:020}.{kind}" for each in versions for kind in ("json", "checkpoint.parquet")]
            for path in (*(log / name for name in new), log):
                if path.exists():
                    sync(path)
            self._on_disk = self._table.version()

    def _shorten_log(self) -> None:
        """Remove old versions of a table in a folder, as many as a checkpoint has, unless its owner wants them longer.

        For each commit, deltalake looks at all files of the log: 10,000 of them cost 0.2 s.
        """
        assert self._table is not None
        version = self._table.version()
        if not isinstance(self._place.path, Path) or version - self._shortened < _VERSIONS // 2:
            return
        self._shortened = version
        if self._table.metadata().configuration.get(_HISTORY, _EARLIER_HISTORY) != _EARLIER_HISTORY:
            return
        log = self._place.path / LOG
        files = [(int(path.name[:20]), path) for path in log.iterdir() if _OF_VERSION.match(path.name)]
        old = [at for at, path in files if at <= version - _VERSIONS and path.name.endswith(".checkpoint.parquet")]
        for at, path in files:
            if at < max(old, default=0):
                path.unlink()

    def _partitions_of_tiny(self) -> list[str]:
        """The partition of each tiny file."""
        return [each["partition"] for each in self._files().values() if each["size_bytes"] < TINY_BYTES]

    def _merge(self, partition: str) -> int:
        """Make one of the tiny files of a partition, if they are many; returns how many are left."""
        assert self._table is not None
        tiny = self._partitions_of_tiny().count(partition)
        if tiny < TINY_FILES:
            return tiny
        said = CommitProperties(custom_metadata=self._said)
        values = self.layout.partitioning.values(partition)
        chosen = [(name, "=", text or "") for name, text in values.items()]  # "" is a null to deltalake
        with self._synced():
            self._table.optimize.compact(chosen or None, TINY_BYTES, commit_properties=said)
            self._sync_log()
            self._table.vacuum(dry_run=False, full=False, commit_properties=said)
        return 1

    def paths(self) -> list[Path]:
        return sorted(self._files())

    def sizes(self) -> dict[Path, int]:
        return {path: each["size_bytes"] for path, each in self._files().items()}

    def partitions(self) -> dict[Path, str]:
        return {path: each["partition"] for path, each in self._files().items()}

    def retire(self, before_s: float) -> tuple[()]:
        """The log forgets older versions by itself."""
        if self._table is not None:
            self._table.update_incremental()
        return ()

    def _files(self) -> dict[Path, dict[str, Any]]:
        """The files with rows, as the log has them; its names are those of addresses, below the table's folder."""
        if self._table is None:
            return {}
        columns = {name: f"partition.{name}" for name in self._by}
        actions = pa.table(self._table.get_add_actions(flatten=True))
        found = actions.select(["path", "size_bytes", *columns.values()]).to_pylist()
        for each in found:
            each["values"] = {
                name: None if (value := each.pop(column)) is None else plain(value) for name, column in columns.items()
            }
            each["partition"] = self.layout.partitioning.path_of(each["values"])
        place = self._place.path
        folder = place if isinstance(place, Path) else Path()
        return {folder / unquote(each["path"]): each for each in found}

    def rewrite(self, staged: Staged) -> None:
        assert self._table is not None
        demand_plain_files(self._place.path, self._table)
        new = under_new_names(staged, self.layout)
        take_over(new, self._place.path, REWRITTEN, may_have_left=False)
        self._table.create_write_transaction(self._adds(new), "overwrite", Schema.from_arrow(new.schema), self._by)
        self._table.update_incremental()
        self._sync_log()

    def _adds(self, staged: Staged) -> list[AddAction | RemoveAction]:
        """Files that are in their places, as the log has them."""
        assert self._table is not None
        now_ms, columns = int(time.time() * 1000), self._table.metadata().configuration.get(_STATISTICS) or ""
        partitioning = self.layout.partitioning
        return [
            _add(file, self._place.path, partitioning.values(file.partition), columns, now_ms) for file in staged.files
        ]

    def _removes(self, files: Sequence[Path]) -> list[RemoveAction]:
        """Raises: FileNotFoundError, the table does not have one of the files."""
        if files and self._table is not None:
            demand_plain_files(self._place.path, self._table)
        known, now_ms = self._files() if files else {}, int(time.time() * 1000)
        if unknown := [str(path) for path in files if path not in known]:
            raise FileNotFoundError(f"{unknown[0]} is no file of the table; its rows would stay")
        return [
            RemoveAction(each["path"], True, now_ms, each["size_bytes"], each["values"])
            for each in (known[path] for path in files)
        ]

    def compact(self, before: date) -> None:
        """Files that are not needed any more go a week later; an hour later in tables that earlier releases made."""
        if self._table is not None:
            demand_writable(self._place.path, self._table)
            time, last = self.layout.partitioning.time, before - timedelta(days=1)
            chosen = [(time.name, "<=", time.last_text(last))] if time is not None else None
            with self._synced():
                self._table.optimize.compact(chosen, self._place.file_bytes)
                self._sync_log()
                # Tasks write where a remote table is, and killed ones leave files that no log names.
                self._table.vacuum(dry_run=False, full=isinstance(self._place.path, Address))

    def expire(self, before: date) -> int:
        limit = self.layout.partitioning.limit(before)
        if self._table is None:
            return 0
        had = set(self.partitions().values())
        with self._synced():
            self._table.delete(self.layout.partitioning.is_before(limit))
        return len(had - set(self.partitions().values()))


def _demand_no_escape(path: Path | Address) -> None:
    """Raises: ConfigError, deltalake would read the path as another one."""
    folder = path.folder if isinstance(path, Address) else path
    if found := _ESCAPE.search(str(path if folder is None else folder)):
        raise ConfigError(
            f"{path}: a Delta table cannot be in a folder with {found[0]} in its name, as deltalake takes that for "
            "another character; name another folder, or choose another format"
        )


def _add(
    file: StagedFile, folder: Path | Address, values: dict[str, str | None], columns: str, now_ms: int
) -> AddAction:
    statistics = delta_statistics(footer_of(folder, file.name), columns)
    return AddAction(quote(file.name, safe="/=-_."), file.size, values, now_ms, True, statistics)


def _opened(place: Path | Address, options: dict[str, str] | None) -> DeltaTable:
    """Open a table. Raises: BadStore, its log in a folder is damaged."""
    demand_whole(place)
    try:
        return DeltaTable(str(place), storage_options=options)
    except DeltaError as error:
        if not isinstance(place, Path):
            raise
        raise BadStore(
            f"the log of the table in {place / LOG} is damaged ({' '.join(str(error).split())[:200]}); "
            "restore the table and its state from a backup"
        ) from None


def record_at(folder: Path) -> str | None:
    """The record of the last batch of a table in a folder."""
    return (_record_of(_opened(folder, None), "") or None) if DeltaTable.is_deltatable(str(folder)) else None


def _record_of(table: DeltaTable, writer: str) -> str | None:
    """Of the last commit of a writer, "" for any; a table that was restored is what it was at that version.

    Returns "" if none is known: earlier releases wrote none, and a log keeps some commits only. None if the table was
    restored to a version before the first commit of the writer.
    """
    below: int | None = None
    commits: list[dict[str, Any]] = []
    for limit in _LOOK:
        below, commits = None, table.history(limit)
        for commit in commits:
            if below is not None and commit["version"] > below:
                continue
            if commit.get("operation") == "RESTORE":
                below = int(commit["operationParameters"]["version"])
            elif (found := commit.get(_WRITER)) and writer in ("", found):
                return str(commit.get(_RECORD) or "")
        if limit is None or len(commits) < limit:
            break
    return None if below is not None and commits[-1]["version"] == 0 else ""
