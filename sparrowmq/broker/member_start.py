"""Starts the brokers of a member, one after the other, and notes why its store may lack acknowledged messages.

the disk has no room    the broker serves reads as a slave, and is not elected
... and has some again  another broker takes its place (`has_room`)

All of them use the same certificates, accounts, port for metrics, and connections to name servers
(member_resources.py). A name server forgets a broker, and topics that no other broker has, when its connection ends. So
the member stays registered while one broker takes the place of another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.failover.own_epoch import RECOVERING, OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.member_resources import MemberResources
from sparrowmq.broker.replication.peer_repair import NOWHERE
from sparrowmq.broker.store_opening import repaired
from sparrowmq.broker.store_part import FreedRoom, was_full
from sparrowmq.errors import DiskFull
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.store.log.set_aside import ranges
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk

log = logging.getLogger(__name__)


class MemberStart:
    """Starts the brokers of one member.

    Args:
        own: the member's own record, for a doubt in its store.
        look_for_peers: returns the addresses of the other members that run.
        spawn: starts the task of the port for metrics, which ends with the member.
    Attributes:
        broker: the one that runs; None if none does.
        problem: why the member has no broker, as its owner found; "" if there is no problem.
        full: why the last broker could only start read-only; "" if it takes messages.
    """

    def __init__(
        self,
        own: OwnEpoch,
        clock: Clock,
        file: Path | None,
        look_for_peers: Callable[[], Awaitable[Sequence[str]]],
        spawn: Spawn,
    ) -> None:
        self.broker: Broker | None = None
        self.problem = ""
        self.full = ""
        self._stack = AsyncExitStack()
        self._lasting: MemberResources | None = None
        self._freed: FreedRoom | None = None
        self._own = own
        self._clock = clock
        self._file = file
        self._look_for_peers = look_for_peers
        self._spawn = spawn

    async def begin(self, settings: BrokerSettings, term: Term) -> None:
        """Stop the broker that runs, and start another one.

        If its log is damaged, the damaged records come from another member. Raises: as a Broker.
        """
        await self._stop()
        try:
            lasting = self._lasting = self._lasting or await self._open_resources(settings)
            self.broker = await self._started(settings, term, lasting)
        except BaseException:
            await self._disconnect()  # clients must not look for a broker here
            raise

    async def end(self, *error: object) -> bool | None:
        """Unregister and stop the broker for good. Raises: as a Broker."""
        try:
            if self.broker is not None:
                await self.broker.leave()
            return await self._stop(*error)
        finally:
            await self._disconnect()

    async def _stop(self, *error: object) -> bool | None:
        stack, self._stack, self.broker = self._stack, AsyncExitStack(), None
        return await stack.__aexit__(*(error or (None, None, None)))  # type: ignore[arg-type]

    async def _open_resources(self, settings: BrokerSettings) -> MemberResources:
        """Begin what all brokers share. Its port for metrics says why there is no broker yet. Raises: ConfigError."""
        made = MemberResources(settings, self._clock)
        await made.open_metrics(self._spawn, lambda: self.problem or "the broker starts or stops")
        return made

    async def _started(self, settings: BrokerSettings, term: Term, lasting: MemberResources) -> Broker:
        layout, was_interrupted = settings.store(settings.port).layout, self._own.doubt == RECOVERING
        may_change = settings.corrupt_policy is CorruptPolicy.QUARANTINE or Disk().exists(layout.abort)
        if may_change and not self._own.doubt:
            self.note_doubt(RECOVERING)
        if self._own.doubt and any(ranges(Disk(), layout, "damaged")):
            # Other members may have what an earlier start fenced off.
            why = await repaired(settings, self._clock, NOWHERE, peers=self._look_for_peers)
            if why:
                log.info("what earlier starts fenced off is not replaced: %s", why)
        made = Broker(settings, self._clock, self._file, term, lasting)
        broker = await self._stack.enter_async_context(made)
        self._note_room(broker)
        found = broker.store.recovered.doubt
        if found or (self._own.doubt == RECOVERING and not was_interrupted and not self.full):
            self.note_doubt(found)
        return broker

    async def _disconnect(self) -> None:
        if self._lasting is not None:
            await self._lasting.disconnect()

    def has_room(self) -> bool:
        """Whether the disk was full at the last start, and has room for another one."""
        return self._freed is not None and self._freed.has_come()

    def _note_room(self, broker: Broker) -> None:
        is_full = was_full(broker.store)
        self.full = str(broker.store.flushed.error) if is_full else ""
        self._freed = broker.freed_room

    def note_doubt(self, doubt: str) -> None:
        """Record why the store may lack acknowledged messages."""
        try:
            self._own.note_doubt(doubt)
        except (OSError, DiskFull) as error:
            log.warning("whether the store is complete cannot be written down: %s", error)
