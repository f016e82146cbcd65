"""The progress of one table of a lake: the messages of its last batch, stored before the batch starts.

    STATE/lake.json     {"v":1,"batch":7,"start":{...},"end":{...}}      the current batch, or the last one
    STATE/lake.done     7 7 3        the last batch that is done, and those of the table and of its table of errors

Batch -1 is where the table begins. A start after a crash repeats the unfinished batch, with the same messages. The
table and its table of errors know their last batch, so each adds a batch once. If `lake.done` is older than it should
be, one batch is repeated and adds nothing.

Each start compares the state with the commits of the tables, which have the offsets before and after their last batch.
Without this, a batch with a number that a table already has would be skipped, although its messages are others.

    the state is gone, older than the tables, or another copy     continue after the tables
    both tables are older than the state, or were rolled back     the same: the messages that they lack are read again
    a table is gone, or the two are from different times          refused

A table that the pipeline `table` began has Spark's checkpoint. It is taken over once and renamed, so that no later
stream continues from it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake, another_run_error
from sparrowmq.spark.pipelines.running.folders import read_sealed, replace_file, write_sealed
from sparrowmq.spark.pipelines.tables.progress import Record, check_errors_exist, is_ahead, parse_stream_record
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from sparrowmq.spark.source.partition_ranges import VERSION, Offsets, from_json, to_json

_PLAN_FILE: Final = "lake.json"
_DONE_FILE: Final = "lake.done"
_CHECKPOINT: Final = "checkpoint"
_UNUSED_CHECKPOINT: Final = "checkpoint.taken-over"


@dataclass(frozen=True, slots=True)
class Progress:
    """The batch at hand, or the last one, with its start and end; `rows` and `errors` are the tables' last batches."""

    batch: int = -1
    start: Offsets = field(default_factory=Offsets)
    end: Offsets = field(default_factory=Offsets)
    is_done: bool = True
    rows: int = -1
    errors: int = -1

    @property
    def offsets(self) -> Offsets:
        return copy_offsets(self.end)

    @property
    def position(self) -> Offsets:
        """The next offset of each queue; an unfinished batch does not count."""
        return copy_offsets(self.end if self.is_done else self.start)

    def next(self, start: Offsets, end: Offsets) -> Progress:
        """Return the next batch; `start` also has queues that appeared since."""
        return replace(self, batch=self.batch + 1, start=copy_offsets(start), end=end, is_done=False)

    def done(self, rows: int, errors: int) -> Progress:
        """Return the finished batch, with the last batches of both tables."""
        return replace(self, is_done=True, rows=rows, errors=errors)


def copy_offsets(offsets: Offsets) -> Offsets:
    return Offsets(offsets, offsets.incarnations)


def save_progress(state: Path, progress: Progress) -> None:
    """Store the plan of a batch, or that it is done."""
    if progress.is_done and progress.batch >= 0:
        numbers = f"{progress.batch} {progress.rows} {progress.errors}"
        replace_file(state / _DONE_FILE, numbers)
    else:
        start, end = to_json(progress.start), to_json(progress.end)
        plan = {"v": VERSION, "batch": progress.batch, "start": start, "end": end}
        write_sealed(state / _PLAN_FILE, plan)


def load_progress(state: Path) -> Progress | None:
    """Return the progress of a table; None if no lake ever wrote it. Raises: ConfigError, the file is damaged."""
    path = state / _PLAN_FILE
    if not path.exists():
        return None
    try:
        plan = read_sealed(path)
        progress = Progress(int(plan["batch"]), from_json(plan["start"]), from_json(plan["end"]), False)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is damaged; restore it from a backup") from None
    batch, rows, errors = _read_done(state / _DONE_FILE)
    return replace(progress, is_done=progress.batch in (-1, batch), rows=rows, errors=errors)


def brokers_in(state: Path) -> set[str]:
    """Return the brokers that a table was read from; empty if its progress is missing or damaged."""
    with suppress(ConfigError):
        progress = load_progress(state)
        return {queue.broker_name for queue in progress.end} if progress is not None else set()
    return set()


def _read_done(path: Path) -> tuple[int, int, int]:
    """The three numbers of the file, -1 for one that it lacks; earlier releases wrote only the first."""
    words = path.read_bytes().split() if path.exists() else []
    batch, rows, errors, *_ = [*(int(word) for word in words if word.lstrip(b"-").isdigit()), -1, -1, -1]
    return batch, rows, errors


def checkpoint_progress(state: Path, settings: TableSettings) -> Progress | None:
    """The progress of a table that the pipeline `table` began; None without its checkpoint. Raises: ConfigError."""
    checkpoint = state / _CHECKPOINT
    batches = sorted(int(path.name) for path in checkpoint.glob("offsets/[0-9]*"))
    if not batches:
        return None
    last = batches[-1]
    end = _offsets(checkpoint / "offsets" / str(last))
    if last - 1 in batches:
        start = _offsets(checkpoint / "offsets" / str(last - 1))
    else:
        start = from_json(settings.resumed or {"v": VERSION, "topics": settings.begin or {}})
    is_done = (checkpoint / "commits" / str(last)).exists()
    starts = {queue: start.get(queue, 0) for queue in end}
    return Progress(settings.first + last, Offsets(starts, start.incarnations), end, is_done)


def move_checkpoint_aside(state: Path) -> None:
    """Rename Spark's checkpoint, after its progress was stored."""
    if (state / _CHECKPOINT).exists():
        (state / _CHECKPOINT).rename(state / _UNUSED_CHECKPOINT)


