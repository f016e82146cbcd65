"""The limit of log-in attempts: after five wrong passwords, an address waits for a minute, for all names.

Names are not counted, so no visitor can lock out a user from elsewhere.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.loop.clock import Clock

FREE: Final = 5
PAUSE_S: Final = 60.0
_FORGET_S: Final = 600.0
_MOST: Final = 10_000  # addresses that are remembered


class Attempts:
    """Wrong attempts by address.

    `_failed` has, for each address, the count and the time of the last one; the oldest address comes first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def wait_s(self, address: str) -> float:
        """The seconds that an address has to wait; 0 if it may try."""
        count, at_s = self._failed.get(address, (0, 0.0))
        if count < FREE:
            return 0.0
        return max(0.0, at_s + PAUSE_S - self._clock.monotonic())

    def begin(self, address: str) -> None:
        """Count an attempt as failed until it succeeds: simultaneous attempts all count before the first check."""
        now_s = self._clock.monotonic()
        count, at_s = self._failed.pop(address, (0, now_s))
        if now_s - at_s > _FORGET_S:
            count = 0
        while len(self._failed) >= _MOST:
            del self._failed[next(iter(self._failed))]
        self._failed[address] = (count + 1, now_s)

    def succeeded(self, address: str) -> None:
        """Forget the failed attempts of an address."""
        self._failed.pop(address, None)
