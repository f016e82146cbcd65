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

Readers skip files by the statistics in the log. They come from the footer of each Parquet file: the least and the
greatest value of each column, and the count of nulls. A long text is cut to its first 32 characters for a lower bound.
For an upper bound, the last character of Unicode is added. deltalake 1.6 hides rows from filters of a column if the
column is among those with statistics and a file has none for it. So the columns with statistics are fixed
(`statistics_columns`), and a file has the statistics of all of them or of none.
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
    REWRITTEN_PREFIX,
    TINY_BYTES,
    TINY_FILES,
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
_HISTORY: Final = "delta.logRetentionDuration"
_EARLIER_HISTORY: Final = "interval 1 days"  # of tables that earlier releases made
# Each commit reads the log behind the last checkpoint again: with 100 versions, the default, a commit takes twice the
# CPU. On a store the files of more checkpoints would stay for 30 days.
_FOLDER_PROPERTIES: Final[dict[str, str | None]] = {"delta.checkpointInterval": "20"}
_ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
_WRITER: Final = "sparrowmq.writer"
_RECORD: Final = "sparrowmq.record"
_VERSIONS: Final = 500  # that a log in a folder keeps
_VERSION_FILE: Final = re.compile(r"[0-9]{20}\.")
_HISTORY_LIMITS: Final = (1, 20, 1000, None)  # commits that are looked at; the last one is this writer's as a rule
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
LOG: Final = "_delta_log"
_FILE: Final = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_LAST_CHECKPOINT: Final = "_last_checkpoint"
_PARQUET: Final = b"PAR1"
_MAPPING: Final = "delta.columnMapping.mode"
_VECTORS: Final = "deletionVectors"
_CONSTRAINT: Final = "delta.constraints."
_UNSUPPORTED: Final = re.compile(r"Unsupported table features required: \[([^\]]*)\]")
_MAX_STATISTICS_COLUMNS: Final = 32  # Delta's own default
_MAX_BOUND_CHARS: Final = 32
_MAX_CHARACTER: Final = "\U0010ffff"
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # names that need no quotes
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


