"""What programs give us, looked at where they give it: a mistake is told there, and what to write instead.

Each function raises ConfigError for what is wrong.
"""

from __future__ import annotations

from math import inf
from types import UnionType
from typing import TypeVar

from sparrowmq.errors import ConfigError

T = TypeVar("T")


def check_callable(name: str, function: T, instead: str) -> T:
    """A function; `instead` says which one is wanted."""
    if not callable(function):
        raise ConfigError(f"{name}={function!r} cannot be called; give {instead}")
    return function


def check_count(name: str, count: object) -> int:
    """A whole number from 1 on."""
    if isinstance(count, int) and not isinstance(count, bool) and count >= 1:
        return count
    raise ConfigError(f"{name}={count!r}: {name} must be a whole number, at least 1")


def check_seconds(name: str, seconds: object) -> float:
    """A time above 0."""
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < inf:
        return seconds
    raise ConfigError(f"{name}={seconds!r}: give seconds above 0")


def check_kind(name: str, value: object, kind: type | UnionType, instead: str) -> None:
    """A value of some class; `instead` says which one is wanted."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name}={value!r}: give {instead}")


def check_text(name: str, text: object, *, or_none: bool = False) -> None:
    """A text, or perhaps None."""
    if not isinstance(text, str) and not (or_none and text is None):
        raise ConfigError(f"{name}={text!r}: give a text")
