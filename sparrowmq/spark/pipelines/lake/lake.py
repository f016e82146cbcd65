"""The interface of a table in any format (`Lake`), and the location of a table."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout, Partitioning
from sparrowmq.spark.pipelines.lake.retry_policy import MAX_WAIT_S
from sparrowmq.spark.pipelines.lake.widening import grows

if TYPE_CHECKING:
    import pyarrow as pa

    from sparrowmq.spark.pipelines.lake.staged_files import Staged

# The data files of a format, below its table; tasks write them there when the table is behind an address.
DATA_FOLDERS: Final = {"iceberg": "data"}
_REMOTE_FORMATS: Final = {"parquet": ("sparrowmq.spark.pipelines.lake.parquet", "RemoteParquetFolder", None)}
FORMATS: Final = {
    "parquet": ("sparrowmq.spark.pipelines.lake.parquet", "ParquetFolder", None),
    "delta": ("sparrowmq.spark.pipelines.lake.delta", "Delta", "deltalake"),
    "iceberg": ("sparrowmq.spark.pipelines.lake.iceberg", "Iceberg", "pyiceberg"),
}
OWN_FOLDER: Final = ".sparrowmq"
FILE_BYTES: Final = 256 << 20  # about the size of merged files
# The folder by which a table of a format is known; the last one is in all of them.
_FORMAT_FOLDERS: Final = {"delta": "_delta_log", "iceberg": "metadata", "parquet": OWN_FOLDER}


@dataclass(frozen=True, slots=True)
class TableLocation:
    """The place of a table.

    Attributes:
        path: of the table. state: what it needs beside its data; readers never look there. writer: who writes it, the
        same over restarts. lane: which, of several writers with batches of their own; a part of their names.
        is_read_only: what an earlier run left unfinished stays so. wait_s: how long a store that is away is waited
        for. replaced_stay_s: how long files stay that a batch with a key has replaced; older snapshots lack them.
        file_bytes: about the size of files that are put together. partitioning: how the table is divided.
    """

    path: Path | Address
    state: Path
    writer: str
    lane: str = ""
    is_read_only: bool = False
    wait_s: float = MAX_WAIT_S
    replaced_stay_s: float | None = None
    file_bytes: int = FILE_BYTES
    partitioning: Partitioning = BY_DAY

    @property
    def folder(self) -> Path:
        """The path of a table on this machine."""
        assert isinstance(self.path, Path)
        return self.path

    @property
    def errors(self) -> TableLocation:
        """The place of the table of errors beside it, which is always divided by the day."""
        return replace(
            self,
            path=errors_path(self.path),
            state=self.state / "errors",
            replaced_stay_s=None,
            partitioning=BY_DAY,
        )


def another_run_error(batch: int, root: Path | Address) -> ConfigError:
    """Return the error of a batch that is in a table already, from a run with another copy of the state."""
    return ConfigError(
        f"another run has written batch {batch} to {root}, with another copy of its state; stop one of the two"
    )


def errors_path(root: Path | Address) -> Path | Address:
    """The path of the table of errors of a table."""
    return root.with_name(f"{root.name}.errors")


class Lake(Protocol):
    """A table that grows by batches."""

    def __init__(self, place: TableLocation) -> None: ...

    @property
    def layout(self) -> Layout:
        """Says which partition each row belongs to."""
        ...

    def last_batch(self) -> int:
        """The number of the last batch that the table has; -1 before the first."""
        ...

    def record(self) -> str | None:
        """The record of the last batch of this writer; of any, if the place names none. None if it has none."""
        ...

    def columns(self) -> Mapping[str, pa.DataType]:
        """The columns, by name; none before the first batch."""
        ...

    def commit(self, batch: int, staged: Staged) -> None:
        """Take over the files of a batch, all at once; columns that are new, or new within a column, are added."""
        ...

    def paths(self) -> list[Path]:
        """The files with rows; behind an address, relative to it, where the format knows which they are."""
        ...

    def sizes(self) -> Mapping[Path, int]:
        """The files with rows, and the bytes of each as the log of the format has them; none without such a log."""
        ...

    def partitions(self) -> Mapping[Path, str]:
        """The files with rows, and the path of the partition of each."""
        ...

    def retire(self, before_s: float) -> Collection[Path]:
        """Drop what is older than a time of the table's history; returns files that the rest of it still needs.

        Then `paths` is what the table has now, also if somebody has restored it meanwhile.
        """
        ...

    def rewrite(self, staged: Staged) -> None:
        """Replace all files, at once; `staged` has all columns, and may have other types."""
        ...

    def compact(self, before: date) -> None:
        """Put together the small files of days before one; of a table without days, of all partitions."""
        ...

    def expire(self, before: date) -> int:
        """Take out the partitions of days before one; returns how many. Raises: ConfigError, the table has no days."""
        ...


def open_lake(kind: str, place: TableLocation) -> Lake:
    """A table of one of FORMATS. Raises: ConfigError, what it needs is not installed."""
    if not isinstance(place.path, Address):
        return _load_format(kind, FORMATS[kind])(place)
    remote = importlib.import_module("sparrowmq.spark.pipelines.lake.remote_lake")
    lake: Lake = remote.open_remote_lake(place, _load_format(kind, _REMOTE_FORMATS.get(kind, FORMATS[kind])))
    return lake


def _load_format(kind: str, spec: tuple[str, str, str | None]) -> type[Lake]:
    module, name, package = spec
    try:
        found: type[Lake] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"format {kind} needs the package {package}: pip install 'sparrowmq[lake]'") from error
    return found


def staging_address(place: TableLocation) -> Address:
    """The address of files of a Parquet folder that no reader is to see yet."""
    assert isinstance(place.path, Address)
    return place.path.with_name(f"{place.path.name}.staged{place.lane}")


def record_at(folder: Path) -> str | None:
    """The record of the last batch of the table in a folder, whichever its format; None if there is none."""
    for kind, mark in _FORMAT_FOLDERS.items():
        if (folder / mark).is_dir():
            found: str | None = importlib.import_module(FORMATS[kind][0]).record_at(folder)
            return found
    return None


def check_partition(place: TableLocation, actual: str) -> None:
    """Raises: ConfigError, another program has divided the table in another way."""
    if actual != str(place.partitioning):
        raise ConfigError(
            f"{place.path} is divided by {actual}, and was begun with the partition {place.partitioning}; let the "
            "program that changed it change it back, or begin a new table at another place"
        )


def new_fields(schema: pa.Schema, columns: Mapping[str, pa.DataType]) -> list[pa.Field]:
    """The fields that a table with the columns `known` lacks, or of which it lacks parts."""
    return [field for field in schema if field.name not in columns or grows(columns[field.name], field.type)]


def missing_files_warning(path: Path | Address, lake: Lake) -> str:
    """Check each file of a table in a folder; return a warning with the remedy, or "" if all are complete.

    A fault of the disk may remove or truncate a file, or change its name in the log. Readers fail then, and appends do
    not notice.
    """
    if isinstance(path, Address):
        return ""
    damaged = [(file, there) for file, size in sorted(lake.sizes().items()) if (there := _file_size(file)) != size]
    if not damaged:
        return ""
    (first, there), more = damaged[0], f" and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
    fault = "is gone" if there is None else f"has {there:,} bytes, and not those that the log says"
    return (
        f"readers of {path} fail, as {first}{more}, which its log names, {fault}; restore it from a backup, or the "
        "table and its state, and start this again"
    )


def _file_size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
