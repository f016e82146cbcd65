"""Numbers and paths on a command line. Digits are 0 to 9: `int` and `float` also take those of other scripts."""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from typing import Any, Final

import click

_FOREIGN_DIGITS_TEXT: Final = "{!r} is not a number; use the digits 0 to 9"
_ADDRESS_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Whole(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if not _has_plain_digits(value):
            self.fail(_FOREIGN_DIGITS_TEXT.format(value), param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range. It refuses nan and inf: all comparisons with nan are false, so a range lets it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not _has_plain_digits(value):
            self.fail(_FOREIGN_DIGITS_TEXT.format(value), param, ctx)
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is not a finite number", param, ctx)
        return number


def _has_plain_digits(value: object) -> bool:
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


class WrittenPath(click.Path):
    """A path. It refuses a blank one, as of a variable that is not set: to Python that is the current folder.

    It also refuses an address, of which Python makes a folder with the name of the scheme.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("the path is blank; write it, as /data/orders, or . for the current folder", param, ctx)
        if _ADDRESS_PATTERN.match(str(value)):
            self.fail(f"{value} is an address; give the path of a file or folder on this machine", param, ctx)
        return super().convert(value, param, ctx)


ABOVE_ZERO = Number(min=0, min_open=True)
PATH = WrittenPath()
