"""An operator, who does what the documentation of failover asks for when members cannot go on by themselves.

etcd knows no group, or no member can be elected since one in sync has lost its disk
                            once all members answer: the one of the highest epoch, with the longest log, begins
a log differs from the master's, for the first time since then, or ends before the master's begins
                            that store is moved away, and its member starts with an empty one
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from sparrowmq.admin.brokers import Standing
from sparrowmq.client.client import Client
from sparrowmq.errors import SparrowError
from tests.simulation.cluster import BROKER, Cluster
from tests.simulation.pace import Pace

_LOOK_S: Final = 1.0
_PATIENCE_S: Final = 15.0
_LOOKS_AGAIN_S: Final = 60.0  # at members that are not in sync
_DIFFERENCES: Final = (
    "the master's log differs from ours",
    "the master has nothing at offset",
    "this log must be cut",
    "the master's log begins at offset",
)


class Operator:
    """The program of the operator; it never ends.

    Attributes:
        elections: how often a member was told to begin.
        emptied: how many stores were moved away.
    """

    def __init__(self, cluster: Cluster, pace: Pace) -> None:
        self.elections = 0
        self.emptied = 0
        self._cluster = cluster
        self._looks_again_s = _LOOKS_AGAIN_S if pace.deletes else inf
        self._looks_at = self._looks_again_s
        # Members that were not in sync lately, or since another line of epochs began.
        self._strangers: set[int] = set()
        self._stuck_since: float | None = None

    async def run(self) -> None:
        """Look at the group now and then."""
        cluster, scheduler = self._cluster, self._cluster.world.scheduler
        async with cluster.connect() as mq:
            while True:
                await asyncio.sleep(_LOOK_S)
                if scheduler.now > self._looks_at:
                    self._looks_at = scheduler.now + self._looks_again_s
                    self._strangers = set(cluster.members)
                self._strangers -= cluster.in_sync()
                try:
                    if cluster.etcd_state.lacks_state:
                        await self._elect(mq, force=False)
                    elif self._is_stuck(scheduler.now):
                        await self._elect(mq, force=True)
                    elif self._strangers:
                        await self._empty(mq)
                except SparrowError as error:
                    scheduler.recent.append(f"{scheduler.now:.6f} operator: {error!r}")

    def _is_stuck(self, now: float) -> bool:
        """Whether a member in sync has another disk, and there was no master for a while."""
        if self._cluster.serving_master is not None or not self._cluster.awaits_operator:
            self._stuck_since = None
            return False
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        return now - self._stuck_since > _PATIENCE_S

    async def _standings(self, mq: Client) -> dict[int | None, Standing]:
        return {each.member: each for each in await mq.admin.standings() if each.broker == BROKER}

    async def _empty(self, mq: Client) -> None:
        """Empty the stores of members whose logs differ from the master's."""
        found = await self._standings(mq)
        for number in sorted(self._strangers):
            problem = found[number].problem if number in found else None
            if problem and any(text in problem for text in _DIFFERENCES) and self._cluster.rot is None:
                self._cluster.world.scheduler.note(f"operator: the store of member {number} is moved away")
                self._strangers.discard(number)
                self._cluster.replace_disk(number)
                self.emptied += 1

    async def _elect(self, mq: Client, *, force: bool) -> None:
        """Let a member begin that has all that was ever acknowledged, if all of them answer."""
        if (await self._standings(mq)).keys() != self._cluster.members.keys():
            return
        self._strangers = set(self._cluster.members)
        chosen = await mq.admin.elect(BROKER, force=force)
        self._cluster.world.scheduler.note(f"operator: member {chosen} begins")
        self.elections += 1
