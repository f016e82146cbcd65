"""Paths on a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class WrittenPath(click.Path):
    """A path. It refuses a blank one, as of a variable that is not set: to Python that is the current folder."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises: BadParameter."""
        if not str(value).strip():
            self.fail("the path is blank; write it, as /data/orders, or . for the current folder", param, ctx)
        return super().convert(value, param, ctx)


PATH = WrittenPath()