def _offsets(path: Path) -> Offsets:
    """The offsets of one batch in Spark's checkpoint: a version, Spark's own line, and a line for each source."""
    lines = path.read_text().splitlines()
    try:
        parsed: Any = json.loads(lines[2])
        return from_json(parsed)
    except (ValueError, IndexError, AttributeError):
        raise ConfigError(
            f"{path} is no progress of the pipeline `table`; let the pipeline end its batch by --once first"
        ) from None


class TableState(NamedTuple):
    """The last batch of a table, -1 before the first, and a record; earlier releases wrote none.

    The record is of an earlier batch if another program took the table back, as `RESTORE` of Delta or a rollback of
    Iceberg does. The number of the last batch is not given again.
    """

    last: int
    record: Record | None

    @property
    def last_with_rows(self) -> int:
        """The last batch whose rows the table has."""
        return self.last if self.record is None else self.record.batch


class Comparison(NamedTuple):
    """The progress to go on with; how the state differed from the tables, or ""; then also the table's columns."""

    progress: Progress
    difference: str = ""
    fields: dict[str, str] | None = None


def table_state(lake: Lake) -> TableState:
    record = parse_stream_record(lake.record())  # first: then the table is as other programs have left it
    return TableState(lake.last_batch(), record)


def batch_record(progress: Progress, settings: TableSettings, *, other: int, is_half: bool = False) -> str:
    """Return the record for a commit; `other` and `is_half` as in `Record`."""
    start, end = to_json(progress.start), to_json(progress.end)
    return Record(progress.batch, start, end, is_half, other, settings.to_json()).text()


def check_same_batch(root: Path | Address, lake: Lake, known_batch: int, progress: Progress) -> None:
    """Raises: ConfigError, another run wrote a batch with this number, or later batches."""
    record = table_state(lake).record if lake.last_batch() != known_batch else None
    if record is None or record.batch == known_batch:
        return
    if record.batch != progress.batch or record.end != to_json(progress.end):
        raise another_run_error(record.batch, root)


def was_rolled_back(progress: Progress, rows: Lake, errors: Lake) -> bool:
    """Whether another program rolled one of the tables back."""
    return table_state(rows).last_with_rows < progress.rows or table_state(errors).last_with_rows < progress.errors


def compare_progress(
    root: Path | Address, state: Path, progress: Progress, rows: TableState, errors: TableState
) -> Comparison:
    """Compare a state with its tables. Raises: ConfigError, it is not known which messages the tables have."""
    _check_tables_exist(root, state, progress, rows, errors)
    # Errors come last in a batch.
    records = [state.record for state in (errors, rows) if state.record is not None]
    newest = max(records, key=lambda record: record.batch, default=None)
    last = max(rows.last_with_rows, errors.last_with_rows)
    if newest is None or newest.batch < last:
        if last > progress.batch:
            raise ConfigError(
                f"{root} has batch {last}, and {state} ends with batch {progress.batch}, so it is not known which "
                "messages the table has; restore the newest copy of the state, or move both away to begin again"
            )
        return Comparison(progress)
    difference = _difference(progress, newest, rows, errors)
    if not difference:
        return Comparison(progress)
    fields = TableSettings(**newest.settled).fields
    return Comparison(_progress_after(root, progress, newest, rows, errors), difference, fields)


def _check_tables_exist(
    root: Path | Address, state: Path, progress: Progress, rows: TableState, errors: TableState
) -> None:
    if rows.last < 0 <= progress.rows:
        raise ConfigError(
            f"{root} is empty, but {state} is behind its batch {progress.rows}; restore the table, or move {state} "
            "away to begin again"
        )
    last_known = max(progress.errors, rows.record.other if rows.record is not None else -1)
    if errors.last < 0 <= last_known:
        check_errors_exist(root)


def _difference(progress: Progress, newest: Record, rows: TableState, errors: TableState) -> str:
    assert newest.end is not None
    if newest.batch > progress.batch:
        return "its state was lost" if progress.batch < 0 else "its state is older than the table"
    if progress.rows > rows.last_with_rows or progress.errors > errors.last_with_rows >= 0:
        return "its state is newer than the table"
    if newest.batch == progress.batch:
        is_same = newest.end == to_json(progress.end)
    else:
        is_same = not is_ahead(from_json(newest.end), progress.start)
    return "" if is_same else "its state is another copy than the one that was used last"


def _progress_after(
    root: Path | Address, progress: Progress, newest: Record, rows: TableState, errors: TableState
) -> Progress:
    """Return the progress after the tables; a batch that only one table has is repeated."""
    assert newest.end is not None
    newer, other = (errors, rows) if newest is errors.record else (rows, errors)
    # The part of a half batch is given to the other table under the same number, which a restored table has used.
    is_torn = newest.is_half and (newest.start is None or other.last >= newest.batch)
    if newest.other != other.last_with_rows or is_torn:
        raise ConfigError(
            f"{root} and {root}.errors are of different times, so a message could be missing or twice; restore both "
            "from the same time, or move them and their state away to begin again"
        )
    last_batches = Progress(rows=rows.last_with_rows, errors=errors.last_with_rows)
    end = from_json(newest.end)
    if newest.is_half and newest.start is not None:
        return replace(last_batches, batch=newest.batch, start=from_json(newest.start), end=end, is_done=False)
    number = max(progress.batch, progress.rows, progress.errors, newer.last, other.last)
    return replace(last_batches, batch=number, start=end, end=end)
