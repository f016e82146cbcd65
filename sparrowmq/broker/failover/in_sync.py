"""Which members have all that a master acknowledges, so that each of them can be the next master.

    a slave is near the end     it is waited for from now on, and the log's end at this moment is noted
    it has all up to there      etcd is told that it is in sync
    its connection ends, or it lacks for haMaxTimeSlaveNotCatchup what the master had
                                etcd is told that it is not; until that is done it is waited for

So at any moment those that are waited for are at least those that etcd knows, and only of those one can be elected:
what was acknowledged as replicated is at the next master, whatever clocks do. What etcd was asked to know it may know,
whether its answer comes or not; so whoever was named is waited for, too, and etcd is asked again until it answers.
While the master is in sync alone it acknowledges nothing so (SLAVE_NOT_AVAILABLE), and only it can be elected. A slave
that comes again has to prove itself anew.
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
ALL: Final = 1 << 62
_LOOK_S: Final = 0.25


class InSync:
    """A master's account of its members.

    Args:
        me: the master's own id among them.
        commit: tells etcd, and says what it has then; None if somebody else is the master. Raises: EtcdFailed.
        holds: whether nobody else can be the master now.
    Attributes:
        members: in sync, as etcd knows.
        replicated: up to where all of them have the log, the master being one of at least two.
        shipped: the master's end of the log, for its slaves.
        on_advance: is called when more may be shown to consumers.
    """

    def __init__(
        self,
        me: int,
        state: GroupState,
        commit: Callable[[GroupState], Awaitable[GroupState | None]],
        clock: Clock,
        catch_up_s: float,
        holds: Callable[[], bool],
    ) -> None:
        self.members = set(state.in_sync)
        self.replicated = Watermark()
        self.shipped = Watermark()
        self.on_advance: Callable[[], object] = lambda: None
        self._me = me
        self._state = state
        self._named: set[int] = (
            set()
        )  # by a change that etcd has not answered, so it may have them as in sync
        self._commit = commit
        self._clock = clock
        self._catch_up_s = catch_up_s
        self._holds = holds
        self._ends: dict[int, int] = {}  # of those that are connected
        self._joining: dict[int, tuple[int, float]] = {}  # what they must have for that, and since when
        self._left: set[int] = set()  # in sync, with a connection that ended
        self._caught_up: dict[int, float] = {}
        self._end_before = 0
        self._changed = asyncio.Event()

    def reported(self, member: int, end: int) -> None:
        """A member has the log up to `end`."""
        mark, _ = self._joining.get(member, (end + 1, 0.0))
        if member not in self._ends or end >= mark:
            self._changed.set()
        self._ends[member] = end
        self._advance()

    def left(self, member: int) -> None:
        """Its connection ended."""
        self._ends.pop(member, None)
        self._joining.pop(member, None)
        self._caught_up.pop(member, None)
        if member in self._electable:
            self._left.add(member)
        self._changed.set()

    def may_come(self, member: int) -> bool:
        """Whether a member may be served: not while etcd has it in sync by a connection that ended.

        From its first byte of this epoch on its own record says that it has the epoch. Were it elected then, with a
        store that lacks what it had acknowledged, nobody could tell.
        """
        return member in self._ends or member not in self._electable

    def lacks(self, target: int) -> NoSlaveNear | None:
        """Why it is not worth waiting for the others; None if it is."""
        if len(self._electable) > 1:
            return None
        return NoSlaveNear(ResponseCode.SLAVE_NOT_AVAILABLE, "no other member is in sync", 0)

    async def run(self) -> None:
        """Look after it until somebody else is the master."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            if wanted != self.members or self._named:
                if not await self._agree(wanted):
                    return
                if wanted == self.members and not self._named:
                    continue
            with suppress(TimeoutError):
                await self._clock.wait_for(self._changed.wait(), _LOOK_S)

    def deposed(self) -> NoSlaveNear:
        """What is said to who waits when somebody else may be the master."""
        what = "this broker is the master no more, and the next one may lack it"
        return NoSlaveNear(ResponseCode.FLUSH_SLAVE_TIMEOUT, what, 0)

    @property
    def _electable(self) -> set[int]:
        """Whom etcd may have as in sync, and so may be the next master."""
        return self.members | self._named

    @property
    def _others(self) -> set[int]:
        """Who is waited for."""
        return (self._electable | self._joining.keys()) - {self._me}

    def _advance(self) -> None:
        others = self._others
        if len(self.members) < 2 or not others <= self._ends.keys():
            self.on_advance()
            return
        if not self._holds():
            self.replicated.fail(self.deposed())
            return
        self.replicated.advance(min(self._ends[member] for member in others))
        self.on_advance()

    def shown_end(self) -> int:
        """Up to where consumers may see the log: whoever is the next master has it, too.

        Else one of them would go on behind it, where its successor has put other messages.
        """
        return min((self._ends.get(member, 0) for member in self._others), default=ALL)

    def _wanted(self) -> set[int]:
        """Who should be in sync now."""
        now, end = self._clock.monotonic(), self.shipped.value
        for member, reached in self._ends.items():
            if reached >= self._end_before or member not in self._caught_up:
                self._caught_up[member] = now
        self._end_before = end
        late = {m for m, since in self._caught_up.items() if now - since > self._catch_up_s}
        for member in self._ends.keys() - self.members - self._joining.keys():
            if end - self._ends[member] <= NEAR_BYTES:
                self._joining[member] = (end, now)
        ready = {m for m, (mark, _) in self._joining.items() if self._ends[m] >= mark}
        for member in [m for m, (_, since) in self._joining.items() if now - since > self._catch_up_s]:
            del self._joining[member]
        gone = (self._left | late | (self.members - self._ends.keys())) - {self._me}
        return (self.members - gone) | (ready - late)

    async def _agree(self, wanted: set[int]) -> bool:
        """Have etcd know it; whether it still takes us for the master."""
        self._named |= wanted
        try:
            state = await self._commit(with_in_sync(self._state, wanted))
        except EtcdFailed as error:
            log.warning("who is in sync cannot be changed to %s now: %s", sorted(wanted), error)
            return True
        if state is None:
            return False
        self._state, self.members, self._named = state, set(state.in_sync), set()
        self._left &= self.members
        for member in self.members:
            self._joining.pop(member, None)
        log.info("in sync in epoch %d: %s", state.epoch, ", ".join(map(str, state.in_sync)))
        self._advance()
        if (lacks := self.lacks(0)) is not None:
            self.replicated.refuse(lacks)  # It is not worth the rest of their time.
        return True
