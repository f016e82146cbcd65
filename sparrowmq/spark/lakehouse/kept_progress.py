"""The progress of one table: which messages its last batch has, written before the batch is begun.

    STATE/lake.json     {"v":1,"batch":7,"start":{...},"end":{...}}      the batch at hand, or the last one
    STATE/lake.done     7 7 3        the last batch that is done, and those of the table and of its table of errors

Batch -1 is where the table begins.

A start after a crash does the batch again that is not done, with the same messages. The table and its table of errors
know their last batch, so each adds a batch once. The file of the done batch may be older than it should be: then one
batch is done again, and adds nothing. `recorded_progress.py` finds a state that is not the one of its tables.

A table that the pipeline `table` began has Spark's checkpoint. It is taken over once, and put aside, so that
no later stream goes on from it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.folders import keep_sealed, read_sealed, replace_file
from sparrowmq.spark.pipelines.tables.begun_table import Settled
from sparrowmq.spark.source.partition_ranges import VERSION, Offsets, from_json, to_json

_PLAN: Final = "lake.json"
_DONE: Final = "lake.done"
_CHECKPOINT: Final = "checkpoint"
_ASIDE: Final = "checkpoint.taken-over"


@dataclass(frozen=True, slots=True)
class Progress:
    """The batch at hand, or the last one.

    Attributes:
        start, end: the next offset of each queue before and after it.
        rows, errors: the last batches of the table and of its table of errors that are known.
    """

    batch: int = -1
    start: Offsets = field(default_factory=Offsets)
    end: Offsets = field(default_factory=Offsets)
    is_done: bool = True
    rows: int = -1
    errors: int = -1

    @property
    def offsets(self) -> Offsets:
        """The next offset of each queue that was ever planned."""
        return copied(self.end)

    @property
    def position(self) -> Offsets:
        """The next offset of each queue that the table lacks."""
        return copied(self.end if self.is_done else self.start)

    def next(self, start: Offsets, end: Offsets) -> Progress:
        """The batch after this one; `start` also has the queues that appeared since."""
        return replace(self, batch=self.batch + 1, start=copied(start), end=end, is_done=False)

    def done(self, rows: int, errors: int) -> Progress:
        """The same batch, behind which the tables have these last batches."""
        return replace(self, is_done=True, rows=rows, errors=errors)


def copied(offsets: Offsets) -> Offsets:
    """Return the same offsets, to be changed."""
    return Offsets(offsets, offsets.incarnations)


def keep_progress(state: Path, progress: Progress) -> None:
    """Write the plan of a batch, or that it is done."""
    if progress.is_done and progress.batch >= 0:
        numbers = f"{progress.batch} {progress.rows} {progress.errors}"
        replace_file(state / _DONE, numbers)
    else:
        start, end = to_json(progress.start), to_json(progress.end)
        plan = {"v": VERSION, "batch": progress.batch, "start": start, "end": end}
        keep_sealed(state / _PLAN, plan)


def kept_progress(state: Path) -> Progress | None:
    """The progress of a table; None if it was never kept by a lake. Raises: ConfigError, the file is damaged."""
    path = state / _PLAN
    if not path.exists():
        return None
    try:
        plan = read_sealed(path)
        progress = Progress(int(plan["batch"]), from_json(plan["start"]), from_json(plan["end"]), False)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path} is damaged; restore it from a backup") from None
    batch, rows, errors = _done(state / _DONE)
    return replace(progress, is_done=progress.batch in (-1, batch), rows=rows, errors=errors)


def brokers_in(state: Path) -> set[str]:
    """The names of the brokers that a table was read from; none where no lake has kept its progress whole."""
    with suppress(ConfigError):
        progress = kept_progress(state)
        return {queue.broker_name for queue in progress.end} if progress is not None else set()
    return set()


def _done(path: Path) -> tuple[int, int, int]:
    """The three numbers of the file, -1 for one that it lacks; earlier releases wrote only the first."""
    words = path.read_bytes().split() if path.exists() else []
    batch, rows, errors, *_ = [*(int(word) for word in words if word.lstrip(b"-").isdigit()), -1, -1, -1]
    return batch, rows, errors


def taken_over(state: Path, settled: Settled) -> Progress | None:
    """The progress of a table that the pipeline `table` began; None without its checkpoint.

    Raises: ConfigError, the checkpoint cannot be read.
    """
    checkpoint = state / _CHECKPOINT
    batches = sorted(int(path.name) for path in checkpoint.glob("offsets/[0-9]*"))
    if not batches:
        return None
    last = batches[-1]
    end = _offsets(checkpoint / "offsets" / str(last))
    if last - 1 in batches:
        start = _offsets(checkpoint / "offsets" / str(last - 1))
    else:
        start = from_json(settled.resumed or {"v": VERSION, "topics": settled.begin or {}})
    is_done = (checkpoint / "commits" / str(last)).exists()
    places = {queue: start.get(queue, 0) for queue in end}
    return Progress(settled.first + last, Offsets(places, start.incarnations), end, is_done)


def put_aside(state: Path) -> None:
    """Take Spark's checkpoint out of the way, after its progress was kept."""
    if (state / _CHECKPOINT).exists():
        (state / _CHECKPOINT).rename(state / _ASIDE)


def _offsets(path: Path) -> Offsets:
    """The offsets of one batch in Spark's checkpoint: a version, Spark's own line, and a line for each source."""
    lines = path.read_text().splitlines()
    try:
        found: Any = json.loads(lines[2])
        return from_json(found)
    except (ValueError, IndexError, AttributeError):
        raise ConfigError(
            f"{path} is no progress of the pipeline `table`; let the pipeline end its batch by --once first"
        ) from None
