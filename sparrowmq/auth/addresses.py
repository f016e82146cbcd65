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
MAPPED_PREFIX: Final = bytes(10) + b"\xff\xff"  # how a socket of both families shows an IPv4 peer
PORT_BYTES: Final = 4  # behind the address in a peer's host
_Range = tuple[int, int]  # the lowest and the highest value
# The separator, the number of parts, their base and the highest one.
_V4: Final = (".", 4, 10, 255)
_V6: Final = (":", 8, 16, 0xFFFF)
_EVERY_RANGE: Final = [((0, highest),) * count for _, count, _, highest in (_V4, _V6)]


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
    address = packed.removeprefix(MAPPED_PREFIX)
    if len(address) == 4:
        return list(address)
    return [int.from_bytes(address[at : at + 2]) for at in range(0, len(address), 2)]


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
    separator, count, base, highest = _V6 if ":" in address else _V4
    if separator == ":" and not set(address) & set("*-"):
        address = ipaddress.IPv6Address(address).exploded
    head, gap, tail = address.partition("::")
    before, after = [part.split(separator) if part else [] for part in (head, tail)]
    missing = count - len(before) - len(after)
    if (missing < 1) if gap else missing:
        raise ValueError(address)
    return tuple(_range(part, base, highest) for part in [*before, *["0"] * missing, *after])


def _range(text: str, base: int, highest: int) -> _Range:
    if text.strip() == "*":
        return 0, highest
    low, dash, high = text.partition("-")
    bounds = [low, high] if dash else [low, low]
    if not all(each.strip().isalnum() and each.isascii() for each in bounds):
        raise ValueError(text)
    first, last = [int(each, base) for each in bounds]
    if not first <= last <= highest:
        raise ValueError(text)
    return first, last
