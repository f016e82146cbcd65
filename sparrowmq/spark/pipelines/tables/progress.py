"""The position of a table in its topic: its commits record it, and it is compared with Spark's checkpoint.

    a commit of a table      batch 7, and the offsets before and after it: the record
    state/checkpoint         offsets of each batch: Spark continues after the last one
    checkpoint/reached.json  the last batch of each table that this state knows of

    state gone, or older than the table      continue after the table, with a new checkpoint
    table older than the state               the same: the rows that it lacks are read again
    table gone                               refused

A batch goes to the table and to its table of errors, one after the other. So a record also says whether its batch has
errors that come next, and the last batch of the other table at that time.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq.core import snapshot
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake, errors_path
from sparrowmq.spark.pipelines.running.checkpoint_files import list_batches
from sparrowmq.spark.source.partition_ranges import Offsets, broker_topic, from_json, recreated_topics, to_json

_NO_BATCH: Final = -1
_LAST_BATCHES_FILE: Final = "reached.json"
_BATCH_FILES: Final = f"{'?' * 32}-{'[0-9]' * 9}-*.parquet"  # not those of stored logs, whose writer has a longer name


class Record(msgspec.Struct, frozen=True):
    """The record of a batch in its commit.

    `start` and `end` are its offsets as Spark's checkpoint has them; None for rows of a stored log, and for errors that
    became rows. If it `is_half`, the batch has errors, too, which are committed next. `other` is the last batch of the
    other table at that time, and `settled` the settings of the table, with the columns that the batch was read with.
    `log` has, for rows of a stored log, the parts that the table has of it, and that of this batch (`log_parts.py`).
    """

    batch: int
    start: dict[str, Any] | None
    end: dict[str, Any] | None
    is_half: bool
    other: int
    settled: dict[str, Any]
    log: dict[str, Any] | None = None

    def text(self) -> str:
        return snapshot.with_checksum(msgspec.json.encode(self)).decode()


class LastBatches(msgspec.Struct, frozen=True):
    """The last batches of the table and of its table of errors that a state knows of."""

    rows: int = _NO_BATCH
    errors: int = _NO_BATCH

    @staticmethod
    def load(checkpoint: Path) -> LastBatches:
        return snapshot.load(checkpoint / _LAST_BATCHES_FILE, LastBatches) or LastBatches()

    def save(self, checkpoint: Path) -> None:
        snapshot.save(checkpoint / _LAST_BATCHES_FILE, self)


def parse_record(text: str | None) -> Record | None:
    """A record from a commit; None if it has none, or one that is damaged or of another release."""
    try:
        return msgspec.json.decode(snapshot.without_checksum(text.encode()), type=Record) if text else None
    except ValueError:  # msgspec's errors are ValueErrors, too
        return None


def parse_stream_record(text: str | None) -> Record | None:
    """A record with offsets, from a commit; None if it has none."""
    record = parse_record(text)
    return record if record is not None and record.end is not None else None


def resume_offsets(rows: Record | None, errors: Record | None) -> dict[str, Any] | None:
    """Return the offsets behind which both tables lack messages (one may have some behind); None if nothing says it."""
    if rows is None or errors is None:
        only = rows or errors
        if only is None or (only.other != _NO_BATCH and only is errors):
            return None
        return only.start if only.is_half else only.end
    newer, older = (errors, rows) if errors.batch >= rows.batch else (rows, errors)
    offsets = newer.start if newer.is_half else newer.end
    if offsets is None or older.end is None:
        return None
    is_restored = older.batch < newer.other or is_ahead(from_json(older.end), from_json(offsets))
    return _least_offsets(from_json(offsets), from_json(older.end)) if is_restored else offsets


def _least_offsets(offsets: Offsets, older: Offsets) -> dict[str, Any]:
    """The offsets that both have; queues that one lacks are read from their begin, as are recreated topics."""
    recreated = recreated_topics(older, offsets)
    least = {
        queue: older[queue] if broker_topic(queue) in recreated else min(offset, older[queue])
        for queue, offset in offsets.items()
        if queue in older
    }
    old_incarnations = {part: older.incarnations.get(part, 0) for part in recreated}
    return to_json(Offsets(least, offsets.incarnations | old_incarnations))


class Checkpoint:
    """The folder of a stream's offsets; its batch 0 has the number `first` in the table, and begins at `begin`."""

    def __init__(self, folder: Path, first: int, begin: Mapping[str, Any] | None) -> None:
        self.folder = folder
        self.first = first
        self._begin = dict(begin) if begin is not None else {"v": 1, "topics": {}}

    def end(self, batch: int) -> dict[str, Any] | None:
        """Return the offsets behind a batch of the table; None if the checkpoint does not have it (any more)."""
        try:
            lines = (self.folder / "offsets" / str(batch - self.first)).read_text().splitlines()
            offsets: dict[str, Any] = json.loads(lines[-1])
        except (FileNotFoundError, ValueError, IndexError):  # a damaged one that Spark does not need either
            return None
        return offsets

    def start(self, batch: int) -> dict[str, Any] | None:
        return self._begin if batch == self.first else self.end(batch - 1)

    def last(self) -> int:
        """Return the last batch of the table that Spark has planned; `first` - 1 before the first one."""
        return self.first + max(list_batches(self.folder / "offsets"), default=-1)

    def move_aside(self) -> None:
        """Rename the folder; one that was renamed earlier goes."""
        if self.folder.exists():
            old_folder = self.folder.with_name(f"{self.folder.name}.old")
            shutil.rmtree(old_folder, ignore_errors=True)
            self.folder.rename(old_folder)


