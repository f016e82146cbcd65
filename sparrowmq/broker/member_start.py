"""Starts the brokers of a member, one after the other, and notes why its store may lack acknowledged messages.

the disk has no room    the broker serves reads as a slave, and is not elected
... and has some again  another broker takes its place (`has_room`)
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
from sparrowmq.broker.replication.peer_repair import NOWHERE
from sparrowmq.broker.storage import FreedRoom, was_full
from sparrowmq.broker.store_opening import repaired
from sparrowmq.errors import DiskFull
from sparrowmq.loop.clock import Clock
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk

log = logging.getLogger(__name__)


class MemberStart:
    """Starts the brokers of one member.

    Args:
        own: the member's own record, for a doubt in its store.
        look_for_peers: returns the addresses of the other members that run.
    Attributes:
        full: why the last broker could only start read-only; "" if it takes messages.
    """

    def __init__(
        self,
        own: OwnEpoch,
        clock: Clock,
        file: Path | None,
        look_for_peers: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self.full = ""
        self._freed: FreedRoom | None = None
        self._own = own
        self._clock = clock
        self._file = file
        self._look_for_peers = look_for_peers

    async def broker(self, stack: AsyncExitStack, settings: BrokerSettings, term: Term) -> Broker:
        """Start a broker. If its log is damaged, take the damaged records from another member. Raises: as a Broker."""
        abort, was_interrupted = settings.store(settings.port).layout.abort, self._own.doubt == RECOVERING
        may_change = settings.corrupt_policy is CorruptPolicy.QUARANTINE or Disk().exists(abort)
        if may_change and not self._own.doubt:
            self.note_doubt(RECOVERING)
        if self._own.doubt:  # other members may have what an earlier start fenced off
            why = await repaired(settings, self._clock, NOWHERE, peers=self._look_for_peers)
            if why:
                log.info("what earlier starts fenced off is not replaced: %s", why)
        broker = await stack.enter_async_context(Broker(settings, self._clock, self._file, term))
        self._note_room(broker)
        found = broker.store.recovered.doubt
        if found or (self._own.doubt == RECOVERING and not was_interrupted and not self.full):
            self.note_doubt(found)
        return broker

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
