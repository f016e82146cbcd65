"""Files that batches of a table with a key have replaced: readers that began before get some time, then they go.

    STATE/replaced.json      each file, relative to the table, and when it was replaced

The notes of a table that was copied, or is reached by another path, mean its own files.
A run that dies between a commit and the note leaves files that no note has. The next merge of the table finds these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake
from sparrowmq.spark.pipelines.lake.unused_files import UnusedFiles


@dataclass
class ReplacedFiles:
    """The replaced files of one table.

    Attributes:
        root: of the table. state: its folder. stay_s: how long files stay.
    """

    root: Path | Address
    state: Path
    stay_s: float
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._notes = UnusedFiles(self.state / "replaced.json", self.clock, self.monotonic)

    @property
    def may_go(self) -> bool:
        """Whether a file has stayed for long enough."""
        return self._notes.has_older(self.stay_s)

    def note(self, paths: Iterable[Path]) -> None:
        """Note files that the table does not have any more. One that was restored meanwhile stays as long again."""
        if files := [self._name(path) for path in paths]:
            self._notes.forget(files)
            self._notes.note(files)
            self._notes.keep()

    def remove(self, lake: Lake) -> None:
        """Remove those that have stayed for long enough. One that cannot be removed is tried again next time.

        A restored table has files again that were noted: they stay, and are noted no more.
        """
        if self.may_go:
            now_s = max(self._notes.now_s(), self.clock())  # a lake notes the wall clock's time of a snapshot
            needed = [*lake.retire(now_s - self.stay_s), *lake.paths()]
            with suppress(OSError):
                self._notes.remove(self._delete, self.stay_s, {self._name(path) for path in needed})

    def _name(self, path: Path) -> str:
        """The name of a file in the table; those behind an address have no other."""
        if isinstance(self.root, Path) and path.is_relative_to(self.root):
            path = path.relative_to(self.root)
        return str(path)

    def _delete(self, name: str) -> None:
        if isinstance(self.root, Address):
            self.root.storage.delete(name)
        elif not Path(name).is_absolute():  # that would be a file of another table
            (self.root / name).unlink()