def state_difference(
    rows: Record | None, errors: Record | None, reached: LastBatches, checkpoint: Checkpoint
) -> str | None:
    """Return how the tables and the state differ; None if Spark may continue from its checkpoint."""
    newest = max(
        (record for record in (rows, errors) if record is not None), key=lambda record: record.batch, default=None
    )
    if newest is None or newest.end is None:
        return None
    if not (checkpoint.folder / "offsets").is_dir():
        return "its state was lost" if newest.batch >= checkpoint.first else None
    if newest.batch > checkpoint.last():
        return "its state is older than the table"
    older = [
        record
        for record, known_batch in ((rows, reached.rows), (errors, reached.errors))
        if record and record.batch < known_batch
    ]
    if older:
        return "its state is newer than the table"
    planned = checkpoint.end(newest.batch)
    if planned is None and newest.batch >= checkpoint.first:
        planned = checkpoint.end(checkpoint.last())
        is_same = planned is not None and not is_ahead(from_json(newest.end), from_json(planned))
    else:
        is_same = planned is None or from_json(planned) == from_json(newest.end)
    return None if is_same else "its state is of another run"


def check_committed(lake: Lake, writer: str) -> None:
    """Raises: ConfigError, a Parquet folder has files of a batch whose commit is gone: its rows would come twice."""
    last, batch_name = lake.last_batch(), re.compile(rf"{re.escape(writer)}-([0-9]{{9}})-")
    for path in lake.paths():
        if (match := batch_name.match(path.name)) and int(match[1]) > last:
            raise ConfigError(
                f"{path} is of batch {int(match[1])}, and the table has no commit of it now; restore the commit, "
                f"or remove the files {match[0]}* of all days: then the batch is read again"
            )


def check_errors_exist(root: Path | Address) -> None:
    """Raises: ConfigError, the table of errors is gone; an empty folder means that a new one is wanted."""
    errors = errors_path(root)
    if isinstance(errors, Address):  # there are no empty folders on S3
        raise ConfigError(f"{errors} is gone; restore it, or begin a new table at another address")
    if not errors.is_dir():
        raise ConfigError(f"{errors} is gone; restore it, or make an empty folder of this name to begin a new one")
    for path in errors.rglob(_BATCH_FILES):
        raise ConfigError(
            f"{path} is of a batch of which the table has no commit now; restore {errors}, or make an empty folder of "
            "this name to begin a new one"
        )


def is_ahead(offsets: Offsets, others: Offsets) -> bool:
    """Whether a queue is ahead of `others`; topics that were created again since do not count."""
    return any(
        offset > others.get(queue, 0)
        for queue, offset in offsets.items()
        if offsets.incarnations.get(broker_topic(queue)) == others.incarnations.get(broker_topic(queue))
    )


def table_offsets_in(table_offsets: Offsets, start: Offsets, end: Offsets) -> Offsets | None:
    """Return the offsets behind which a table lacks rows of a batch, if the batch begins before them.

    Of `table_offsets`, those of a topic that was made again since say nothing. If a topic was made again within the
    batch, it begins at 0.
    """
    recreated, recreated_within = recreated_topics(table_offsets, end), recreated_topics(start, end)
    valid = Offsets({queue: offset for queue, offset in table_offsets.items() if broker_topic(queue) not in recreated})
    begins = {queue: 0 if broker_topic(queue) in recreated_within else offset for queue, offset in start.items()}
    return valid if any(offset > begins.get(queue, 0) for queue, offset in valid.items()) else None
