"""The steps of a long operation: a line for each step that begins, and a drawn line for what is waited for.

Programs that read stdout, and logs, get only the lines; these go to stderr.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import click

from sparrowmq.cli.terminal.output import shown
from sparrowmq.cli.terminal.progress_line import Progress


class Steps:
    """The lines of one operation, inside a `with`."""

    def __init__(self) -> None:
        self._progress = Progress()

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def begin(self, text: str) -> None:
        self._progress.clear()
        click.echo(shown(text), err=True)

    def tell(self, text: str) -> None:
        """Show what is waited for; a text that begins with "[" is a step."""
        if text.startswith("["):
            self.begin(text)
        else:
            self._progress.tell(text)
