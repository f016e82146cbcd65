"""The patterns of IP addresses in plain_acl.yml: the white lists, whose clients need no signature.

Source: RemoteAddressStrategyFactory, Java 4.9.7.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from typing import Final

_EVERY_ADDRESS: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_COMMA_OUTSIDE_BRACES: Final = re.compile(r",(?![^{]*\})")
_V4_PARTS: Final = 4
_V4_HIGHEST: Final = 255
_V6_PARTS: Final = 8
_V6_HIGHEST: Final = 0xFFFF
MAPPED_PREFIX: Final = bytes(10) + b"\xff\xff"  # how a socket of both families shows an IPv4 peer
PORT_BYTES: Final = 4  # behind the address in a peer's host
_Range = tuple[int, int]  # the lowest and the highest value
_EVERY_RANGE: Final = (((0, _V4_HIGHEST),) * _V4_PARTS, ((0, _V6_HIGHEST),) * _V6_PARTS)


class Addresses:
    """A set of IP addresses, by patterns: the white lists of plain_acl.yml, whose clients need no signature.

        192.168.1.7                  this one               fe80::1
        192.168.1.*  192.168.*.*     a wildcard             fe80::1:*
        192.168.1-10.*               a range                fe80::1-20:*    (hexadecimal, as the address)
        192.168.1.{3,5}              a set at the end       fe80::{1,2}
        10.0.0.1,10.0.0.2            a list of all these
        *   *.*.*.*   *:*:*:*:*:*:*:*    every address, of both families

    Unlike Java, which ignores the parts after the first wildcard or range, every part of a pattern counts. Raises:
    ValueError, a pattern has none of these forms. The error names it.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._alternatives = [ranges for pattern in patterns if pattern.strip() for ranges in _alternatives(pattern)]

    def __bool__(self) -> bool:
        return bool(self._alternatives)

    def has(self, packed: bytes) -> bool:
        """Whether it has an address of 4 or 16 bytes. An IPv4 address inside an IPv6 one is the IPv4 address."""
        address_parts = _address_parts(packed)
        return any(
            len(parts) == len(address_parts)
            and all(low <= value <= high for (low, high), value in zip(parts, address_parts, strict=True))
            for parts in self._alternatives
        )


def _address_parts(packed: bytes) -> list[int]:
    if len(packed) == 4:
        return list(packed)
    if packed.startswith(MAPPED_PREFIX):
        return list(packed[len(MAPPED_PREFIX) :])
    return [int.from_bytes(packed[at : at + 2], "big") for at in range(0, len(packed), 2)]


def _alternatives(pattern: str) -> Iterator[tuple[_Range, ...]]:
    if pattern.strip() in _EVERY_ADDRESS:
        yield from _EVERY_RANGE
        return
    for alternative in _COMMA_OUTSIDE_BRACES.split(pattern):
        for address in _expand_set(alternative.strip()):
            try:
                yield _ranges(address)
            except ValueError:
                raise ValueError(
                    f"{address!r} is no address; write one as 192.168.1.7 or fe80::1, or a pattern as 192.168.1.*, "
                    "192.168.1-10.*, 192.168.1.{3,5}, fe80::1:*"
                ) from None


def _expand_set(address: str) -> list[str]:
    if not address.endswith("}"):
        return [address]
    head, _, choices = address[:-1].rpartition("{")
    return [head + choice.strip() for choice in choices.split(",")]


def _ranges(address: str) -> tuple[_Range, ...]:
    if ":" not in address:
        parts = address.split(".")
        if len(parts) != _V4_PARTS:
            raise ValueError(address)
        return tuple(_range(part, 10, _V4_HIGHEST) for part in parts)
    if not set(address) & set("*-"):
        address = ipaddress.IPv6Address(address).exploded
    return tuple(_range(part, 16, _V6_HIGHEST) for part in _expand_colons(address))


def _expand_colons(address: str) -> list[str]:
    head, gap, tail = address.partition("::")
    before, after = [part.split(":") if part else [] for part in (head, tail)]
    missing = _V6_PARTS - len(before) - len(after)
    if (missing < 1) if gap else missing:
        raise ValueError(address)
    return [*before, *["0"] * missing, *after]


def _range(text: str, base: int, highest: int) -> _Range:
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
