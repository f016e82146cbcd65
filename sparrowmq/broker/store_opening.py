"""Opens the store of a broker. A damaged log first takes records from brokers that should have the same log.

    a slave with failover     the other members, whose addresses etcd has; it waits for them for a while
    a master with failover    likewise, but it does not wait: it gives up its lease, and repairs its log as a slave
    a fixed role              the other brokers of its name, as the name servers say; it does not wait

If no other broker has the records, the start is refused. If the disk has no room for recovery, the store is opened
read-only, but not by a master with failover: other members go first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sparrowmq.broker.access_control import sign_of
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.replication.namesakes import namesakes
from sparrowmq.broker.replication.peer_repair import repair_closed
from sparrowmq.errors import CorruptRecord, DiskFull, OutOfResources, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.tls_contexts import client_context
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings

log = logging.getLogger(__name__)

_PATIENCE_LEASES: Final = 8  # the lease times to wait for another member that can repair our log
_MOST_REPAIRS: Final = 8


async def open_store(
    settings: BrokerSettings, store_settings: StoreSettings, clock: Clock, term: Term | None
) -> MessageStore:
    """Open the store of a broker.

    Args:
        store_settings: the settings of the store.
        term: of a member with failover.
    Raises:
        CorruptRecord: the log is damaged, and no other broker has the records.
        DiskFull: there is no room for the store of a master with failover.
        StoreLocked, BadStore, LogsDiffer: as `MessageStore.open`.
    """
    has_copies = term is not None or settings.role is not BrokerRole.ASYNC_MASTER
    store_settings = replace(store_settings, awaits_copy=has_copies and settings.corrupt_policy is CorruptPolicy.FAIL)
    for _ in range(_MOST_REPAIRS):
        try:
            return await _open(store_settings, clock, term)
        except CorruptRecord as damage:
            log.error("%s; the records are taken from another broker, if one has them", damage)
            patience_s = _PATIENCE_LEASES * settings.lease_s if term is not None and not term.in_sync else 0.0
            peers = term.peers if term is not None else None
            why = await repaired(settings, clock, damage.offset, patience_s, peers)
            if why and store_settings.awaits_copy and term is None:
                store_settings = replace(store_settings, awaits_copy=False)  # no broker has a copy now
            elif why:
                text = f"{damage.expected}. No other broker can repair it: {why}"
                raise CorruptRecord(damage.file, damage.offset, text) from damage
    raise StoreFailed(f"the log is damaged again after {_MOST_REPAIRS} repairs; check the disk")


async def _open(store_settings: StoreSettings, clock: Clock, term: Term | None) -> MessageStore:
    try:
        if term is None:
            return MessageStore.open(store_settings, clock=clock)
        # Open it in a thread, because a task of this event loop renews the lease of a master meanwhile.
        return await asyncio.to_thread(MessageStore.open, store_settings, clock=clock, cut_at=term.cut_at)
    except DiskFull as full:
        if isinstance(full, OutOfResources) or (term is not None and term.in_sync is not None):
            raise
        return MessageStore.open_full(store_settings, full, clock=clock)


async def repaired(
    settings: BrokerSettings,
    clock: Clock,
    damaged: int,
    patience_s: float = 0.0,
    peers: Callable[[], Awaitable[Sequence[str]]] | None = None,
) -> str:
    """Take damaged records from another broker; return why that was impossible, or "".

    Args:
        damaged: the offset of the first damage.
        patience_s: the time to wait for a broker that has the records.
        peers: returns the addresses of brokers with the same log; without it the name servers are asked.
    """
    tls = client_context(settings) if settings.talks_tls else None
    pool = Pool(clock, sign=sign_of(settings), tls=tls)
    peers = peers or partial(namesakes, settings, settings.address(settings.port), pool)
    try:
        return await repair_closed(settings.store(settings.port), damaged, pool, peers, clock, patience_s)
    finally:
        pool.close()
        await pool.ended()