class Delta:
    def __init__(self, place: TableLocation) -> None:
        self._place = place
        self.layout = Layout(place.partitioning, keeps_columns=False)
        self._by = list(place.partitioning.names)
        self._has_leftovers = True  # files of a commit that a crash, or an error, has cut short
        self._tiny = TinyFiles()
        self._shortened_at = -_VERSIONS  # the version at which the log was looked at
        self._metadata: dict[str, str] = {}  # of the last commit; commits that merge files repeat it
        _check_no_escape(place.path)
        if isinstance(place.path, Path) and not place.is_read_only:
            repair_log(place.path)
        path, self._options = str(place.path), storage_options(str(place.path))
        is_there = DeltaTable.is_deltatable(path, self._options)
        self._table = _open_table(place.path, self._options) if is_there else None
        self._on_disk = -1 if self._table is None else self._table.version()
        if self._table is not None and (by := self._table.metadata().partition_columns) != self._by:
            check_partition(place, ", ".join(by))

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
                configuration=_FOLDER_PROPERTIES if isinstance(place.path, Path) else {},
                storage_options=self._options,
            )
            self._sync_log()
        else:
            check_writable(place.path, self._table)
            check_log(place.path)  # the next checkpoint would leave out an empty version for good
        if _STATISTICS not in self._table.metadata().configuration:  # also a table of an earlier release
            columns = statistics_columns(
                field
                for field in pa.schema(self._table.schema().to_arrow()).remove_metadata()
                if field.name not in self._by
            )
            self._table.alter.set_table_properties({_STATISTICS: columns})
        if fields := new_fields(schema, self.columns()):
            kinds = {field.name: field for field in Schema.from_arrow(schema).fields}
            self._table.alter.add_columns([kinds[field.name] for field in fields])
        self._sync_log()
        if self._has_leftovers:
            self._check_new_batch(batch)
        move_into_place(staged, place.path, f"{place.writer}-{batch:09}", has_leftovers=self._has_leftovers)
        self._has_leftovers = True
        self._metadata = {_WRITER: place.writer, _RECORD: staged.record}
        with explain_unsupported_features(place.path):
            self._table.create_write_transaction(
                [*self._adds(staged), *self._removes(staged.removed)],
                "append",
                self._table.schema(),
                self._by,
                commit_properties=CommitProperties(
                    custom_metadata=self._metadata, app_transactions=[Transaction(place.writer, batch)]
                ),
            )
        self._has_leftovers = False
        self._table.update_incremental()
        self._sync_log()
        self._tiny.add(staged, self._partitions_of_tiny, self._merge)
        self._shorten_log()

    def _check_new_batch(self, batch: int) -> None:
        """Raises: ConfigError, another run has written the batch; its files would look like leftovers."""
        assert self._table is not None
        self._table.update_incremental()
        if self.last_batch() >= batch:
            raise another_run_error(batch, self._place.path)

    @contextmanager
    def _sync_new_files(self) -> Iterator[None]:
        """Sync the files that deltalake writes in this context, and their commits."""
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
        if not isinstance(self._place.path, Path) or version - self._shortened_at < _VERSIONS // 2:
            return
        self._shortened_at = version
        if self._table.metadata().configuration.get(_HISTORY, _EARLIER_HISTORY) != _EARLIER_HISTORY:
            return
        log = self._place.path / LOG
        files = [(int(path.name[:20]), path) for path in log.iterdir() if _VERSION_FILE.match(path.name)]
        old = [at for at, path in files if at <= version - _VERSIONS and path.name.endswith(".checkpoint.parquet")]
        for at, path in files:
            if at < max(old, default=0):
                path.unlink()

    def _partitions_of_tiny(self) -> list[str]:
        return [each["partition"] for each in self._files().values() if each["size_bytes"] < TINY_BYTES]

    def _merge(self, partition: str) -> int:
        """Merge the tiny files of a partition if there are many; returns the count of tiny files after that."""
        assert self._table is not None
        tiny = self._partitions_of_tiny().count(partition)
        if tiny < TINY_FILES:
            return tiny
        said = CommitProperties(custom_metadata=self._metadata)
        values = self.layout.partitioning.values(partition)
        chosen = [(name, "=", text or "") for name, text in values.items()]  # "" is a null to deltalake
        with self._sync_new_files():
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
        """Return the files with rows and their entries in the log, which escapes their names."""
        if self._table is None:
            return {}
        columns = {name: f"partition.{name}" for name in self._by}
        actions = pa.table(self._table.get_add_actions(flatten=True))
        found = actions.select(["path", "size_bytes", *columns.values()]).to_pylist()
        for each in found:
            each["values"] = {
                name: None if (value := each.pop(column)) is None else partition_text(value)
                for name, column in columns.items()
            }
            each["partition"] = self.layout.partitioning.path_for(each["values"])
        place = self._place.path
        folder = place if isinstance(place, Path) else Path()
        return {folder / unquote(each["path"]): each for each in found}

    def rewrite(self, staged: Staged) -> None:
        assert self._table is not None
        check_plain_files(self._place.path, self._table)
        new = with_new_names(staged, self.layout)
        move_into_place(new, self._place.path, REWRITTEN_PREFIX, has_leftovers=False)
        self._table.create_write_transaction(self._adds(new), "overwrite", Schema.from_arrow(new.schema), self._by)
        self._table.update_incremental()
        self._sync_log()

    def _adds(self, staged: Staged) -> list[AddAction | RemoveAction]:
        assert self._table is not None
        now_ms, columns = int(time.time() * 1000), self._table.metadata().configuration.get(_STATISTICS) or ""
        partitioning = self.layout.partitioning
        return [
            _add(file, self._place.path, partitioning.values(file.partition), columns, now_ms) for file in staged.files
        ]

    def _removes(self, files: Sequence[Path]) -> list[RemoveAction]:
        if files and self._table is not None:
            check_plain_files(self._place.path, self._table)
        known, now_ms = self._files() if files else {}, int(time.time() * 1000)
        if unknown := [str(path) for path in files if path not in known]:
            raise FileNotFoundError(f"{unknown[0]} is no file of the table; its rows would stay")
        return [
            RemoveAction(each["path"], True, now_ms, each["size_bytes"], each["values"])
            for each in (known[path] for path in files)
        ]

    def compact(self, before: date) -> None:
        """Replaced files are deleted after a week; after an hour in tables of earlier releases."""
        if self._table is not None:
            check_writable(self._place.path, self._table)
            time, last = self.layout.partitioning.time_field, before - timedelta(days=1)
            chosen = [(time.name, "<=", time.last_text(last))] if time is not None else None
            with self._sync_new_files():
                self._table.optimize.compact(chosen, self._place.file_bytes)
                self._sync_log()
                # Tasks write where a remote table is, and killed ones leave files that no log names.
                self._table.vacuum(dry_run=False, full=isinstance(self._place.path, Address))

    def expire(self, before: date) -> int:
        limit = self.layout.partitioning.period_start(before)
        if self._table is None:
            return 0
        had = set(self.partitions().values())
        with self._sync_new_files():
            self._table.delete(self.layout.partitioning.sql_before(limit))
        return len(had - set(self.partitions().values()))


