"""A file of lines that is written in the background, and begins again when it is large.

    add ── in memory ── `write`, in a thread ── audit.log ── at MAX_FILE_BYTES: audit.log.1 ... .4

Nothing ever waits for the file. If the disk is full or slow, lines are dropped and counted.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Final

from sparrowmq.core.safe_text import write_problem

log = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 64 << 20
OLDER_FILES: Final = 4
_MAX_WAITING_LINES: Final = 100_000


def denials_file(path: Path) -> Path:
    """Return the file of denials that belongs to an audit log."""
    return path.with_stem(f"{path.stem}-denied")


class RotatedFile:
    """Lines for one file. `lost_lines` counts those that could not be written; `problem` says why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost_lines = 0
        self.problem = ""
        self._waiting_lines: deque[str] = deque()

    @property
    def is_due(self) -> bool:
        """Whether lines wait for `write`, or the file could not be written."""
        return bool(self._waiting_lines or self.problem)

    def add(self, line: str) -> None:
        if len(self._waiting_lines) >= _MAX_WAITING_LINES:
            self.lost_lines += 1
        else:
            self._waiting_lines.append(line + "\n")

    def write(self) -> None:
        """Append the waiting lines. Blocks: call it in a thread. Never raises."""
        lines = [self._waiting_lines.popleft() for _ in range(len(self._waiting_lines))]
        try:
            self._rotate()
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))
        except OSError as error:
            self.lost_lines += len(lines)
            if not self.problem:
                log.error("%s cannot be written, its lines are lost: %s", self.path, error)
            reason = write_problem(error)
            self.problem = f"the audit log {self.path} cannot be written ({reason}): {self.lost_lines} lines are lost"
        else:
            self.problem = ""

    def _rotate(self) -> None:
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size >= MAX_FILE_BYTES:
            names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER_FILES + 1))]
            for younger, older in reversed(list(pairwise(names))):
                if younger.exists():
                    younger.replace(older)
