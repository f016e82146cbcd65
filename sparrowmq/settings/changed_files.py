"""Find out which files of a configuration have to be read again: accounts, users, certificates.

A change counts at the second look that finds the same files. A half-written file could show an administrator without
its limits, and of a certificate and its key only one may have been replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]


def stamp(files: Iterable[Path]) -> Stamp:
    """Return a value that changes when the files, or their permissions, change."""

    def of(path: Path) -> tuple[str, int, int, int, int] | None:
        try:
            found = os.stat(path)
        except OSError:
            return None
        return str(path), found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    return tuple(of(path) for path in files)


class ChangedFiles:
    """The files that were loaded, and their changes since then.

    Args:
        files: returns the paths of the files.
    Attributes:
        loaded: their stamp; None lets the next look want them again, as they could not be used.
    """

    def __init__(self, files: Callable[[], Iterable[Path]]) -> None:
        self._files = files
        self._seen = stamp(files())
        self.loaded: Stamp | None = self._seen

    def look(self) -> bool:
        """Return whether the files are to be loaded again; they count as loaded then."""
        last, self._seen = self._seen, stamp(self._files())
        if self._seen != last or self._seen == self.loaded:
            return False
        self.loaded = self._seen
        return True
