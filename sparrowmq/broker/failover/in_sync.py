"""The members that have every message that a master acknowledges, so that each of them can be the next master.

    a slave is near the end     the master waits for it from now on, and notes the log's end at this moment
    it has the log up to there  the master reports to etcd that it is in sync
    its connection ends, or it lags for haMaxTimeSlaveNotCatchup
                                the master reports to etcd that it is not; until etcd confirms, it still waits for it

So the master always waits at least for the members that etcd has in sync, and only one of those can be elected. The
next master therefore has every message that was acknowledged as replicated, even if clocks are wrong. Etcd may have
stored a report even if no answer came. So the master also waits for every member that it reported, and repeats the
report until etcd answers. A master that is alone in sync acknowledges no message as replicated. A send waits for a
slave that is near the end, and gets SLAVE_NOT_AVAILABLE if none is.

A new master begins with the members in sync of the epoch before: each of them has all that was ever acknowledged. It
acknowledges and shows nothing until it has settled its epoch, so it takes no member's right to lead for nothing:

    all of these members follow, or a send or read waits and those that should come have come
                                    the master settles: it reports to etcd the members that follow
    one of them does not come       the master settles without it, SETTLE_S after the first send or read
    none of them comes              ... and as long it waits for any other member that runs or is connected

Source: the idea of AutoSwitchHAService's SyncStateSet, Java 5.3, with allAckInSyncStateSet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from sparrowmq.broker.failover.group_state import GroupState, with_in_sync
from sparrowmq.errors import EtcdFailed, NoSlaveNear
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.codes import ResponseCode

log = logging.getLogger(__name__)

NEAR_BYTES: Final = 4 << 20
SETTLE_S: Final = 1.25  # below slaveTimeout: sends that wait get the answer of an epoch that is settled
_LOOK_S: Final = 0.25


class InSync:
    """A master's record of its members in sync.

    `commit` writes to etcd and returns the new state; None if another broker is the master. `inherited` are the other
    members that were in sync at the election. `replicated` is the offset up to which all members in sync, at least two,
    have the log. `shipped` is the end of the master's log for slaves; `log_end` returns the whole end. `on_advance` is
    called when consumers may see more of the log.
    """

    def __init__(
        self,
        own_member: int,
        state: GroupState,
        commit: Callable[[GroupState], Awaitable[GroupState | None]],
        clock: Clock,
        catch_up_s: float,
        is_valid: Callable[[], bool],
        expected: frozenset[int] = frozenset(),
    ) -> None:
        self.members = set(state.in_sync)
        self.inherited = frozenset(state.in_sync) - {own_member}
        self.replicated = Watermark()
        self.shipped = Watermark()
        self.log_end: Callable[[], int] = lambda: self.shipped.value
        self.on_advance: Callable[[], object] = lambda: None
        self.on_settled: Callable[[], object] = lambda: None
        self._own_member = own_member
        self._state = state
        # Members in a change that etcd has not answered: etcd may already have them in sync.
        self._unconfirmed: set[int] = set()
        self._commit = commit
        self._clock = clock
        self._catch_up_s = catch_up_s
        self._is_valid = is_valid
        self._expected = expected
        self._settle_requested_s: float | None = None  # when the first send or read waited for a settled epoch
        self._ends: dict[int, int] = {}  # the log's end at each connected member
        self._joining: dict[int, tuple[int, float]] = {}  # the offset to reach, and since when
        self._disconnected: set[int] = set()  # members in sync whose connection ended
        self._caught_up_s: dict[int, float] = {}
        self._end_before = 0
        self._awaits_shipping = False  # whether more is shown when the log is shipped up to its end
        self._wake = asyncio.Event()

    def note_report(self, member: int, end: int) -> None:
        mark, _ = self._joining.get(member, (end + 1, 0.0))
        if member not in self._ends or end >= mark or self._is_near(member, end):
            self._wake.set()
        self._ends[member] = end
        self._advance()

    def note_disconnected(self, member: int) -> None:
        self._ends.pop(member, None)
        self._joining.pop(member, None)
        self._caught_up_s.pop(member, None)
        if member in self._reported_members:
            self._disconnected.add(member)
        self._wake.set()
        self._refuse_alone()

    def may_connect(self, member: int) -> bool:
        """Whether a member may be served: not while etcd has it in sync through a connection that ended.

        Its own record would name this epoch. If it were elected with an empty store, no broker could notice.
        """
        return member in self._ends or member not in self._reported_members

    @property
    def is_settled(self) -> bool:
        """Whether the members in sync are those that this master has named."""
        return self._state.is_settled

    @property
    def leads(self) -> bool:
        return self._is_valid()

    @property
    def has_successor(self) -> bool:
        return self.is_settled and any(self.end_of(member) >= 0 for member in self.members)

    @property
    def hides_log(self) -> bool:
        """Whether another member may still be elected that lacks a part of the log: clients must not read it."""
        return not self.is_settled and len(self._electable) > 1

    def request_settle(self) -> None:
        if self._settle_requested_s is None and not self.is_settled:
            self._settle_requested_s = self._clock.monotonic()
            self._wake.set()

    def end_of(self, member: int) -> int:
        return self._ends.get(member, -1)

    @property
    def is_alone(self) -> bool:
        """Whether no other member is in sync, or about to be: all later members will have the whole log."""
        return len(self._electable) < 2 and not self._joining

    @property
    def is_changing(self) -> bool:
        return bool(self._joining or self._unconfirmed) or self._wake.is_set()

    def lacks(self, target: int) -> NoSlaveNear | None:
        self.request_settle()
        return _no_other() if self.is_alone else None

    async def run(self) -> None:
        while True:
            self._wake.clear()
            to_report = self._members_to_report()
            if to_report is not None:
                if not await self._report(to_report):
                    return
                if to_report == self.members and not self._unconfirmed:
                    continue
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), _LOOK_S)

    def lead_lost_error(self) -> NoSlaveNear:
        problem = "this broker is the master no more, and the next one may lack it"
        return NoSlaveNear(ResponseCode.FLUSH_SLAVE_TIMEOUT, problem, 0)

    @property
    def _electable(self) -> set[int]:
        """The members that etcd may have in sync; each may be the next master."""
        return self.members | self._unconfirmed

    @property
    def _reported_members(self) -> set[int]:
        """The members that etcd may have in sync by a report of this master."""
        return self.members | self._unconfirmed if self.is_settled else self._unconfirmed

    @property
    def _awaited_members(self) -> set[int]:
        return (self._electable | self._joining.keys()) - {self._own_member}

    def _advance(self) -> None:
        awaited = self._awaited_members
        if not self.is_settled or len(self.members) < 2 or not awaited <= self._ends.keys():
            self.on_advance()
            return
        if not self._is_valid():
            self.replicated.fail(self.lead_lost_error())
            return
        self.replicated.advance(min(self._ends[member] for member in awaited))
        self.on_advance()

    def visible_end(self) -> int:
        """Return the end of the log that consumers may see: the next master has everything before it.

        A master that is alone in sync can be the next one itself, after a power cut: so it shows what it would ship.
        """
        awaited = self._awaited_members
        if not awaited:
            self._advance_when_shipped()
            return self.shipped.value
        return min(self._ends.get(member, 0) for member in awaited)

    def _advance_when_shipped(self) -> None:
        end = self.log_end()
        if end > self.shipped.value and not self._awaits_shipping:
            self._awaits_shipping = True
            self.shipped.when(end, self._shipped)

    def _shipped(self, error: BaseException | None) -> None:
        self._awaits_shipping = False
        if error is None:
            self.on_advance()

    def _members_to_report(self) -> set[int] | None:
        following = self._following()
        if not self.is_settled:
            return following if self._may_settle(following) else None
        return following if following != self.members or self._unconfirmed else None

    def _may_settle(self, following: set[int]) -> bool:
        if self._unconfirmed or self.members <= following:
            return True
        if self._settle_requested_s is None:
            return False
        if following == {self._own_member}:  # alone: any follower is worth the wait
            awaited_members = (self._expected | self._ends.keys()) - following
        else:
            awaited_members = (self._expected & self.members) - following
        return not awaited_members or self._clock.age(self._settle_requested_s) >= SETTLE_S

    @property
    def _confirmed_members(self) -> set[int]:
        return self.members if self.is_settled else {self._own_member}

    def _is_near(self, member: int, end: int) -> bool:
        is_new = member not in self._joining and member not in self._confirmed_members
        return is_new and self.shipped.value - end <= NEAR_BYTES

    def _following(self) -> set[int]:
        confirmed, now, shipped_end = self._confirmed_members, self._clock.monotonic(), self.shipped.value
        for member, end_at_member in self._ends.items():
            if end_at_member >= self._end_before or member not in self._caught_up_s:
                self._caught_up_s[member] = now
        self._end_before = shipped_end
        late = {m for m, since_s in self._caught_up_s.items() if self._clock.age(since_s) > self._catch_up_s}
        for member, end_at_member in self._ends.items():
            if self._is_near(member, end_at_member):
                # What is not shipped yet may have been answered, or shown, while this master was alone in sync.
                self._joining[member] = (self.log_end(), now)
        ready = {m for m, (mark, _) in self._joining.items() if self._ends[m] >= mark}
        for member in [m for m, (_, since_s) in self._joining.items() if self._clock.age(since_s) > self._catch_up_s]:
            del self._joining[member]
        lagging = (self._disconnected | late | (confirmed - self._ends.keys())) - {self._own_member}
        return (confirmed - lagging) | (ready - late)

    async def _report(self, members: set[int]) -> bool:
        """Write the members to etcd; return whether etcd still names this broker as the master."""
        self._unconfirmed |= members
        try:
            state = await self._commit(with_in_sync(self._state, members))
        except EtcdFailed as error:
            log.warning("the members in sync cannot be changed to %s now: %s", sorted(members), error)
            return True
        if state is None:
            return False
        was_settled = self.is_settled
        self._state, self.members, self._unconfirmed = state, set(state.in_sync), set()
        self._disconnected &= self.members
        for member in self.members:
            self._joining.pop(member, None)
        log.info("in sync in epoch %d: %s", state.epoch, ", ".join(map(str, state.in_sync)))
        self._advance()
        if self.is_settled and not was_settled:
            self.on_settled()
        self._refuse_alone()
        return True

    def _refuse_alone(self) -> None:
        if self.is_alone:
            self.replicated.refuse(_no_other())


def _no_other() -> NoSlaveNear:
    return NoSlaveNear(ResponseCode.SLAVE_NOT_AVAILABLE, "no other member is in sync", 0)
