"""How often somebody may try to log in: after five wrong passwords from one address a minute's pause, for all names.

Nothing is counted by name, so nobody can lock another one out from elsewhere.
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

    `_failed` has, for each address, how many there were and when the last was; the eldest address comes first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def wait_s(self, address: str) -> float:
        """For how long nothing from there is looked at; 0 if it may try."""
        count, at_s = self._failed.get(address, (0, 0.0))
        if count < FREE:
            return 0.0
        return max(0.0, at_s + PAUSE_S - self._clock.monotonic())

    def begin(self, address: str) -> None:
        """Count one as failed until it is found right: many that come at once are counted before any is looked at."""
        now_s = self._clock.monotonic()
        count, at_s = self._failed.pop(address, (0, now_s))
        if now_s - at_s > _FORGET_S:
            count = 0
        while len(self._failed) >= _MOST:
            del self._failed[next(iter(self._failed))]
        self._failed[address] = (count + 1, now_s)

    def succeeded(self, address: str) -> None:
        """Forget what was wrong before."""
        self._failed.pop(address, None)
