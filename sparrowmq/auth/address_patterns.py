"""Patterns of IP addresses: the white lists of plain_acl.yml, whose clients need no signature.

    192.168.1.7                  this one               fe80::1
    192.168.1.*  192.168.*.*     a wildcard             fe80::1:*
    192.168.1-10.*               a range                fe80::1-20:*    (hexadecimal, as the address)
    192.168.1.{3,5}              a set at the end       fe80::{1,2}
    10.0.0.1,10.0.0.2            a list of all these
    *   *.*.*.*   *:*:*:*:*:*:*:*    every address, of both families

Unlike Java: every part of a pattern counts. Java ignores the parts after the first wildcard or range (192.168.*.5 is
192.168.*.*), and a pattern that begins with one fails at each request.
Source: RemoteAddressStrategyFactory and AclUtils, Java 4.9.7.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final

_EVERYBODY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_OUTSIDE_BRACES: Final = re.compile(r",(?![^{]*\})")
_V4_PARTS: Final = 4
_V4_HIGHEST: Final = 255
_V6_PARTS: Final = 8
_V6_HIGHEST: Final = 0xFFFF
_MAPPED: Final = bytes(10) + b"\xff\xff"  # how a socket of both families shows an IPv4 peer

_Part = tuple[int, int]  # the lowest and the highest value


class Addresses:
    """A set of IP addresses, by patterns.

    Raises:
        ValueError: a pattern has none of the forms above. The error names it.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._is_everybody = False
        self._alternatives: list[tuple[_Part, ...]] = []
        for pattern in patterns:
            if pattern.strip() in _EVERYBODY:
                self._is_everybody = True
            elif pattern.strip():
                self._alternatives += _alternatives(pattern)

    def __bool__(self) -> bool:
        return self._is_everybody or bool(self._alternatives)

    def has(self, packed: bytes) -> bool:
        """Whether it has an address of 4 or 16 bytes. An IPv4 address inside an IPv6 one is the IPv4 address."""
        if self._is_everybody:
            return True
        values = _values(packed)
        return any(
            len(parts) == len(values)
            and all(low <= value <= high for (low, high), value in zip(parts, values, strict=True))
            for parts in self._alternatives
        )


def _values(packed: bytes) -> list[int]:
    if len(packed) == 4:
        return list(packed)
    if packed.startswith(_MAPPED):
        return list(packed[len(_MAPPED) :])
    return [int.from_bytes(packed[at : at + 2], "big") for at in range(0, len(packed), 2)]


def _alternatives(pattern: str) -> Iterator[tuple[_Part, ...]]:
    for each in _OUTSIDE_BRACES.split(pattern):
        for address in _unfolded(each.strip()):
            try:
                yield _parts(address)
            except ValueError:
                raise ValueError(
                    f"{address!r} is no address; write one as 192.168.1.7 or fe80::1, or a pattern as 192.168.1.*, "
                    "192.168.1-10.*, 192.168.1.{3,5}, fe80::1:*"
                ) from None


def _unfolded(address: str) -> list[str]:
    """The addresses of a pattern with a set at the end."""
    if not address.endswith("}"):
        return [address]
    head, _, choices = address[:-1].rpartition("{")
    return [head + choice.strip() for choice in choices.split(",")]


def _parts(address: str) -> tuple[_Part, ...]:
    if ":" not in address:
        parts = address.split(".")
        if len(parts) != _V4_PARTS:
            raise ValueError(address)
        return tuple(_part(part, 10, _V4_HIGHEST) for part in parts)
    if not set(address) & set("*-"):
        address = ipaddress.IPv6Address(address).exploded
    return tuple(_part(part, 16, _V6_HIGHEST) for part in _filled(address))


def _filled(address: str) -> list[str]:
    """The eight parts of an IPv6 pattern, with those that `::` leaves out."""
    head, gap, tail = address.partition("::")
    before, after = [part.split(":") if part else [] for part in (head, tail)]
    missing = _V6_PARTS - len(before) - len(after)
    if (missing < 1) if gap else missing:
        raise ValueError(address)
    return [*before, *["0"] * missing, *after]


def _part(text: str, base: int, highest: int) -> _Part:
    if text.strip() == "*":
        return 0, highest
    low, dash, high = text.partition("-")
    first = _number(low, base)
    last = _number(high, base) if dash else first
    if not first <= last <= highest:
        raise ValueError(text)
    return first, last


def _number(text: str, base: int) -> int:
    if not text.strip().isalnum() or not text.isascii():
        raise ValueError(text)
    return int(text, base)
