"""Repair a damaged log with the records of brokers that have the same log: other members, the master or its slaves.

    a broker starts, its log is damaged        the store stays closed until the records are replaced, or no broker has
                                               them: then the start is refused, as without other members
    a read or the scrubber finds damage, or    the records are replaced while the broker runs
    the start has fenced it off

VIEW_MESSAGE_BY_ID (33) returns the record at an offset. With accounts, each broker asks with its own account. A record
is taken only if it is sound, belongs to this offset, and has the same neighbours in both logs (store/record_repair.py).

With fixed roles, the name servers know the addresses of the brokers with the same name. A master does not know its
slaves' addresses otherwise: slaves connect to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.part import Chore, Part
from sparrowmq.errors import NetworkError, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import ClusterTable
from sparrowmq.protocol.requests.headers import ViewMessage
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.record_repair import RepairResult, advance, replace_damaged, take_from
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 0.5
POLL_S: Final = 1.0
RETRY_S: Final = 60.0
MAX_REPAIR_BYTES: Final = 64 << 20  # of one damaged part that is replaced while the broker runs
BEYOND_ALL_LOGS: Final = 1 << 62  # no log is so long: only damage that was fenced off is replaced


class PeerLog:
    """The log of the broker at an address. Created on the event loop of the pool."""

    def __init__(self, pool: Pool, address: str) -> None:
        self._pool = pool
        self._address = address
        self._loop = asyncio.get_running_loop()

    def record_at(self, offset: int) -> bytes | None:
        """As `ask`, for another thread."""
        return asyncio.run_coroutine_threadsafe(self.ask(offset), self._loop).result()

    async def ask(self, offset: int) -> bytes | None:
        """Return the record at an offset; None if there is none. Raises: NetworkError, RemoteError."""
        try:
            async with asyncio.timeout(3 * TIMEOUT_S):
                session = await self._pool.session(self._address)
                return bytes((await session.call(ViewMessage(offset), timeout_s=TIMEOUT_S)).body)
        except TimeoutError as late:
            raise NetworkError(f"{self._address} does not answer") from late
        except RemoteError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # "can not find message by the offset"
                return None
            raise


async def repair_closed(
    settings: StoreSettings,
    first_damage: int,
    pool: Pool,
    peers: Callable[[], Awaitable[Sequence[str]]],
    clock: Clock,
    patience_s: float,
) -> str:
    """Replace the damaged records of a store that is not open. Returns "" if something was replaced, or why not.

    `peers` returns the addresses of brokers with the same log, for which this waits `patience_s`.
    """
    deadline, reason = clock.monotonic() + patience_s, "no other broker is known"
    while True:
        for address in await peers():
            peer_log = PeerLog(pool, address)
            try:
                requests = replace_damaged(settings, Disk(), first_damage, is_partial=True)
                replaced = await asyncio.to_thread(take_from, peer_log, requests)
            except (SparrowError, OSError) as error:
                reason = f"the broker at {address} cannot help: {error}"
                continue
            if replaced.count or replaced.blank_count:
                return ""  # the rest may be a torn tail that no broker has; the next start decides
            reason = f"the broker at {address} does not have the records{_places(replaced)}"
        if clock.monotonic() >= deadline:
            return reason
        await clock.sleep(PAUSE_S)


def _places(replaced: RepairResult) -> str:
    return "".join(f" from offset {begin} to {end}" for begin, end in replaced.remaining_damage)


class SelfRepair:
    """Replace the damage that reads, the scrubber and starts find, by the logs of `peers`, while the broker runs."""

    def __init__(
        self, store: MessageStore, pool: Pool, clock: Clock, peers: Callable[[], Awaitable[Sequence[str]]]
    ) -> None:
        self._store = store
        self._pool = pool
        self._clock = clock
        self._peers = peers
        self._retry_from_s = 0.0

    def part(self) -> Part:
        return Part(chores=(Chore("repair", POLL_S, self.poll),))

    async def poll(self) -> None:
        if self._store.flushed.error is not None:
            return
        self._store.scrubber.review()
        if not self._has_damage() or self._clock.monotonic() < self._retry_from_s:
            return
        for address in await self._peers():
            self._retry_from_s = self._clock.monotonic() + RETRY_S
            try:
                await self._repair(PeerLog(self._pool, address))
            except SparrowError as error:
                log.warning("the damage of the log is not repaired by the broker at %s: %s", address, error)
            if not self._has_damage():
                self._retry_from_s = 0.0
                return

    def _has_damage(self) -> bool:
        scrubber = self._store.scrubber
        damaged = any(end - begin <= MAX_REPAIR_BYTES for begin, end in scrubber.damaged.items())
        return damaged or bool(scrubber.fenced)

    async def _repair(self, peer_log: PeerLog) -> None:
        with closing(self._store.replace_damaged(MAX_REPAIR_BYTES)) as requests:
            step = advance(requests)
            while isinstance(step, int):
                step = advance(requests, await peer_log.ask(step))


async def same_log_addresses(settings: BrokerSettings, own_address: str, pool: Pool) -> list[str]:
    return list((await addresses_by_number(settings, own_address, pool)).values())


async def addresses_by_number(settings: BrokerSettings, own_address: str, pool: Pool) -> dict[int, str]:
    """Return the addresses of the others by their brokerId, the master's first; none if no name server answers."""
    for namesrv in settings.namesrv:
        try:
            session = await pool.session(namesrv)
            answer = await session.call(GetBrokerCluster(), timeout_s=TIMEOUT_S)
            broker_data = ClusterTable.decode(answer.body).broker_addr_table.get(settings.name)
        except SparrowError:
            continue
        addresses = (
            broker_data.broker_addrs if broker_data is not None and broker_data.cluster == settings.cluster else {}
        )
        others = {number: address for number, address in sorted(addresses.items()) if address != own_address}
        if others:
            return others
    return {}
