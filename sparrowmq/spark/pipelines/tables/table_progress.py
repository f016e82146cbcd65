"""Keeps the place of a table in its commits, and finds it again when the state was lost, or is another one.

The rows of a batch that a table has already are left out: after a start behind another batch than the last one, its
first batches may overlap those of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.lake import Lake
from sparrowmq.spark.pipelines.running.checkpoint_files import repair
from sparrowmq.spark.pipelines.tables.progress import (
    Checkpoint,
    Reached,
    Record,
    demand_committed,
    demand_errors,
    difference,
    overlap,
    parsed,
    place_behind,
    placed,
)
from sparrowmq.spark.source.partition_ranges import Offsets, from_json

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.address import Address
    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged
    from sparrowmq.spark.pipelines.tables.begun_table import Settled

Stage = Callable[["Offsets | None"], "Staged"]
ROWS, ERRORS = "rows", "errors"


class TableProgress:
    """The place of one table and its table of errors, by the checkpoint of a stream."""

    def __init__(self, root: Path | Address, settled: Settled, tables: dict[str, Lake]) -> None:
        """`tables`: the table, as ROWS, and its table of errors, as ERRORS."""
        self._root = root
        self._settled = settled
        self._tables = tables
        self._checkpoint: Checkpoint | None = None
        self._had: dict[str, Offsets] = {}
        self._reached = Reached()
        self._fields: dict[str, str] | None = None
        self.log: dict[str, Any] | None = None  # as `Record` has it, for the next commits

    def newest(self) -> Record | None:
        """Return the record of the last commit to one of the tables; None if its history does not say it (any more).

        Raises: ConfigError, a table was restored from another time than the other one.
        """
        last = {name: each.last_batch() for name, each in self._tables.items()}
        rows, errors = (parsed(self._tables[name].record()) for name in (ROWS, ERRORS))
        found = [each for each in (errors, rows) if each is not None]  # errors come last in a batch
        newest = max(found, key=lambda record: record.batch, default=None)
        if newest is None or newest.batch < max(last.values()):
            return None
        if newest.log is not None and newest.other != last[ROWS if newest is errors else ERRORS]:
            raise ConfigError(
                f"{self._root} and {self._root}.errors are of different times, so a message could be missing or twice; "
                "restore both from the same time"
            )
        return newest

    def resume(self, folder: Path, say: Callable[[str], None]) -> dict[str, Any] | None:
        """Compare the tables with the checkpoint in `folder`, and prepare for writing.

        Returns: The offsets where a new checkpoint is to begin; None if Spark may go on, or the table is a new one.
        Raises: ConfigError, it is not known which messages the table has.
        """
        settled, last = self._settled, {name: each.last_batch() for name, each in self._tables.items()}
        records = {name: placed(each.record()) for name, each in self._tables.items()}
        rows, errors = records[ROWS], records[ERRORS]
        self._reached = Reached.load(folder)
        self._had = {name: from_json(each.end) for name, each in records.items() if each and each.end}
        self._checkpoint = checkpoint = self._seen(folder)
        damage = self._damage(folder, max(last.values()), say)
        if last[ROWS] < 0 <= self._reached.rows:
            raise ConfigError(
                f"{self._root} is empty, but {folder} is behind its batch {self._reached.rows}; restore the table, or "
                f"move {folder.parent} away to begin again"
            )
        if max(self._reached.errors, rows.other if rows else -1) >= 0 and last[ERRORS] < 0:
            demand_errors(self._root)
        if max(last.values()) >= 0 and rows is None and errors is None and not (folder / "metadata").exists():
            raise ConfigError(
                f"{self._root} has rows, but {folder} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {folder.parent} away to begin again"
            )
        why = damage or difference(rows, errors, self._reached, checkpoint)
        if damage and max(last.values()) < 0:
            checkpoint.put_aside()
            say(f"{damage}; the table has no rows yet, and is begun again")
            why = None
        if why is None:
            return settled.resumed if checkpoint.last() < settled.first else None
        if isinstance(self._root, Path):
            for table in self._tables.values():
                demand_committed(table, settled.writer)
        place = place_behind(rows, errors)
        if place is None:
            raise ConfigError(f"{self._root}: {why}, and not all of it is there; restore the table or its state")
        known = (*last.values(), self._reached.rows, self._reached.errors, checkpoint.last())
        checkpoint.put_aside()
        settled.first, settled.resumed = max(known) + 1, place
        reached = {name: last[name] if each is None else each.batch for name, each in records.items()}
        self._checkpoint, self._reached = self._seen(folder), Reached(reached[ROWS], reached[ERRORS])
        say(f"{self._root}: {why}; goes on behind what the table has, with a new checkpoint")
        return place

    def _damage(self, folder: Path, last: int, say: Callable[[str], None]) -> str | None:
        """Repair the checkpoint; returns the damage in words if the checkpoint has no place any more."""
        first = self._settled.first
        try:
            repair(folder, lambda batch: batch + first > last, say)
        except BadStore as error:
            say(str(error).partition(";")[0])
            return "its state is damaged"
        return None

    def _seen(self, folder: Path) -> Checkpoint:
        settled = self._settled
        begin = settled.resumed or (settled.begin and {"v": 1, "topics": settled.begin})
        return Checkpoint(folder, settled.first, begin)

    def add(self, table: str, batch: int, stage: Stage, *, is_half: bool = False) -> int:
        """Add a batch to a table, unless that has it; returns its rows.

        Args:
            stage: writes the files of a batch, without rows before some offsets.
            is_half: the batch has errors, too, which are added next.
        """
        lake = self._tables[table]
        if batch <= lake.last_batch():
            return 0
        self._demand_kept(table)
        staged = stage(self._overlap(table, batch))
        if staged.files:
            lake.commit(batch, replace(staged, record=self._record(table, batch, is_half=is_half)))
            self._note(table, batch)
        return staged.rows

    def _demand_kept(self, table: str) -> None:
        """Raises: ConfigError, another program took a table back meanwhile, as `RESTORE` of Delta does."""
        record = placed(self._tables[table].record())
        known = self._reached.rows if table == ROWS else self._reached.errors
        if record is not None and record.batch < known:
            raise ConfigError(
                f"another program took {self._root} back from batch {known} to batch {record.batch}; start again: "
                "then what it lacks is read again"
            )

    def columns(self, batch: int) -> dict[str, str] | None:
        """Return the columns for a batch of which one table has messages already; None for other batches.

        They are those that the messages were read with. With wider ones, a message would be in both tables, or in none.
        """
        self._fields = None
        for table, lake in self._tables.items():
            if batch <= lake.last_batch() or self._overlap(table, batch) is not None:
                record = parsed(lake.record())
                self._fields = dict(record.settled["fields"]) if record is not None else None
                break
        return self._fields

    def _overlap(self, table: str, batch: int) -> Offsets | None:
        """Return the offsets behind which a table lacks rows, if a batch begins before them."""
        had = self._had.get(table)
        if had is None or self._checkpoint is None:
            return None
        start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        if start is None or end is None:
            return None
        found = overlap(had, from_json(start), from_json(end))
        if found is None:
            del self._had[table]
        return found

    def _record(self, table: str, batch: int, *, is_half: bool) -> str:
        """The words of a commit about its batch."""
        start = end = None
        if self._checkpoint is not None:
            start, end = self._checkpoint.start(batch), self._checkpoint.end(batch)
        other = self._tables[ROWS if table == ERRORS else ERRORS].last_batch()
        settled = self._settled.said() | ({} if self._fields is None else {"fields": self._fields})
        return Record(batch, start, end, is_half, other, settled, self.log).text()

    def _note(self, table: str, batch: int) -> None:
        """Note a commit, so that a table which is restored to before it is noticed."""
        if self._checkpoint is not None:
            rows, errors = self._reached.rows, self._reached.errors
            self._reached = Reached(batch, errors) if table == ROWS else Reached(rows, batch)
            self._reached.save(self._checkpoint.folder)
