"""Kinds of values of settings: how a text becomes a value, and what is allowed.

Sizes and durations are accepted as Java's files have them, a bare number in the key's own unit, and with a unit of
their own: 128m, 1 GiB, 500ms, 3d.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A value's text form."""

    parse: Callable[[str], Any]  # the value of a text; raises ValueError or ConfigError for what is not allowed
    allowed: str  # what is allowed, in words that follow "must be"
    render: Callable[[Any], str] = str  # the text of a value, as Java's files have it


class Unreadable(ValueError):
    """A value whose error says itself which part of it is wrong, and what is allowed there."""


class OutOfRange(ValueError):
    """A number outside its range, or between two allowed sizes."""

    def __init__(self, value: int, nearest: int) -> None:
        super().__init__(value)
        self.nearest = nearest  # the allowed number for it; that above it, for one between two sizes


_BOOLEAN_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
BOOLEAN = Kind(
    lambda text: _look_up(_BOOLEAN_WORDS, text.lower()), "true or false", lambda value: "true" if value else "false"
)
TEXT = Kind(lambda text: text, "any text")
SECRET = Kind(lambda text: text, "any text", lambda _: "(hidden)")
PATH = Kind(lambda text: Path(_with_home(text)).expanduser(), "a path")


_WHOLE_PATTERN = re.compile(r"\s*[+-]?[0-9]+\s*")


def whole_number(text: str) -> int:
    """Parse a whole number. Raises: ValueError, for a digit other than 0 to 9 too, or `_`, which `int` allows."""
    if _WHOLE_PATTERN.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def integer(low: int, high: int) -> Kind:
    return Kind(lambda text: _bounded(whole_number(text), low, high), _range("a whole number", low, high))


def size(low: int, high: int, *, multiple_of: int = 1) -> Kind:
    """A number of bytes in [low, high]: 1048576, 1024k, 1m and 1MiB are the same."""
    return Kind(
        lambda text: _bounded(_scaled(text, _SIZES), low, high, multiple_of),
        _range("a size", _with_unit(low), _with_unit(high), multiple_of),
    )


def duration(unit: str, low: int, high: int) -> Kind:
    """A whole number of `unit` (ms, s, m, h, d) in [low, high], or a text with its own unit: 500ms, 5s, 2h."""
    in_unit = _TIMES[unit]

    def parse(text: str) -> int:
        if _WHOLE_PATTERN.fullmatch(text):
            return _bounded(int(text), low, high)
        count, remainder = divmod(_scaled(text, _TIMES), in_unit)
        if remainder:
            raise ValueError(text)
        return _bounded(count, low, high)

    name, example = _UNITS[unit]
    if not low <= _scaled(example, _TIMES) // in_unit <= high:
        example = _time(low * in_unit)
    return Kind(parse, f"{_range(f'a number of {name}', low, high)}, or a time such as {example}")


def choice(kind: type[Enum]) -> Kind:
    """The value of a member, a text, in either case."""
    members = {str(member.value).upper(): member for member in kind}
    allowed = " or ".join(str(member.value) for member in kind)
    return Kind(lambda text: _look_up(members, text.upper()), allowed, lambda member: str(member.value))


_ADDRESS_PATTERN = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:;\[\]/]+):([0-9]{1,5})")


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(";") if part.strip())
    for address in addresses:
        match = _ADDRESS_PATTERN.fullmatch(address)
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError(address)
    return addresses


ADDRESSES = Kind(_addresses, "host:port, or several with ; between: 10.0.0.1:9876;10.0.0.2:9876", ";".join)

_SIZES = {"": 1, "b": 1} | {
    unit + tail: 1024**power for power, unit in enumerate("kmgt", 1) for tail in ("", "b", "ib")
}
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = {
    "ms": ("milliseconds", "5s"),
    "s": ("seconds", "5m"),
    "m": ("minutes", "2h"),
    "h": ("hours", "3d"),
    "d": ("days", "48h"),
}


def _time(ms: int) -> str:
    """A time in the largest unit that shows it as a whole number."""
    unit = max((name for name in _TIMES if not ms % _TIMES[name]), key=lambda name: _TIMES[name])
    return f"{ms // _TIMES[unit]}{unit}"


def _look_up(table: Mapping[str, Any], key: str) -> Any:
    if key not in table:
        raise ValueError(key)
    return table[key]


def _scaled(text: str, units: Mapping[str, int]) -> int:
    match = re.fullmatch(r"(-?[0-9]+)\s*([a-z]*)", text.lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * int(_look_up(units, match[2]))


def _bounded(value: int, low: int, high: int, multiple_of: int = 1) -> int:
    nearest = min(max(value + -value % multiple_of, low), high - high % multiple_of)
    if nearest != value:
        raise OutOfRange(value, nearest)
    return value


def _with_unit(size_bytes: int) -> str:
    """The shortest exact text of a size: 64k, 16m."""
    for unit in "gmk":
        if size_bytes % _SIZES[unit] == 0:
            return f"{size_bytes // _SIZES[unit]}{unit}"
    return str(size_bytes)


def _range(noun: str, low: int | str, high: int | str, multiple_of: int = 1) -> str:
    return f"{noun} from {low} to {high}" + (f", a multiple of {multiple_of}" if multiple_of > 1 else "")


def _with_home(path: str) -> str:
    """Java's files write the home folder as ${user.home}."""
    if not path:
        raise ValueError(path)
    return path.replace("${user.home}", "~")
