"""Times as pages show them and as forms take them, in the zone of this machine."""

from __future__ import annotations

from datetime import datetime


def moment_of(text: str | None, name: str) -> datetime | None:
    """A time of a form; None where nothing is in it. Raises: ValueError."""
    if not text or not text.strip():
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: {text!r} is not a time; write it as 2026-11-20 08:00") from None


def time_of(timestamp_ms: int) -> str:
    """A message's time, to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
