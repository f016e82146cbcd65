"""Log lines that peers can cause at will: a few a minute of each kind, and a count of the others.

Otherwise a program that opens connections and sends nonsense fills the disk, and hides the lines that matter.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.loop.clock import Clock

LINES: Final = 20  # the most lines of one kind in one period
PERIOD_S: Final = 60.0
_LEFT_OUT_TEXT: Final = " (%d more such lines were left out before)"


class LogLimit:
    """Passes on log lines, of each kind up to `lines` in PERIOD_S. The text before its arguments is the kind."""

    def __init__(self, clock: Clock, lines: int = LINES) -> None:
        self._clock = clock
        self._max_lines = lines
        # By text: the end of its period, the number of lines in it, and the number left out since the last one.
        self._kinds: dict[str, tuple[float, int, int]] = {}

    def log(self, log: logging.Logger, level: int, text: str, *args: object) -> None:
        """Log a line, unless there were too many of its kind."""
        left_out = self._count_left_out(text)
        if left_out is not None:
            log.log(level, text + (_LEFT_OUT_TEXT if left_out else ""), *args, *([left_out] if left_out else []))

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line of another package is logged: `logger.addFilter(limit)`."""
        left_out = self._count_left_out(str(record.msg))
        if left_out:
            record.msg, record.args = record.getMessage() + _LEFT_OUT_TEXT % left_out, ()
        return left_out is not None

    def _count_left_out(self, text: str) -> int | None:
        """Count a line of a kind. Return the number left out since the last one; None if this one is left out, too."""
        now = self._clock.monotonic()
        end, lines, left_out = self._kinds.get(text, (0.0, 0, 0))
        if now >= end:
            end, lines = now + PERIOD_S, 0
        if lines >= self._max_lines:
            self._kinds[text] = (end, lines, left_out + 1)
            return None
        self._kinds[text] = (end, lines + 1, 0)
        return left_out
