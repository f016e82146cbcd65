"""A number of frames that a peer may send at once, and that grows again with time and with finished calls."""

from __future__ import annotations


class Allowance:
    """A bucket that empties with each frame of a kind and fills with time.

    Args:
        most: in the bucket, and at the start.
        per_s: added each second.
    """

    def __init__(self, most: float, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._left = most
        self._at = 0.0

    def take(self, now: float) -> bool:
        """Take one; False if none is left."""
        if now > self._at:
            self._left = min(self._most, self._left + (now - self._at) * self._per_s)
            self._at = now
        self._left -= 1.0
        return self._left >= 0.0

    def earn(self, count: float) -> None:
        """Add some, because the peer did useful work."""
        self._left = min(self._most, self._left + count)
