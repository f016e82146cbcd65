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
    """The location of a table, and who writes it.

    Readers never read `state`. `writer` is an id that stays the same after restarts; `lane` is its suffix for a second
    writer that numbers its own batches. If it `is_read_only`, an unfinished commit is not completed. `wait_s` is how
    long to wait for storage that is away, and `replaced_stay_s` how long files stay that a batch with a key has
    replaced; older snapshots lack them. `file_bytes` is about the size of merged files.
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
        assert isinstance(self.path, Path)
        return self.path

    @property
    def errors(self) -> TableLocation:
        """The table of errors beside the table; it is always divided by day."""
        return replace(
            self, path=errors_path(self.path), state=self.state / "errors", replaced_stay_s=None, partitioning=BY_DAY
        )


def another_run_error(batch: int, root: Path | Address) -> ConfigError:
    """Return the error for a batch that another run has written, with another copy of the state."""
    return ConfigError(
        f"another run has written batch {batch} to {root}, with another copy of its state; stop one of the two"
    )


def errors_path(root: Path | Address) -> Path | Address:
    return root.with_name(f"{root.name}.errors")


class Lake(Protocol):
    """A table that grows by batches."""

    def __init__(self, location: TableLocation) -> None: ...

    @property
    def layout(self) -> Layout:
        """The partition of each row, and the names of files."""

    def last_batch(self) -> int:
        """Return the number of the last batch in the table; -1 before the first."""

    def record(self) -> str | None:
        """Return the record of the last batch of this writer, or of any if the location names none."""

    def columns(self) -> Mapping[str, pa.DataType]:
        """Return the columns, by name; none before the first batch."""

    def commit(self, batch: int, staged: Staged) -> None:
        """Add the files of a batch, all at once, and the columns and nested fields that are new."""

    def paths(self) -> list[Path]:
        """Return the files with rows; behind an address, relative to it."""

    def sizes(self) -> Mapping[Path, int]:
        """Return the size of each file according to the format's log; empty without such a log."""

    def partitions(self) -> Mapping[Path, str]:
        """Return the partition path of each file with rows."""

    def retire(self, before_s: float) -> Collection[Path]:
        """Drop history from before a time, and look for restored files; returns files that the rest needs."""

    def rewrite(self, staged: Staged) -> None:
        """Replace all files, at once; `staged` has all columns, possibly with other types."""

    def compact(self, before: date) -> None:
        """Merge the small files of days before one; without days, of all partitions."""

    def expire(self, before: date) -> int:
        """Remove the partitions of days before one; returns how many. Raises: ConfigError, the table has no days."""


def open_lake(kind: str, location: TableLocation) -> Lake:
    """Open a table of one of FORMATS. Raises: ConfigError, a package is not installed."""
    if not isinstance(location.path, Address):
        return _load_format(kind, FORMATS[kind])(location)
    remote = importlib.import_module("sparrowmq.spark.pipelines.lake.remote_lake")
    lake: Lake = remote.open_remote_lake(location, _load_format(kind, _REMOTE_FORMATS.get(kind, FORMATS[kind])))
    return lake


def _load_format(kind: str, spec: tuple[str, str, str | None]) -> type[Lake]:
    module, name, package = spec
    try:
        lake_class: type[Lake] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"format {kind} needs the package {package}: pip install 'sparrowmq[lake]'") from error
    return lake_class


def staging_address(location: TableLocation) -> Address:
    """Return the address of the files of a Parquet folder that no reader may see yet."""
    assert isinstance(location.path, Address)
    return location.path.with_name(f"{location.path.name}.staged{location.lane}")


def record_at(folder: Path) -> str | None:
    """Return the record of the last batch of a table in a folder, in any format; None without one."""
    for kind, folder_name in _FORMAT_FOLDERS.items():
        if (folder / folder_name).is_dir():
            record: str | None = importlib.import_module(FORMATS[kind][0]).record_at(folder)
            return record
    return None


def check_partition(location: TableLocation, actual: str) -> None:
    """Raises: ConfigError, another program has divided the table in another way."""
    if actual != str(location.partitioning):
        raise ConfigError(
            f"{location.path} is divided by {actual}, and was begun with the partition {location.partitioning}; let "
            "the program that changed it change it back, or begin a new table at another place"
        )


def new_fields(schema: pa.Schema, columns: Mapping[str, pa.DataType]) -> list[pa.Field]:
    """Return the fields that a table with these columns lacks, also those with new nested fields."""
    return [field for field in schema if field.name not in columns or grows(columns[field.name], field.type)]


def missing_files_warning(path: Path | Address, lake: Lake) -> str:
    """Return a warning, with the remedy, if the disk lost or cut a file; appends do not notice that, but readers."""
    if isinstance(path, Address):
        return ""
    damaged = [
        (file, actual_size) for file, size in sorted(lake.sizes().items()) if (actual_size := _file_size(file)) != size
    ]
    if not damaged:
        return ""
    (first, actual_size), more = damaged[0], f" and {len(damaged) - 1:,} more" if len(damaged) > 1 else ""
    fault = "is gone" if actual_size is None else f"has {actual_size:,} bytes, and not those that the log says"
    return (
        f"readers of {path} fail, as {first}{more}, which its log names, {fault}; restore it from a backup, or the "
        "table and its state, and start this again"
    )


def _file_size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