def _check_no_escape(path: Path | Address) -> None:
    folder = path.folder if isinstance(path, Address) else path
    if found := _ESCAPE.search(str(path if folder is None else folder)):
        raise ConfigError(
            f"{path}: a Delta table cannot be in a folder with {found[0]} in its name, as deltalake takes that for "
            "another character; name another folder, or choose another format"
        )


def _add(
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
        unquote(each["path"]): partitioning.path_for(
            {
                name: None if (value := each[f"partition.{name}"]) is None else partition_text(value)
                for name in partitioning.names
            }
        )
        for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    }


def record_at(folder: Path) -> str | None:
    return (_record_of(_open_table(folder, None), "") or None) if DeltaTable.is_deltatable(str(folder)) else None


def _record_of(table: DeltaTable, writer: str) -> str | None:
    """Of the last commit of a writer, "" for any; a table that was restored is what it was at that version.

    Returns "" if none is known: earlier releases wrote none, and a log keeps some commits only. None if the table was
    restored to a version before the first commit of the writer.
    """
    below: int | None = None
    commits: list[dict[str, Any]] = []
    for limit in _HISTORY_LIMITS:
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
        said = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "sparrowmq.emptied": "true"}
        replace_file(versions[version], json.dumps({"commitInfo": said}) + "\n", is_safe=True)


