"""Files that a table no longer needs. They stay for a while, because readers may have started before.

    {"file:///lake/orders/data/_day=…/3f….parquet": 1769904000.0}      when the file was noted, in seconds since 1970
    STATE/replaced.json      the same for files that batches of a table with a key have replaced, relative to the table

The notes are stored in a file, for the next run. A note from a clock that was ahead counts as one of now. Times are the
wall clock at the start plus the time that has passed since. So a wall clock that jumps forward during a run does not
shorten the time for readers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparrowmq.core import snapshot
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.lake import Lake


class UnusedFiles:
    """The notes of one table, in the file `path`."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._clock_offset_s = clock() - monotonic()
        self._noted_at: dict[str, float] = snapshot.load(path, dict[str, float]) or {}

    def now_s(self) -> float:
        """Return the time that notes are compared with, in seconds since 1970."""
        return self._monotonic() + self._clock_offset_s

    def note(self, files: Iterable[str]) -> None:
        """Note files, in memory; `remove` and `keep` write them down."""
        for file in files:
            self._noted_at.setdefault(file, self.now_s())

    def forget(self, files: Iterable[str]) -> None:
        """Drop the notes of files, in memory."""
        for file in files:
            self._noted_at.pop(file, None)

    def save(self) -> None:
        """Write the notes down."""
        snapshot.save(self._path, self._noted_at, encode=msgspec.json.encode)

    def has_due(self, stay_s: float) -> bool:
        """Whether a file was noted so long ago that it may go."""
        self._limit_to_now()
        return min(self._noted_at.values(), default=math.inf) <= self.now_s() - stay_s

    def _limit_to_now(self) -> None:
        now_s = self.now_s()
        if max(self._noted_at.values(), default=now_s) > now_s:
            self._noted_at = {file: min(since_s, now_s) for file, since_s in self._noted_at.items()}

    def remove(
        self, delete: Callable[[str], None], stay_s: float, needed: Collection[str] = (), max_count: int | None = None
    ) -> None:
        """Remove the files that were noted long ago, and keep the notes of the others.

        Files that are `needed` stay, and are noted no more. Above `max_count`, the oldest files go at once.
        Raises: OSError, a file cannot be removed; it stays noted.
        """
        self._limit_to_now()
        self._noted_at = {file: noted_s for file, noted_s in self._noted_at.items() if file not in needed}
        limit_s = self.now_s() - stay_s
        by_age = sorted(self._noted_at, key=self._noted_at.__getitem__)
        surplus = 0 if max_count is None else len(by_age) - max_count
        try:
            for number, file in enumerate(by_age):
                if self._noted_at[file] > limit_s and number >= surplus:
                    break
                with suppress(FileNotFoundError):  # a run that died before it kept its notes has removed it
                    delete(file)
                del self._noted_at[file]
        finally:
            self.save()


@dataclass
class ReplacedFiles:
    """The replaced files of one table. `root`: of the table. `state`: its folder. `stay_s`: how long files stay."""

    root: Path | Address
    state: Path
    stay_s: float
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._notes = UnusedFiles(self.state / "replaced.json", self.clock, self.monotonic)

    @property
    def has_due(self) -> bool:
        """Whether a file has stayed for long enough."""
        return self._notes.has_due(self.stay_s)

    def note(self, paths: Iterable[Path]) -> None:
        """Note files that the table does not have any more. One that was restored meanwhile stays as long again."""
        if files := [self._name(path) for path in paths]:
            self._notes.forget(files)
            self._notes.note(files)
            self._notes.save()

    def remove(self, lake: Lake) -> None:
        """Remove files that have stayed for long enough; those that a restored table has again are noted no more."""
        if self.has_due:
            now_s = max(self._notes.now_s(), self.clock())  # a lake notes the wall clock's time of a snapshot
            needed = [*lake.retire(now_s - self.stay_s), *lake.paths()]
            with suppress(OSError):
                self._notes.remove(self._delete, self.stay_s, {self._name(path) for path in needed})

    def _name(self, path: Path) -> str:
        if isinstance(self.root, Path) and path.is_relative_to(self.root):
            path = path.relative_to(self.root)
        return str(path)

    def _delete(self, name: str) -> None:
        if isinstance(self.root, Address):
            self.root.storage.delete(name)
        elif not Path(name).is_absolute():  # that would be a file of another table
            (self.root / name).unlink()
