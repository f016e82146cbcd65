"""Times on a command line: 2026-11-20T08:00, or so long ago."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import click

AGES: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(_context: object, _option: object, text: str | None) -> datetime | None:
    """Parse a time: 2026-11-20T08:00, or an age such as 90s, 15m, 2h, 3d. Raises: BadParameter."""
    if text is None:
        return None
    try:
        if text[-1:] in AGES and text.isascii() and text[:-1].replace(".", "", 1).isdigit():
            return datetime.now().astimezone() - timedelta(**{AGES[text[-1]]: float(text[:-1])})
        return time_of(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is no time; give 2026-11-20T08:00, or 15m for so long ago") from None


def time_of(text: str) -> datetime:
    """Parse a time that exists on this machine. Raises: ValueError, OverflowError."""
    found = datetime.fromisoformat(text)
    found.timestamp()  # the first and the last days of the calendar have none in some zones
    return found


def iso(timestamp_ms: int) -> str:
    """Return a time as `moment` parses it, to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