def _log_files(log: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    found: dict[str, dict[int, Path]] = {"json": {}, "checkpoint.parquet": {}}
    for name in os.listdir(log) if log.is_dir() else ():
        if match := _FILE.fullmatch(name):
            found[match[2]][int(match[1])] = log / name
    return found["json"], found["checkpoint.parquet"]


def _empty_versions(versions: dict[int, Path], behind: int) -> list[int]:
    return sorted(each for each, path in versions.items() if each > behind and not path.stat().st_size)


def _trailing_versions(versions: dict[int, Path], empty: list[int]) -> list[int]:
    newest = max(versions.keys() - set(empty), default=-1)
    return [each for each in empty if each > newest]


def _drop_torn(log: Path, versions: dict[int, Path], checkpoints: dict[int, Path]) -> None:
    """Remove the newest checkpoint if it is torn and not needed: readers could not open the table."""
    torn = max(checkpoints, default=-1)
    if torn < 0 or _is_parquet(checkpoints[torn]):
        return
    before = max((each for each in checkpoints if each < torn), default=-1)
    if versions.keys() >= set(range(before + 1, torn + 1)):
        (log / _LAST_CHECKPOINT).unlink(missing_ok=True)
        checkpoints.pop(torn).unlink()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(len(_PARQUET)) != _PARQUET:
            return False
        file.seek(-len(_PARQUET), os.SEEK_END)
        return file.read() == _PARQUET


def check_writable(place: Path | Address | str, table: DeltaTable) -> None:
    """Raises: ConfigError, another program turned on a feature, so new files would be wrong for readers.

    With column mapping, columns have other names than in files, so readers see nulls in new files. With a constraint,
    readers rely on a check that this writer does not make.
    """
    settings = table.metadata().configuration
    _check_no_mapping(place, settings)
    names = sorted(each.removeprefix(_CONSTRAINT) for each in settings if each.startswith(_CONSTRAINT))
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
    if (settings.get(_MAPPING) or "none") != "none":
        raise ConfigError(
            f"another program gave {place} column mapping, so columns may have other names than those in files; let "
            f"it set {_MAPPING} to none again, or begin a new table at another place"
        )


@contextmanager
def explain_unsupported_features(place: Path | Address) -> Iterator[None]:
    """Raises: ConfigError, the table has features that deltalake does not know."""
    try:
        yield
    except DeltaError as error:
        if (found := _UNSUPPORTED.search(str(error))) is None:
            raise
        raise ConfigError(
            f"another program gave {place} features that cannot be written here: {found[1]}; drop them (ALTER TABLE "
            "... DROP FEATURE), or begin a new table at another place"
        ) from error


def statistics_columns(schema: Iterable[pa.Field]) -> str:
    """Return the value of delta.dataSkippingStatsColumns: the columns that get statistics."""
    found = [".".join(path) for path, kind in _leaves(schema) if _is_ordered(kind) and all(map(_PLAIN.fullmatch, path))]
    return ",".join(found[:_MAX_STATISTICS_COLUMNS])


def delta_statistics(footer: pq.FileMetaData, columns: str) -> str:
    """Return the statistics of columns as JSON; without bounds if the footer lacks those of one column."""
    said = {"numRecords": footer.num_rows}
    bounds = _bounds_of(footer, {name for name in columns.split(",") if name})
    return _JSON.encode(said if bounds is None else said | bounds).decode()


def _bounds_of(footer: pq.FileMetaData, columns: set[str]) -> dict[str, Any] | None:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name in columns:  # a file may lack a column
        _put_at(nulls, name.split("."), footer.num_rows)
    leaves = list(_leaves(footer.schema.to_arrow_schema()))
    for index, (path, _) in enumerate(leaves):
        if ".".join(path) not in columns or not all(map(_PLAIN.fullmatch, path)):
            continue
        found = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            return None
        _put_at(nulls, path, sum(each.null_count for each in found))
        filled = [each for each in found if each.num_values]
        if not filled:
            continue
        if not all(each.has_min_max for each in filled):
            return None
        lower, upper = _lower(min(each.min for each in filled)), _upper(max(each.max for each in filled))
        if lower is None or upper is None:
            return None
        _put_at(least, path, lower)
        _put_at(greatest, path, upper)
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Yield the leaf columns of a file, in its order; those inside lists and maps have null types."""
    for field in fields:
        kind, path = field.type, (*above, field.name)
        if pa.types.is_struct(kind):
            yield from _leaves(kind, path)
        elif pa.types.is_nested(kind):
            yield from (((), pa.null()) for _ in range(_count(kind)))
        else:
            yield path, kind


def _is_ordered(kind: pa.DataType) -> bool:
    known = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(each(kind) for each in known)


def _count(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count(kind.field(index).type) for index in range(kind.num_fields))


def _put_at(into: dict[str, Any], path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _lower(value: object) -> object:
    match value:
        case str():
            return value[:_MAX_BOUND_CHARS]
        case datetime():
            return _time(value - timedelta(microseconds=value.microsecond % 1000))
    return _plain(value)


def _upper(value: object) -> object:
    match value:
        case str() if len(value) > _MAX_BOUND_CHARS:
            return None if value[_MAX_BOUND_CHARS] == _MAX_CHARACTER else value[:_MAX_BOUND_CHARS] + _MAX_CHARACTER
        case datetime():
            above = timedelta(microseconds=-value.microsecond % 1000)
            return _time(value + above) if value.replace(tzinfo=None) <= datetime.max - above else None
    return _plain(value)


def _plain(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date():
            return value.isoformat()
        case int() | str() | Decimal():
            return value
    return None


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
