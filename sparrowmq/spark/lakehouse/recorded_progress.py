"""Compares the progress in the state of a lake's table with what the commits of the table say.

    commits    the last batch of the table and of its table of errors, with the offsets before and behind it
    state      the batch at hand, or the last one (`kept_progress.py`)

    the state is gone, older than the tables, or another copy     go on behind the tables
    both tables are older than the state, or were taken back      likewise: the messages that they lack are read again
    a table is gone, or the two are of different times            refused

Without this, a batch with the number of one that a table has would be left out, though its messages are others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.kept_progress import Progress
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake, of_another_run
from sparrowmq.spark.pipelines.tables.begun_table import Settled
from sparrowmq.spark.pipelines.tables.progress import Record, demand_errors, passes, placed
from sparrowmq.spark.source.partition_ranges import from_json, to_json


class Held(NamedTuple):
    """The last batch of a table, -1 before the first, and a record; earlier releases wrote none.

    The record is of an earlier batch if another program took the table back, as `RESTORE` of Delta or a rollback of
    Iceberg does. The number of the last batch is not given again.
    """

    last: int
    record: Record | None

    @property
    def reached(self) -> int:
        """The last batch whose rows the table has."""
        return self.last if self.record is None else self.record.batch


class Compared(NamedTuple):
    """The progress to go on with.

    Attributes:
        why: how the state differed from the tables; "" if it did not. fields: the columns of the table, if it did.
    """

    progress: Progress
    why: str = ""
    fields: dict[str, str] | None = None


def held_by(lake: Lake) -> Held:
    """Ask a table for its last batch, and the record of it."""
    record = placed(lake.record())  # first: then the table is as other programs have left it
    return Held(lake.last_batch(), record)


def record_of(progress: Progress, settled: Settled, *, other: int, is_half: bool = False) -> str:
    """The words of a commit about its batch; `other` and `is_half` as `Record` has them."""
    start, end = to_json(progress.start), to_json(progress.end)
    return Record(progress.batch, start, end, is_half, other, settled.said()).text()


def demand_same_batch(root: Path | Address, lake: Lake, known: int, progress: Progress) -> None:
    """Raises: ConfigError, the table has another batch of this number, or batches behind the one that is known."""
    record = held_by(lake).record if lake.last_batch() != known else None
    if record is None or record.batch == known:
        return
    if record.batch != progress.batch or record.end != to_json(progress.end):
        raise of_another_run(record.batch, root)


def was_taken_back(progress: Progress, rows: Lake, errors: Lake) -> bool:
    """Whether another program let one of the tables be what it was before the last batch that is known."""
    return held_by(rows).reached < progress.rows or held_by(errors).reached < progress.errors


def compared(root: Path | Address, state: Path, progress: Progress, rows: Held, errors: Held) -> Compared:
    """Compare a state with its tables. Raises: ConfigError, it is not known which messages the tables have."""
    _demand_there(root, state, progress, rows, errors)
    # Errors come last in a batch.
    records = [held.record for held in (errors, rows) if held.record is not None]
    newest = max(records, key=lambda record: record.batch, default=None)
    last = max(rows.reached, errors.reached)
    if newest is None or newest.batch < last:
        if last > progress.batch:
            raise ConfigError(
                f"{root} has batch {last}, and {state} ends with batch {progress.batch}, so it is not known which "
                "messages the table has; restore the newest copy of the state, or move both away to begin again"
            )
        return Compared(progress)
    why = _difference(progress, newest, rows, errors)
    if not why:
        return Compared(progress)
    fields = Settled(**newest.settled).fields
    return Compared(_behind(root, progress, newest, rows, errors), why, fields)


def _demand_there(root: Path | Address, state: Path, progress: Progress, rows: Held, errors: Held) -> None:
    """Raises: ConfigError, one of the tables is gone; an empty folder for errors means that new ones are wanted."""
    if rows.last < 0 <= progress.rows:
        raise ConfigError(
            f"{root} is empty, but {state} is behind its batch {progress.rows}; restore the table, or move {state} "
            "away to begin again"
        )
    known = max(progress.errors, rows.record.other if rows.record is not None else -1)
    if errors.last < 0 <= known:
        demand_errors(root)


def _difference(progress: Progress, newest: Record, rows: Held, errors: Held) -> str:
    assert newest.end is not None
    if newest.batch > progress.batch:
        return "its state was lost" if progress.batch < 0 else "its state is older than the table"
    if progress.rows > rows.reached or progress.errors > errors.reached >= 0:
        return "its state is newer than the table"
    if newest.batch == progress.batch:
        is_same = newest.end == to_json(progress.end)
    else:
        is_same = not passes(from_json(newest.end), progress.start)
    return "" if is_same else "its state is another copy than the one that was used last"


def _behind(root: Path | Address, progress: Progress, newest: Record, rows: Held, errors: Held) -> Progress:
    """The progress behind what the tables have; a batch that only the first of them has is done again."""
    assert newest.end is not None
    newer, other = (errors, rows) if newest is errors.record else (rows, errors)
    # The part of a half batch is given to the other one under the same number, which one that was taken back has had.
    is_torn = newest.is_half and (newest.start is None or other.last >= newest.batch)
    if newest.other != other.reached or is_torn:
        raise ConfigError(
            f"{root} and {root}.errors are of different times, so a message could be missing or twice; restore both "
            "from the same time, or move them and their state away to begin again"
        )
    known = Progress(rows=rows.reached, errors=errors.reached)
    end = from_json(newest.end)
    if newest.is_half and newest.start is not None:
        return replace(known, batch=newest.batch, start=from_json(newest.start), end=end, is_done=False)
    number = max(progress.batch, progress.rows, progress.errors, newer.last, other.last)
    return replace(known, batch=number, start=end, end=end)
