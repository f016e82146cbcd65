"""The master hands the lead over: to whom, when that member has everything, and when a bad disk is the reason.

sends refused         as by a slave, so our clients wait and try again
drained               large batches that have begun are stored, the others in their line are refused as sends are
                      all members in sync have the log up to its end, so all sends before are answered
                      etcd has every member that was about to be in sync: the successor is not to be alone
the log ends          offsets, delayed messages and transactions add nothing that the successor would not have
one change in etcd    there is no leader, and the state names the successor, which other members let go first

An operator asks for it, or the disk of the master does:

    no room                no message is taken for a lease time
    the disk hangs         nothing comes to it for a lease time, although something waits
    the disk is slow       something waits for more than SLOW_S, for SLOW_FOR_S of SLOW_WITHIN_S

With a slow disk the others may not get the log in time. Then the master gives up its lease: members in sync have
everything that was acknowledged.

If the disks of all members are full or slow, the lead must not go around. So a member leaves for either one only once
in LEAVES_AGAIN_S, and for a slow disk not right after an election. A disk that hangs is a reason at once. Only a member
that left for that less than LEAVES_AGAIN_S ago stays for STAYS_S after its election.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from sparrowmq.broker.failover.group_keys import UNKNOWN, EtcdGroup
from sparrowmq.broker.failover.group_state import OwnEpoch
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.appender import LogEnded
from sparrowmq.store.message_store import MessageStore

HAND_OVER_S: Final = 3.0  # the limit of each step
_LOOK_S: Final = 0.01
FORGETS_S: Final = 5.0  # without a refused message: the store tries again every second
PAUSE_S: Final = 30.0  # between two attempts
SLOW_S: Final = 1.0  # messages that wait longer for the disk wait for a slow one
SLOW_FOR_S: Final = 10.0  # a part of SLOW_WITHIN_S
SLOW_WITHIN_S: Final = 30.0
STAYS_S: Final = 30.0  # after an election: another member has found its own disk no better
LEAVES_AGAIN_S: Final = 600.0  # so that the disks of all members do not send the lead around


def next_master(in_sync: InSync, own_member: int, wanted_member: int) -> int:
    """Return the member to hand the lead over to; for 0 the one with most. Raises: RemoteError."""
    others = sorted(in_sync.members - {own_member}, key=lambda member: (-in_sync.end_of(member), member))
    if not in_sync.is_settled or not others:
        raise refusal("no other member is in sync")
    if wanted_member and wanted_member not in others:
        raise refusal(f"member {wanted_member} is not in sync; the other members in sync: {_listed(others)}")
    return wanted_member or others[0]


async def drain(
    store: MessageStore, write_changes: Callable[[], Awaitable[None]], in_sync: InSync, clock: Clock
) -> None:
    """End the log when no batch is stored in part, and all members in sync have it up to its end.

    `write_changes` writes what is in memory alone. Raises: RemoteError, the store has failed, or that takes too long.
    """
    begin_s = clock.monotonic()
    if store.flushed.error is not None:
        raise refusal("the store of this member has failed")
    await write_changes()
    while store.appender.unfinished_batches:
        if clock.age(begin_s) > HAND_OVER_S:
            raise refusal(f"a large batch is not stored after {HAND_OVER_S:g} s")
        await clock.sleep(_LOOK_S)
    store.publish()
    store.flusher.kick()
    while in_sync.replicated.value < store.end or in_sync.is_changing:
        if clock.age(begin_s) > HAND_OVER_S:
            raise refusal(
                f"the other members do not have the whole log, or etcd does not know it, after {HAND_OVER_S:g} s"
            )
        await clock.sleep(_LOOK_S)
    store.appender.end_log(LogEnded("the lead is handed over to another member"))


async def wait_until_flushed(store: MessageStore, end: int) -> None:
    if store.flushed.value < end:
        store.flusher.kick()
        await store.flushed.reached(end)


def check_begin(group: EtcdGroup, own_record: OwnEpoch, end: int, is_forced: bool, unfit: str) -> None:
    """Check that only an operator can give the group a master, and no other member has more. Raises: RemoteError."""
    if group.leader is not None:
        raise refusal(f"member {group.leader.member} is the master; stop it first")
    if unfit:
        raise refusal(
            f"this member is not to lead: {unfit}. Remove the cause and try again, or let another member begin with "
            "--member N. Nothing has changed"
        )
    if is_forced:
        return
    if group.state is not None:
        raise refusal(
            f"in sync: {_listed(list(group.state.in_sync))}. One of these members leads as soon as it is back with its "
            "store. This member may lack acknowledged messages; `--force` discards them"
        )
    for other in group.others:
        if other.end == UNKNOWN and other.epoch >= own_record.epoch:
            reason = other.problem or "it has not said so yet; try again in a second"
            raise refusal(f"where the log of member {other.member} ends is not known: {reason}")
        if (other.epoch, other.end) > (own_record.epoch, end):
            raise refusal(
                f"member {other.member} has more: its log is of epoch {other.epoch} and ends at {other.end}, and ours "
                f"of epoch {own_record.epoch} at {end}. Let that member begin; `--force` discards what this one lacks"
            )


def refusal(reason: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_ERROR, reason)


def _listed(members: list[int]) -> str:
    return ", ".join(map(str, sorted(members)))


class RoomWatch:
    """Notices that the disk of a master has refused messages for `patience_s`."""

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._first_refusal_s, self._next_leave_s = 0.0, clock.monotonic()
        self._last_refusal_s = clock.monotonic() - FORGETS_S - 1

    def note_leave(self) -> None:
        self._next_leave_s = self._clock.monotonic() + LEAVES_AGAIN_S

    def is_short(self, store: MessageStore, has_successor: bool) -> bool:
        """Check the store, about twice a second. After True, the next True comes PAUSE_S later at the earliest."""
        if store.appender.full_error is None:
            return False
        now = self._clock.monotonic()
        if now - self._last_refusal_s > FORGETS_S:
            self._first_refusal_s = now
        self._last_refusal_s = now
        if now - self._first_refusal_s < self._patience_s or now < self._next_leave_s or not has_successor:
            return False
        self._next_leave_s = now + PAUSE_S
        return True


class SlowWatch:
    """Notices that the disk of a master hangs, with nothing written for `patience_s`, or has been slow for a while."""

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._slow_leave_from_s = self._hang_leave_from_s = (
            0.0  # when a disk that is slow, or hangs, is a reason to leave
        )
        self._hangs = False  # at the last check
        self._hung_until_s = 0.0
        self.begin()

    def begin(self) -> None:
        self._window_begin_s = self._last_check_s = now = self._clock.monotonic()
        self._flushed_end, self._waits_since_s = -1, now
        self._slow_s = 0.0
        self._slow_leave_from_s = max(self._slow_leave_from_s, now + STAYS_S)
        self._hang_leave_from_s = now + STAYS_S if now < self._hung_until_s else now

    def note_leave(self) -> None:
        self._slow_leave_from_s = again_s = self._clock.monotonic() + LEAVES_AGAIN_S
        if self._hangs:
            self._hung_until_s = again_s

    def problem(self, store: MessageStore) -> str:
        """Check the store, about twice a second. Returns why to leave the lead now, or ""."""
        now, flushed = self._clock.monotonic(), store.flushed.value
        if flushed >= store.end or flushed != self._flushed_end:
            self._flushed_end, self._waits_since_s = flushed, now
        waits_s = self._clock.age(self._waits_since_s)
        self._slow_s += self._clock.age(self._last_check_s) if waits_s > SLOW_S else 0.0
        self._last_check_s, is_slow = now, self._slow_s > SLOW_FOR_S
        if self._clock.age(self._window_begin_s) >= SLOW_WITHIN_S:
            self._window_begin_s, self._slow_s = now, 0.0
        self._hangs = waits_s > self._patience_s and now >= self._hang_leave_from_s
        if self._hangs:
            return f"for {waits_s:.0f} s no message came to the disk"
        if not is_slow or now < self._slow_leave_from_s:
            return ""
        return f"for {SLOW_FOR_S:g} of {SLOW_WITHIN_S:g} s messages waited for the disk"
