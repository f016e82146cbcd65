"""Numbers with a fraction on a command line."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range. It refuses nan and inf: all comparisons with nan are false, so a range lets it pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number. Raises: BadParameter."""
        number: float = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{number} is no number to count with", param, ctx)
        return number


ABOVE_ZERO = Number(min=0, min_open=True)
