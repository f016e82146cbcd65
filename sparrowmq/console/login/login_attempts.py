"""The limits of log-in attempts.

    a pause     after five wrong passwords for one account from one place: a minute, and a minute for each more
    a line      after twenty wrong passwords for one account, or from one address: a second from attempt to attempt

A place is a browser that the account has used before (known_browsers.py), or else an address. So others behind an
address are not paused, an attacker at the address of a user does not pause the user's browser, and known browsers never
stand in line. The line limits an attacker with many addresses or many names. The line is short: an attempt that
would wait for more than ten seconds is refused.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from sparrowmq.loop.clock import Clock

FREE: Final = 5
PAUSE_S: Final = 60.0
FREE_OF_ALL: Final = 20  # wrong ones for one account, or from one address, until there is a line
STEP_S: Final = 1.0
LONGEST_LINE_S: Final = 10.0
_FORGET_S: Final = 600.0
_MOST: Final = 10_000  # places, accounts and addresses that are remembered
_LONGEST_NAME: Final = 64
_NETWORK_BITS: Final = 64  # a visitor with IPv6 has a network of addresses


@dataclass(slots=True)
class _Failed:
    """Wrong attempts."""

    count: int = 0
    at_s: float = 0.0  # the time of the last one
    next_s: float = 0.0  # the time of the next place in the line


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to an attempt: it may go on after a while, or is refused for so long."""

    wait_s: float
    is_refused: bool = False


class Attempts:
    """Wrong attempts by place and account, by account, and by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[Hashable, _Failed] = {}  # the oldest first

    def begin(self, address: str, name: str, browser: str = "") -> Turn:
        """Count an attempt as failed until it succeeds: simultaneous attempts all count before the first check.

        Args:
            browser: the id of a browser that this account has used; "" for another one.
        """
        now_s = self._clock.monotonic()
        place, limited = _keys(address, name, browser)
        here = self._found(place, now_s)
        if here.count >= FREE and here.at_s + PAUSE_S > now_s:
            return Turn(here.at_s + PAUSE_S - now_s, is_refused=True)
        lines = [self._found(key, now_s) for key in limited]
        wait_s = max((each.next_s - now_s for each in lines if each.count >= FREE_OF_ALL), default=0.0)
        if wait_s > LONGEST_LINE_S:
            return Turn(wait_s, is_refused=True)
        for each in (here, *lines):
            each.count, each.at_s = each.count + 1, now_s
        for each in lines:
            each.next_s = max(now_s, each.next_s) + STEP_S if each.count >= FREE_OF_ALL else 0.0
        return Turn(max(0.0, wait_s))

    def succeeded(self, address: str, name: str, browser: str = "") -> None:
        """Forget the failed attempts of a place; its last attempt counts nowhere."""
        place, limited = _keys(address, name, browser)
        self._failed.pop(place, None)
        for key in limited:
            if (each := self._failed.get(key)) is not None:
                each.count = max(0, each.count - 1)

    def _found(self, key: Hashable, now_s: float) -> _Failed:
        """The attempts of a key, which is the newest now; the oldest key makes room."""
        found = self._failed.pop(key, None)
        if found is None or now_s - found.at_s > _FORGET_S:
            found = _Failed(at_s=now_s)
        while len(self._failed) >= _MOST:
            del self._failed[next(iter(self._failed))]
        self._failed[key] = found
        return found


def _keys(address: str, name: str, browser: str) -> tuple[Hashable, list[Hashable]]:
    """The key of a place and an account; and those of the account and the address, unless the browser is known."""
    name, network = name[:_LONGEST_NAME], network_of(address)
    if browser:
        return ("browser", browser, name), []
    return ("address", network, name), [("account", name), ("address", network)]


def network_of(address: str) -> str:
    """The address itself, or the network of an IPv6 address."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _NETWORK_BITS), strict=False))
