"""A Delta table, written without Spark's jar for Delta: by the package deltalake.

A batch is one transaction. It adds its files under the writer's name and the batch's number, as Delta's own sink does
(`txn` in the log), so the table itself records the last batch.

The log of a table in a folder is repaired after a power cut or a fault of the disk:

    _delta_log/00000000000000000007.json                 version 7
    _delta_log/00000000000000000019.checkpoint.parquet   the state after versions 0 to 19; readers begin here

Readers take an empty version for a version without changes, so they silently miss its rows.

    the last versions are empty      a power cut emptied them before their batch was done: they become versions without
                                     rows
    an earlier version is empty      its rows are hidden, and no restart can bring them back: refused
    the newest checkpoint is torn    it is removed, if all versions since the checkpoint before it exist

Readers skip files by the statistics in the log, from the footer of each Parquet file: the least and greatest value of
each column, and the count of nulls. A long text is cut to 32 characters, and for an upper bound the last character of
Unicode is added. With deltalake 1.6, rows are hidden if some files lack statistics of a column that has them. So the
columns are fixed (`statistics_columns`), and a file has the statistics of all of them or of none.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, read_footer, storage_options
from sparrowmq.spark.pipelines.lake.compaction import (
    MERGE_AT_TINY_FILES,
    REWRITTEN_PREFIX,
    TINY_BYTES,
    TinyFiles,
    with_new_names,
)
from sparrowmq.spark.pipelines.lake.lake import TableLocation, another_run_error, check_partition, new_fields
from sparrowmq.spark.pipelines.lake.partitioning import Layout, Partitioning, partition_text
from sparrowmq.spark.pipelines.lake.staged_files import move_into_place
from sparrowmq.spark.pipelines.running.folders import replace_file

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile

# New tables have no such property: replaced files stay for a week, and versions for 30 days if they are among the last.
_HISTORY_PROPERTY: Final = "delta.logRetentionDuration"
_EARLIER_HISTORY: Final = "interval 1 days"  # of tables that earlier releases made
# Each commit reads the log behind the last checkpoint again: with 100 versions, the default, a commit takes twice the
# CPU. On a store the files of more checkpoints would stay for 30 days.
_FOLDER_PROPERTIES: Final[dict[str, str | None]] = {"delta.checkpointInterval": "20"}
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
_WRITER: Final = "sparrowmq.writer"
_RECORD: Final = "sparrowmq.record"
_MAX_VERSIONS: Final = 500  # that a log in a folder keeps
_VERSION_FILE: Final = re.compile(r"[0-9]{20}\.")
_HISTORY_LIMITS: Final = (1, 20, 1000, None)  # commits that are looked at; the last one is this writer's as a rule
_STATISTICS_PROPERTY: Final = "delta.dataSkippingStatsColumns"
LOG: Final = "_delta_log"
_LOG_FILE: Final = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_PARQUET_MAGIC: Final = b"PAR1"
_MAPPING_PROPERTY: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
_CONSTRAINT_PREFIX: Final = "delta.constraints."
_UNSUPPORTED: Final = re.compile(r"Unsupported table features required: \[([^\]]*)\]")
_MAX_STATISTICS_COLUMNS: Final = 32  # Delta's own default
_MAX_BOUND_CHARS: Final = 32
_MAX_CHARACTER: Final = "\U0010ffff"
_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # names that need no quotes
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


class Delta:
    def __init__(self, location: TableLocation) -> None:
        self._location = location
        self.layout = Layout(location.partitioning, keeps_columns=False)
        self._partition_columns = list(location.partitioning.names)
        self._has_leftovers = True  # files of a commit that a crash, or an error, has cut short
        self._tiny = TinyFiles()
        self._checked_version = -_MAX_VERSIONS  # the version at which the log was looked at
        self._metadata: dict[str, str] = {}  # of the last commit; commits that merge files repeat it
        _check_no_escape(location.path)
        if isinstance(location.path, Path) and not location.is_read_only:
            repair_log(location.path)
        path, self._options = str(location.path), storage_options(str(location.path))
        is_there = DeltaTable.is_deltatable(path, self._options)
        self._table = _open_table(location.path, self._options) if is_there else None
        self._synced_version = -1 if self._table is None else self._table.version()
        if self._table is not None:
            columns = self._table.metadata().partition_columns
            if columns != self._partition_columns:
                check_partition(location, ", ".join(columns))

    def last_batch(self) -> int:
        version = self._table.transaction_version(self._location.writer) if self._table else None
        return -1 if version is None else version

    def record(self) -> str | None:
        if self._table is None:
            return None
        self._table.update_incremental()  # an older one numbers the versions of its history wrongly
        record = _writer_record(self._table, self._location.writer)
        if record is None and self.last_batch() >= 0:
            raise ConfigError(
                f"{self._location.path} was taken back to a version before its first batch; restore a later version, "
                "or move the table and its state away to begin again"
            )
        return record or None

    def columns(self) -> dict[str, pa.DataType]:
        schema = pa.schema(self._table.schema()) if self._table else ()
        return {field.name: field.type for field in schema}

    def commit(self, batch: int, staged: Staged) -> None:
        location, schema = self._location, self.layout.partitioning.columns(staged.schema)
        if self._table is None:
            self._table = DeltaTable.create(
                str(location.path),
                schema,
                partition_by=self._partition_columns,
                configuration=_FOLDER_PROPERTIES if isinstance(location.path, Path) else {},
                storage_options=self._options,
            )
            self._sync_log()
        else:
            check_writable(location.path, self._table)
            check_log(location.path)  # the next checkpoint would leave out an empty version for good
        if _STATISTICS_PROPERTY not in self._table.metadata().configuration:  # also a table of an earlier release
            columns = statistics_columns(
                field
                for field in pa.schema(self._table.schema().to_arrow()).remove_metadata()
                if field.name not in self._partition_columns
            )
            self._table.alter.set_table_properties({_STATISTICS_PROPERTY: columns})
        if fields := new_fields(schema, self.columns()):
            kinds = {field.name: field for field in Schema.from_arrow(schema).fields}
            self._table.alter.add_columns([kinds[field.name] for field in fields])
        self._sync_log()
        if self._has_leftovers:
            self._check_new_batch(batch)
        move_into_place(staged, location.path, f"{location.writer}-{batch:09}", has_leftovers=self._has_leftovers)
        self._has_leftovers = True
        self._metadata = {_WRITER: location.writer, _RECORD: staged.record}
        with explain_unsupported_features(location.path):
            self._table.create_write_transaction(
                [*self._add_actions(staged), *self._remove_actions(staged.removed)],
                "append",
                self._table.schema(),
                self._partition_columns,
                commit_properties=CommitProperties(
                    custom_metadata=self._metadata, app_transactions=[Transaction(location.writer, batch)]
                ),
            )
        self._has_leftovers = False
        self._table.update_incremental()
        self._sync_log()
        self._tiny.add(staged, self._tiny_partitions, self._merge)
        self._shorten_log()

    def _check_new_batch(self, batch: int) -> None:
        """Raises: ConfigError, another run has written the batch; its files would look like leftovers."""
        assert self._table is not None
        self._table.update_incremental()
        if self.last_batch() >= batch:
            raise another_run_error(batch, self._location.path)

    @contextmanager
    def _sync_new_files(self) -> Iterator[None]:
        """Sync the files that deltalake writes in this context, and their commits."""
        old_files = set(self._files())
        yield
        for path in sorted(set(self._files()) - old_files) if isinstance(self._location.path, Path) else ():
            sync(path)
        self._sync_log()

    def _sync_log(self) -> None:
        """Bring the last commits to the disk: no reader can open a table whose commits a power cut has emptied."""
        assert self._table is not None
        if isinstance(self._location.path, Path) and self._synced_version < self._table.version():
            log = self._location.path / LOG
            versions = range(self._synced_version + 1, self._table.version() + 1)
            names = [f"{version:020}.{kind}" for version in versions for kind in ("json", "checkpoint.parquet")]
            for path in (*(log / name for name in names), log):
                if path.exists():
                    sync(path)
            self._synced_version = self._table.version()

    def _shorten_log(self) -> None:
        """Remove old versions of a table in a folder, unless its owner keeps them: they slow down commits."""
        assert self._table is not None
        version = self._table.version()
        if not isinstance(self._location.path, Path) or version - self._checked_version < _MAX_VERSIONS // 2:
            return
        self._checked_version = version
        if self._table.metadata().configuration.get(_HISTORY_PROPERTY, _EARLIER_HISTORY) != _EARLIER_HISTORY:
            return
        log = self._location.path / LOG
        files = [(int(path.name[:20]), path) for path in log.iterdir() if _VERSION_FILE.match(path.name)]
        old_checkpoints = [
            number
            for number, path in files
            if number <= version - _MAX_VERSIONS and path.name.endswith(".checkpoint.parquet")
        ]
        for number, path in files:
            if number < max(old_checkpoints, default=0):
                path.unlink()

    def _tiny_partitions(self) -> list[str]:
        return [file["partition"] for file in self._files().values() if file["size_bytes"] < TINY_BYTES]

    def _merge(self, partition: str) -> int:
        """Merge the tiny files of a partition if there are many; returns the count of tiny files after that."""
        assert self._table is not None
        count = self._tiny_partitions().count(partition)
        if count < MERGE_AT_TINY_FILES:
            return count
        properties = CommitProperties(custom_metadata=self._metadata)
        values = self.layout.partitioning.values(partition)
        filters = [(name, "=", text or "") for name, text in values.items()]  # "" is a null to deltalake
        with self._sync_new_files():
            self._table.optimize.compact(filters or None, TINY_BYTES, commit_properties=properties)
            self._sync_log()
            self._table.vacuum(dry_run=False, full=False, commit_properties=properties)
        return 1

    def paths(self) -> list[Path]:
        return sorted(self._files())

    def sizes(self) -> dict[Path, int]:
        return {path: file["size_bytes"] for path, file in self._files().items()}

    def partitions(self) -> dict[Path, str]:
        return {path: file["partition"] for path, file in self._files().items()}

    def retire(self, before_s: float) -> tuple[()]:
        """The log forgets older versions by itself."""
        if self._table is not None:
            self._table.update_incremental()
        return ()

    def _files(self) -> dict[Path, dict[str, Any]]:
        """Return the files with rows and their entries in the log, which escapes their names."""
        if self._table is None:
            return {}
        columns = {name: f"partition.{name}" for name in self._partition_columns}
        actions = pa.table(self._table.get_add_actions(flatten=True))
        entries = actions.select(["path", "size_bytes", *columns.values()]).to_pylist()
        for entry in entries:
            entry["values"] = {
                name: None if (value := entry.pop(column)) is None else partition_text(value)
                for name, column in columns.items()
            }
            entry["partition"] = self.layout.partitioning.path_for(entry["values"])
        root = self._location.path
        folder = root if isinstance(root, Path) else Path()
        return {folder / unquote(entry["path"]): entry for entry in entries}

    def rewrite(self, staged: Staged) -> None:
        assert self._table is not None
        check_plain_files(self._location.path, self._table)
        renamed = with_new_names(staged, self.layout)
        move_into_place(renamed, self._location.path, REWRITTEN_PREFIX, has_leftovers=False)
        self._table.create_write_transaction(
            self._add_actions(renamed), "overwrite", Schema.from_arrow(renamed.schema), self._partition_columns
        )
        self._table.update_incremental()
        self._sync_log()

    def _add_actions(self, staged: Staged) -> list[AddAction | RemoveAction]:
        assert self._table is not None
        now_ms, columns = int(time.time() * 1000), self._table.metadata().configuration.get(_STATISTICS_PROPERTY) or ""
        partitioning = self.layout.partitioning
        return [
            _add_action(file, self._location.path, partitioning.values(file.partition), columns, now_ms)
            for file in staged.files
        ]

    def _remove_actions(self, files: Sequence[Path]) -> list[RemoveAction]:
        if files and self._table is not None:
            check_plain_files(self._location.path, self._table)
        entries, now_ms = self._files() if files else {}, int(time.time() * 1000)
        if missing := [str(path) for path in files if path not in entries]:
            raise FileNotFoundError(f"{missing[0]} is no file of the table; its rows would stay")
        return [
            RemoveAction(entry["path"], True, now_ms, entry["size_bytes"], entry["values"])
            for entry in (entries[path] for path in files)
        ]

    def compact(self, before: date) -> None:
        """Replaced files are deleted after a week; after an hour in tables of earlier releases."""
        if self._table is not None:
            check_writable(self._location.path, self._table)
            time_field, last_day = self.layout.partitioning.time_field, before - timedelta(days=1)
            filters = [(time_field.name, "<=", time_field.last_text(last_day))] if time_field is not None else None
            with self._sync_new_files():
                self._table.optimize.compact(filters, self._location.file_bytes)
                self._sync_log()
                # Tasks write where a remote table is, and killed ones leave files that no log names.
                self._table.vacuum(dry_run=False, full=isinstance(self._location.path, Address))

    def expire(self, before: date) -> int:
        limit = self.layout.partitioning.period_start(before)
        if self._table is None:
            return 0
        old_partitions = set(self.partitions().values())
        with self._sync_new_files():
            self._table.delete(self.layout.partitioning.sql_before(limit))
        return len(old_partitions - set(self.partitions().values()))


def _check_no_escape(path: Path | Address) -> None:
    folder = path.folder if isinstance(path, Address) else path
    if escape := _ESCAPE.search(str(path if folder is None else folder)):
        raise ConfigError(
            f"{path}: a Delta table cannot be in a folder with {escape[0]} in its name, as deltalake takes that for "
            "another character; name another folder, or choose another format"
        )


def _add_action(
    file: StagedFile, folder: Path | Address, values: dict[str, str | None], columns: str, now_ms: int
) -> AddAction:
    statistics = delta_statistics(read_footer(folder, file.name), columns)
    return AddAction(quote(file.name, safe="/=-_."), file.size, values, now_ms, True, statistics)


def _open_table(place: Path | Address, options: dict[str, str] | None) -> DeltaTable:
    check_log(place)
    try:
        return DeltaTable(str(place), storage_options=options)
    except DeltaError as error:
        if not isinstance(place, Path):
            raise
        raise BadStore(
            f"the log of the table in {place / LOG} is damaged ({' '.join(str(error).split())[:200]}); "
            "restore the table and its state from a backup"
        ) from None


def delta_files(url: str, partitioning: Partitioning, options: dict[str, str] | None = None) -> dict[str, str]:
    """Return the files of a Delta table, relative to it, and the partition path of each."""
    table = DeltaTable(url, storage_options=options)
    check_plain_files(url, table)
    return {
        unquote(entry["path"]): partitioning.path_for(
            {
                name: None if (value := entry[f"partition.{name}"]) is None else partition_text(value)
                for name in partitioning.names
            }
        )
        for entry in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    }


def record_at(folder: Path) -> str | None:
    return (_writer_record(_open_table(folder, None), "") or None) if DeltaTable.is_deltatable(str(folder)) else None


def _writer_record(table: DeltaTable, writer: str) -> str | None:
    """Of the last commit of a writer, "" for any; a table that was restored is what it was at that version.

    Returns "" if none is known: earlier releases wrote none, and a log keeps some commits only. None if the table was
    restored to a version before the first commit of the writer.
    """
    restored_version: int | None = None
    commits: list[dict[str, Any]] = []
    for limit in _HISTORY_LIMITS:
        restored_version, commits = None, table.history(limit)
        for commit in commits:
            if restored_version is not None and commit["version"] > restored_version:
                continue
            if commit.get("operation") == "RESTORE":
                restored_version = int(commit["operationParameters"]["version"])
            elif (commit_writer := commit.get(_WRITER)) and writer in ("", commit_writer):
                return str(commit.get(_RECORD) or "")
        if limit is None or len(commits) < limit:
            break
    return None if restored_version is not None and commits[-1]["version"] == 0 else ""


def check_log(table: Path | Address) -> None:
    """Raises: BadStore, a version that readers need is empty, and a later one is not."""
    if not isinstance(table, Path):
        return
    versions, checkpoints = _log_files(table / LOG)
    first = max(checkpoints, default=-1)
    empty = _empty_versions(versions, first)
    if empty and empty[0] not in _trailing_versions(versions, empty):
        raise BadStore(
            f"{versions[empty[0]]} is empty, so readers of the table lack its rows, and do not notice; restore this "
            "file from a backup, or the whole table: then what that lacks is read again"
        )


def repair_log(table: Path) -> None:
    """Repair versions that a power cut emptied before their batch was done."""
    log = table / LOG
    versions, checkpoints = _log_files(log)
    _drop_torn(log, versions, checkpoints)
    empty = _empty_versions(versions, -1)
    if len(empty) == len(versions) and not checkpoints:
        is_new = next(table.rglob("*.parquet"), None) is None
        for version in reversed(empty if is_new else []):
            versions[version].unlink()
        return
    for version in _trailing_versions(versions, empty):
        commit_info = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "sparrowmq.emptied": "true"}
        replace_file(versions[version], json.dumps({"commitInfo": commit_info}) + "\n", is_safe=True)


def _log_files(log: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    files: dict[str, dict[int, Path]] = {"json": {}, "checkpoint.parquet": {}}
    for name in os.listdir(log) if log.is_dir() else ():
        if match := _LOG_FILE.fullmatch(name):
            files[match[2]][int(match[1])] = log / name
    return files["json"], files["checkpoint.parquet"]


def _empty_versions(versions: dict[int, Path], behind: int) -> list[int]:
    return sorted(version for version, path in versions.items() if version > behind and not path.stat().st_size)


def _trailing_versions(versions: dict[int, Path], empty: list[int]) -> list[int]:
    newest = max(versions.keys() - set(empty), default=-1)
    return [version for version in empty if version > newest]


def _drop_torn(log: Path, versions: dict[int, Path], checkpoints: dict[int, Path]) -> None:
    """Remove the newest checkpoint if it is torn and not needed: readers could not open the table."""
    torn = max(checkpoints, default=-1)
    if torn < 0 or _is_parquet(checkpoints[torn]):
        return
    previous = max((version for version in checkpoints if version < torn), default=-1)
    if versions.keys() >= set(range(previous + 1, torn + 1)):
        (log / _LAST_CHECKPOINT).unlink(missing_ok=True)
        checkpoints.pop(torn).unlink()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(len(_PARQUET_MAGIC)) != _PARQUET_MAGIC:
            return False
        file.seek(-len(_PARQUET_MAGIC), os.SEEK_END)
        return file.read() == _PARQUET_MAGIC


def check_writable(place: Path | Address | str, table: DeltaTable) -> None:
    """Raises: ConfigError, another program turned on a feature, so new files would be wrong for readers.

    With column mapping, columns have other names than in files, so readers see nulls in new files. With a constraint,
    readers rely on a check that this writer does not make.
    """
    settings = table.metadata().configuration
    _check_no_mapping(place, settings)
    names = sorted(name.removeprefix(_CONSTRAINT_PREFIX) for name in settings if name.startswith(_CONSTRAINT_PREFIX))
    if names:
        raise ConfigError(
            f"another program gave {place} the constraint {names[0]}, and new rows are not checked; drop it (ALTER "
            f"TABLE ... DROP CONSTRAINT {names[0]}), and choose rows in a query or a view"
        )


def check_plain_files(place: Path | Address | str, table: DeltaTable) -> None:
    """Raises: ConfigError, files have deleted rows, or other names of columns than the table."""
    _check_no_mapping(place, table.metadata().configuration)
    if _VECTORS in (table.protocol().reader_features or ()):
        raise ConfigError(
            f"another program gave {place} deletion vectors, so its files may have rows that were deleted; take these "
            f"out (REORG TABLE ... APPLY (PURGE)), and then drop the feature (ALTER TABLE ... DROP FEATURE {_VECTORS})"
        )


def _check_no_mapping(place: Path | Address | str, settings: Mapping[str, str | None]) -> None:
    if (settings.get(_MAPPING_PROPERTY) or "none") != "none":
        raise ConfigError(
            f"another program gave {place} column mapping, so columns may have other names than those in files; let "
            f"it set {_MAPPING_PROPERTY} to none again, or begin a new table at another place"
        )


@contextmanager
def explain_unsupported_features(place: Path | Address) -> Iterator[None]:
    """Raises: ConfigError, the table has features that deltalake does not know."""
    try:
        yield
    except DeltaError as error:
        if (match := _UNSUPPORTED.search(str(error))) is None:
            raise
        raise ConfigError(
            f"another program gave {place} features that cannot be written here: {match[1]}; drop them (ALTER TABLE "
            "... DROP FEATURE), or begin a new table at another place"
        ) from error


def statistics_columns(schema: Iterable[pa.Field]) -> str:
    """Return the value of delta.dataSkippingStatsColumns: the columns that get statistics."""
    names = [
        ".".join(path) for path, kind in _leaves(schema) if _is_ordered(kind) and all(map(_PLAIN_NAME.fullmatch, path))
    ]
    return ",".join(names[:_MAX_STATISTICS_COLUMNS])


def delta_statistics(footer: pq.FileMetaData, columns: str) -> str:
    """Return the statistics of columns as JSON; without bounds if the footer lacks those of one column."""
    statistics = {"numRecords": footer.num_rows}
    bounds = _footer_bounds(footer, {name for name in columns.split(",") if name})
    return _JSON.encode(statistics if bounds is None else statistics | bounds).decode()


def _footer_bounds(footer: pq.FileMetaData, columns: set[str]) -> dict[str, Any] | None:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name in columns:  # a file may lack a column
        _put_at(nulls, name.split("."), footer.num_rows)
    leaves = list(_leaves(footer.schema.to_arrow_schema()))
    for index, (path, _) in enumerate(leaves):
        if ".".join(path) not in columns or not all(map(_PLAIN_NAME.fullmatch, path)):
            continue
        statistics = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if any(group_statistics is None or not group_statistics.has_null_count for group_statistics in statistics):
            return None
        _put_at(nulls, path, sum(group_statistics.null_count for group_statistics in statistics))
        filled = [group_statistics for group_statistics in statistics if group_statistics.num_values]
        if not filled:
            continue
        if not all(group_statistics.has_min_max for group_statistics in filled):
            return None
        lower, upper = (
            _lower_bound(min(group_statistics.min for group_statistics in filled)),
            _upper_bound(max(group_statistics.max for group_statistics in filled)),
        )
        if lower is None or upper is None:
            return None
        _put_at(least, path, lower)
        _put_at(greatest, path, upper)
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _leaves(fields: Iterable[pa.Field], outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the leaf columns of a file, in its order; those inside lists and maps have null types."""
    for field in fields:
        kind, path = field.type, (*outer, field.name)
        if pa.types.is_struct(kind):
            yield from _leaves(kind, path)
        elif pa.types.is_nested(kind):
            yield from (((), pa.null()) for _ in range(_count_leaves(kind)))
        else:
            yield path, kind


def _is_ordered(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(is_kind(kind) for is_kind in checks)


def _count_leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _put_at(into: dict[str, Any], path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _lower_bound(value: object) -> object:
    match value:
        case str():
            return value[:_MAX_BOUND_CHARS]
        case datetime():
            return _time_text(value - timedelta(microseconds=value.microsecond % 1000))
    return _json_bound(value)


def _upper_bound(value: object) -> object:
    match value:
        case str() if len(value) > _MAX_BOUND_CHARS:
            return None if value[_MAX_BOUND_CHARS] == _MAX_CHARACTER else value[:_MAX_BOUND_CHARS] + _MAX_CHARACTER
        case datetime():
            round_up = timedelta(microseconds=-value.microsecond % 1000)
            return _time_text(value + round_up) if value.replace(tzinfo=None) <= datetime.max - round_up else None
    return _json_bound(value)


def _json_bound(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date():
            return value.isoformat()
        case int() | str() | Decimal():
            return value
    return None


def _time_text(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
