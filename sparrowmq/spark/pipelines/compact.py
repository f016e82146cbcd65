"""The pipeline `compact`: the small files of a table put together, and days that are too old taken out.

Each batch leaves some files a day, and readers open every one. Days that are over are put together; the rows stay
as they are, and `table` goes on behind its last batch as ever. No Spark is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.settings.setting_kinds import size
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import FILE_BYTES, Lake, Place, open_lake
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.runner import Runner
from sparrowmq.spark.pipelines.tables.error_retry import finish_retry
from sparrowmq.spark.pipelines.tables.table_settings import Settled, begun, held, place_of, state_of

FILE_SIZE: Final = size(64 << 20, 512 << 20)


def _bytes_of(file_size: int | str) -> int:
    try:
        return int(FILE_SIZE.parse(str(file_size)))
    except ValueError:
        raise ConfigError(f"file_size={file_size} must be from 64MiB to 512MiB") from None


def today() -> date:
    """In UTC, as tables have days."""
    return datetime.now(UTC).date()


def compact(
    table: str | Path,
    *,
    keep_days: int | None = None,
    all_days: bool = False,
    dry_run: bool = False,
    say: Say = to_stderr,
    file_size: int | str = FILE_BYTES,
    day: Callable[[], date] = today,
    state: str | Path | None = None,
    catalog_options: Mapping[str, str] | None = None,
) -> Report:
    """Put together the small files of a table and of its table of errors; `read` and `written` count files.

    Args:
        keep_days: take out days that are older than so many.
        all_days: also today, to which files are still added.
        file_size: about the size of new files, in bytes or as "256MiB".
        state: the folder of the progress, if the table is at an address. catalog_options: of its catalog.
        dry_run: say how many files there are, and change nothing.
    Raises:
        ConfigError: there is no table, or it is being written.
    """
    if keep_days is not None and keep_days < 1:
        raise ConfigError(f"keep_days={keep_days} would leave nothing; give 1 or more")
    file_bytes = _bytes_of(file_size)
    root = place_of(table, state, catalog_options)
    settled = begun(root)
    if settled is None:
        raise ConfigError(f"{root} is no table; the pipeline `table` makes them")
    merges = isinstance(root, Path) or settled.format == "delta"
    if not merges and keep_days is None:
        raise ConfigError(
            f"{root}: behind an address only files of Delta tables are put together; give keep_days to remove old "
            "days, and let an engine that knows the table's catalog put files together"
        )
    if keep_days is not None:
        settled.partitioning.limit(day())
    before = day() + timedelta(days=1) if all_days else day()
    oldest = None if keep_days is None else day() - timedelta(days=min(keep_days, day().toordinal() - 1))
    runner = Runner(dry_run=dry_run, say=say)
    report = runner.report
    with runner.timed(), nullcontext() if dry_run else held(root, runner):
        if not dry_run:
            finish_retry(root, settled)
        for path, lake in _lakes(root, settled, only_looked_at=dry_run, file_bytes=file_bytes):
            if dry_run:
                say(f"{path}: {counted(len(lake.paths()), 'file')}")
                continue
            if oldest is not None:
                say(f"{path}: {lake.expire(oldest):,} days before {oldest} are taken out")
            report.add_read(len(lake.paths()))
            if merges:
                lake.compact(before)
            report.written += len(lake.paths())
            say(f"{path}: {counted(len(lake.paths()), 'file')}")
    return report


def _lakes(
    root: Path | Address, settled: Settled, *, only_looked_at: bool, file_bytes: int
) -> Iterator[tuple[Path | Address, Lake]]:
    """The table and its table of errors, as far as they are there."""
    table = Place(
        root,
        state_of(root),
        settled.writer,
        only_looked_at=only_looked_at,
        file_bytes=file_bytes,
        partitioning=settled.partitioning,
    )
    for place in (table, table.of_errors):
        if not isinstance(place.path, Path) or place.path.exists():
            yield place.path, open_lake(settled.format, place)
