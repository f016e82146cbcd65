"""Files that a table does not need any more; they stay for a while, as readers may have begun before.

    {"file:///lake/orders/data/_day=…/3f….parquet": 1769904000.0}      when that was noted, in seconds since 1970

The notes are kept in a file over restarts. A note of a clock that was ahead counts as one of now. Times are those of
the wall clock at the start, plus what has passed since. So a wall clock that jumps forward during a run takes no time
from readers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from sparrowmq.core import snapshot


class UnusedFiles:
    """The notes of one table, in the file `path`."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._ahead_s = clock() - monotonic()
        self._since: dict[str, float] = snapshot.load(path, dict[str, float]) or {}

    def now_s(self) -> float:
        """Return the time that notes are compared with, in seconds since 1970."""
        return self._monotonic() + self._ahead_s

    def note(self, files: Iterable[str]) -> None:
        """Note files, in memory; `remove` and `keep` write them down."""
        for file in files:
            self._since.setdefault(file, self.now_s())

    def forget(self, files: Iterable[str]) -> None:
        """Drop the notes of files, in memory."""
        for file in files:
            self._since.pop(file, None)

    def keep(self) -> None:
        """Write the notes down."""
        snapshot.save(self._path, self._since, encode=msgspec.json.encode)

    def has_older(self, stay_s: float) -> bool:
        """Whether a file was noted so long ago that it may go."""
        self._set_back()
        return min(self._since.values(), default=math.inf) <= self.now_s() - stay_s

    def _set_back(self) -> None:
        now_s = self.now_s()
        if max(self._since.values(), default=now_s) > now_s:
            self._since = {file: min(since_s, now_s) for file, since_s in self._since.items()}

    def remove(
        self,
        delete: Callable[[str], None],
        stay_s: float,
        needed: Collection[str] = (),
        most: int | None = None,
    ) -> None:
        """Remove the files that were noted long ago, and keep the notes of the others.

        Args:
            needed: files that stay, and are noted no more. most: above this count the oldest files go at once.
        Raises:
            OSError: a file cannot be removed; it stays noted.
        """
        self._set_back()
        self._since = {file: since for file, since in self._since.items() if file not in needed}
        before = self.now_s() - stay_s
        by_age = sorted(self._since, key=self._since.__getitem__)
        at_once = 0 if most is None else len(by_age) - most
        try:
            for number, file in enumerate(by_age):
                if self._since[file] > before and number >= at_once:
                    break
                with suppress(FileNotFoundError):  # a run that died before it kept its notes has removed it
                    delete(file)
                del self._since[file]
        finally:
            self.keep()
