"""Paths on a command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class WrittenPath(click.Path):
    """A path. It refuses a blank one, as of a variable that is not set: to Python that is the current folder.

    It also refuses an address, of which Python makes a folder with the name of the scheme.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises: BadParameter."""
        if not str(value).strip():
            self.fail("the path is blank; write it, as /data/orders, or . for the current folder", param, ctx)
        if _ADDRESS.match(str(value)):
            self.fail(f"{value} is an address, and this must be the path of a file or folder here", param, ctx)
        return super().convert(value, param, ctx)


PATH = WrittenPath()
