"""The progress of long work: one line of the terminal that is redrawn, and deleted at the end.

    reading the log   ███████▌······················   25 %   0:41 left
    1,200 sent

`Steps` are for a long operation: a line on stderr for each step, and the drawn line for what is waited for.

It is for people who wait: nothing is drawn where stderr is a pipe or a file, nor with `--output json|csv`. The line is
overwritten with spaces instead of escape codes, so it works in any terminal.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, Self

import click

from sparrowmq.cli.terminal.output import is_for_people
from sparrowmq.cli.terminal.plain_terminal import shown

WIDTH: Final = 30
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_EACH_S: Final = 0.1  # as often as an eye can follow
_GUESS_AFTER_S: Final = 2.0  # before that a guess of what is left jumps about


class Progress:
    """The line that is drawn inside a `with`.

    Calls are cheap enough for each record of a log: most of them only look at the clock.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._terminal = sys.stderr
        self.is_shown = is_for_people() and self._terminal.isatty()
        self._now_s = now_s
        self._drawn_s = -_EACH_S
        self._length = 0
        # Of the step that is under way: its name, when and where it began, where it is.
        self._step = ""
        self._begun_s = 0.0
        self._first = 0
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.clear()

    def __call__(self, step: str, done: int, total: int) -> None:
        """Draw how much of a step is done; another name, or less than before, begins a new step."""
        if not self.is_shown:
            return
        now_s = self._now_s()
        if step != self._step or done < self._done:
            is_new = step != self._step
            self._step, self._begun_s, self._first = step, now_s, done
            self._drawn_s = -_EACH_S if is_new else self._drawn_s
        self._done = done
        if now_s - self._drawn_s >= _EACH_S:
            share = min(1.0, max(0.0, done / total)) if total > 0 else 1.0
            self._draw(f"{step}   {bar(share)}  {share:4.0%}{self._left(now_s, total)}", now_s)

    def tell(self, text: str) -> None:
        """Draw a text, for work of unknown size."""
        if self.is_shown and (now_s := self._now_s()) - self._drawn_s >= _EACH_S:
            self._draw(text, now_s)

    def clear(self) -> None:
        """Delete the line, so that another text can stay; the next call draws it again."""
        if self._length:
            self._terminal.write(f"{' ' * self._length}\r")
            self._terminal.flush()
            self._length = 0
        self._drawn_s = -_EACH_S

    def _left(self, now_s: float, total: int) -> str:
        spent_s, came = now_s - self._begun_s, self._done - self._first
        if spent_s < _GUESS_AFTER_S or came <= 0:
            return ""
        minutes, seconds = divmod(round(spent_s * max(0, total - self._done) / came), 60)
        return f"   {minutes}:{seconds:02d} left"

    def _draw(self, text: str, now_s: float) -> None:
        """Leave the cursor at the beginning, so that other output overwrites the line."""
        room = max(1, shutil.get_terminal_size().columns - 1)  # a line that is full would wrap
        text = text[:room]
        self._terminal.write(f"{text.ljust(min(self._length, room))}\r")
        self._terminal.flush()
        self._length, self._drawn_s = len(text), now_s


class Steps(Progress):
    """The lines of one operation, inside a `with`."""

    def begin(self, text: str) -> None:
        self.clear()
        click.echo(shown(text), err=True)

    def tell(self, text: str) -> None:
        """Show what is waited for; a text that begins with "[" is a step."""
        if text.startswith("["):
            self.begin(text)
        else:
            super().tell(text)


def bar(share: float) -> str:
    """Return a bar of which `share` of 1 is filled, to an eighth of a cell."""
    cells, eighths = divmod(int(share * WIDTH * 8), 8)
    filled = "█" * cells + (_EIGHTHS[eighths] if eighths else "")
    return filled.ljust(WIDTH, "·")
