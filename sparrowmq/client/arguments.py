"""What programs give us, looked at where they give it: a mistake is told there, and what to write instead.

Each function raises ConfigError for what is wrong.
"""

from __future__ import annotations

from datetime import datetime
from math import inf
from types import UnionType
from typing import Final, TypeVar

from sparrowmq.errors import ConfigError

T = TypeVar("T")

INT32: Final = (1 << 31) - 1


def check_callable(name: str, function: T, instead: str) -> T:
    """A function; `instead` says which one is wanted."""
    if not callable(function):
        raise ConfigError(f"{name}={function!r} cannot be called; give {instead}")
    return function


def check_count(name: str, count: object, *, at_least: int = 1, at_most: float = inf) -> int:
    """A whole number within bounds."""
    if isinstance(count, int) and not isinstance(count, bool) and at_least <= count <= at_most:
        return count
    bounds = f"at least {at_least}" if at_most == inf else f"from {at_least} to {at_most}"
    raise ConfigError(f"{name}={count!r}: {name} must be a whole number, {bounds}")


def check_seconds(name: str, seconds: object, *, or_zero: bool = False, or_none: bool = False) -> None:
    """A time above 0, or 0 as well, or None for no limit."""
    if or_none and seconds is None:
        return
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < inf
    if not is_time or not (seconds or or_zero):
        bound = "from 0 on" if or_zero else "above 0"
        raise ConfigError(
            f"{name}={seconds!r}: give seconds {bound}{', or None for no limit' if or_none else ''}"
        )


def check_offset(offset: object) -> int:
    """A place in a queue."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise ConfigError(f"offset {offset!r} is no place in a queue; give a whole number, from 0 on")
    if offset < 0:
        raise ConfigError(f"offset {offset} is negative; a queue begins at 0")
    return offset


def check_time(name: str, time: object) -> int:
    """A time, in ms as brokers count it; without a zone it is local."""
    if not isinstance(time, datetime):
        raise ConfigError(f"{name}={time!r}: give a datetime")
    try:
        return round(time.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # Local time of the first or the last days there are.
        raise ConfigError(f"{name}={time} cannot be counted; give a time of this age") from None


def check_kind(name: str, value: object, kind: type | UnionType, instead: str) -> None:
    """A value of some class; `instead` says which one is wanted."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name}={value!r}: give {instead}")


def check_text(name: str, text: object, *, or_none: bool = False) -> None:
    """A text, or perhaps None."""
    if not isinstance(text, str) and not (or_none and text is None):
        raise ConfigError(f"{name}={text!r}: give a text")
