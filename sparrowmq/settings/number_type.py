"""Numbers on a command line. Their digits are 0 to 9: `int` and `float` also take those of other scripts."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import click

_FOREIGN: Final = "{!r} is no number; write it with the digits 0 to 9"


class Whole(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a number. Raises: BadParameter."""
        if not _has_plain_digits(value):
            self.fail(_FOREIGN.format(value), param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range. It refuses nan and inf: all comparisons with nan are false, so a range lets it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number. Raises: BadParameter."""
        if not _has_plain_digits(value):
            self.fail(_FOREIGN.format(value), param, ctx)
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is no number to count with", param, ctx)
        return number


def _has_plain_digits(value: object) -> bool:
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


ABOVE_ZERO = Number(min=0, min_open=True)
