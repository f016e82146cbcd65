"""Notices that a master should leave the lead to another member in sync, because of its disk.

    no room                no message is taken for a lease time
    the disk hangs         nothing comes to it for a lease time, although something waits
    the disk is slow       something waits for more than SLOW_S, for SLOW_FOR_S of SLOW_WITHIN_S

The master hands the lead over (handover.py). With a slow disk the others may not get the log in time. Then the master
gives up its lease: members in sync have everything that was acknowledged.

If the disks of all members are full or slow, the lead must not go around. So a member leaves for either one only once
in LEAVES_AGAIN_S, and for a slow disk not right after an election. A disk that hangs is a reason at once, also if it
was slow before: a member whose disk hangs is not elected. Only a member that left for that less than LEAVES_AGAIN_S
ago stays for STAYS_S after its election.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.loop.clock import Clock
from sparrowmq.store.message_store import MessageStore

FORGETS_S: Final = 5.0  # without a refused message: the store tries again every second
PAUSE_S: Final = 30.0  # between two attempts
SLOW_S: Final = 1.0  # messages that wait longer for the disk wait for a slow one
SLOW_FOR_S: Final = 10.0  # of SLOW_WITHIN_S
SLOW_WITHIN_S: Final = 30.0
STAYS_S: Final = 30.0  # after an election: another member has found its own disk no better
LEAVES_AGAIN_S: Final = 600.0  # so that the disks of all members do not send the lead around


class RoomWatch:
    """Notices that the disk of a master has had no room for messages for a while.

    Args:
        patience_s: the time for which it must have refused messages.
    """

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._first, self._again = 0.0, clock.monotonic()
        self._last = clock.monotonic() - FORGETS_S - 1

    def leaves(self) -> None:
        """Note that this member leaves the lead because of its disk."""
        self._again = self._clock.monotonic() + LEAVES_AGAIN_S

    def is_short(self, store: MessageStore, has_successor: bool) -> bool:
        """Look at the store; call it about twice a second. After True it waits for a while.

        Args:
            has_successor: whether another member could lead; until one can, there is nothing to try.
        """
        if store.appender.full is None:
            return False
        now = self._clock.monotonic()
        if now - self._last > FORGETS_S:
            self._first = now
        self._last = now
        if now - self._first < self._patience_s or now < self._again or not has_successor:
            return False
        self._again = now + PAUSE_S
        return True


class SlowWatch:
    """Notices that the disk of a master hangs, or has been slow for a while.

    Args:
        patience_s: the disk hangs if nothing comes to it for this time, although something waits.
    """

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._slow_from = self._hang_from = 0.0  # when a disk that is slow, or hangs, is a reason to leave
        self._hangs = False  # by the last look
        self._hung_till = 0.0
        self.begin()

    def begin(self) -> None:
        """Note that this member has become the master."""
        self._began = self._looked = now = self._clock.monotonic()
        self._flushed, self._waits_since = -1, now
        self._slow_s = 0.0
        self._slow_from = max(self._slow_from, now + STAYS_S)
        self._hang_from = now + STAYS_S if now < self._hung_till else now

    def leaves(self) -> None:
        """Note that this member leaves the lead because of its disk."""
        self._slow_from = again = self._clock.monotonic() + LEAVES_AGAIN_S
        if self._hangs:
            self._hung_till = again

    def problem(self, store: MessageStore) -> str:
        """Look at the store; call it about twice a second. Returns why to leave the lead now, or ""."""
        now, flushed = self._clock.monotonic(), store.flushed.value
        if flushed >= store.end or flushed != self._flushed:
            self._flushed, self._waits_since = flushed, now
        waits_s = self._clock.age(self._waits_since)
        self._slow_s += self._clock.age(self._looked) if waits_s > SLOW_S else 0.0
        self._looked, is_slow = now, self._slow_s > SLOW_FOR_S
        if self._clock.age(self._began) >= SLOW_WITHIN_S:
            self._began, self._slow_s = now, 0.0
        self._hangs = waits_s > self._patience_s and now >= self._hang_from
        if self._hangs:
            return f"for {waits_s:.0f} s no message came to the disk"
        if not is_slow or now < self._slow_from:
            return ""
        return f"for {SLOW_FOR_S:g} of {SLOW_WITHIN_S:g} s messages waited for the disk"
