"""Starts the brokers of a member, one after the other; a damaged log is repaired from other members before.

A member that is to lead does not wait for others: it gives up its lease, and repairs its log as a slave.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from sparrowmq.broker.access_control import sign_of
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.failover.own_epoch import RECOVERING, OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.replication.peer_repair import NOWHERE, repair_closed
from sparrowmq.errors import CorruptRecord, DiskFull, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.tls_contexts import client_context
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk

log = logging.getLogger(__name__)

_PATIENCE_LEASES: Final = 8  # the lease times to wait for another member that can repair our log
_MOST_REPAIRS: Final = 8


class MemberStart:
    """Starts the brokers of one member.

    Args:
        own: the member's own record, for a doubt in its store.
        look_for_peers: returns the addresses of the other members that run.
    """

    def __init__(
        self,
        own: OwnEpoch,
        clock: Clock,
        file: Path | None,
        look_for_peers: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
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
            why = await self._repaired(settings, NOWHERE, 0.0)
            if why:
                log.info("what earlier starts fenced off is not replaced: %s", why)
        for _ in range(_MOST_REPAIRS):
            try:
                broker = await stack.enter_async_context(Broker(settings, self._clock, self._file, term))
                break
            except CorruptRecord as damage:
                await self._repair(settings, damage, 0 if term.in_sync is not None else _PATIENCE_LEASES)
        else:
            raise StoreFailed(f"the log is damaged again after {_MOST_REPAIRS} repairs; check the disk")
        found = broker.store.recovered.doubt
        if found or (self._own.doubt == RECOVERING and not was_interrupted):
            self.note_doubt(found)
        return broker

    async def _repair(self, settings: BrokerSettings, damage: CorruptRecord, leases: int) -> None:
        """Take damaged records from another member that runs. Raises: CorruptRecord, no member has them."""
        log.error("%s; the records are taken from another member, if one has them", damage)
        why = await self._repaired(settings, damage.offset, leases * settings.lease_s)
        if why:
            text = f"{damage.expected}. No other member can repair it: {why}"
            raise CorruptRecord(damage.file, damage.offset, text) from damage

    async def _repaired(self, settings: BrokerSettings, damaged: int, patience_s: float) -> str:
        """Return why damaged records could not be replaced; "" if they were."""
        tls = client_context(settings) if settings.talks_tls else None
        pool = Pool(self._clock, sign=sign_of(settings), tls=tls)
        store = settings.store(settings.port)
        try:
            return await repair_closed(store, damaged, pool, self._look_for_peers, self._clock, patience_s)
        finally:
            pool.close()
            await pool.ended()

    def note_doubt(self, doubt: str) -> None:
        """Record why the store may lack acknowledged messages."""
        try:
            self._own.note_doubt(doubt)
        except (OSError, DiskFull) as error:
            log.warning("whether the store is complete cannot be written down: %s", error)
