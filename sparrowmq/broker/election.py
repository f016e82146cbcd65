"""A broker that is the master or a slave, as etcd says: one of several of the same name.

                      nobody leads, and we are in sync ── elected ──┐
    slave of whoever leads ── cut to the common part, follow         master, while the lease lives (lease.py)
          ^                                                          │
          └────────── another leads, or the lease cannot be renewed ─┘

A change of roles is a broker that is stopped and another one that is started, in this process and on this store, at the
same port: no part of a broker has to know how to become something else. That takes about half a second; clients take
it for a connection that ended.

Etcd is looked at twice a second while we do not lead, and while we do with each renewal of the lease. Without etcd
nobody is elected. Who leads goes on for as long as the lease is believed in, and is a slave then, because somebody else
may have been elected by those that etcd still answers to.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.etcd_access import EtcdAccess
from sparrowmq.broker.failover.etcd_client import Etcd
from sparrowmq.broker.failover.group_state import GroupState, Leader, elected
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.failover.lease import Lease
from sparrowmq.broker.failover.own_epoch import OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.replication.ha_port import ABOVE
from sparrowmq.errors import ConfigError, EtcdFailed, LogsDiffer
from sparrowmq.loop.background import Background
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.settings.live_settings import with_live
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
_FRESH_LEASES: Final = (
    2  # for so many a member that was started, and has proved nothing since, lets others go first
)


class Found(NamedTuple):
    """What etcd has of these brokers; a version of 0 is that of a key that is not there."""

    leader: Leader | None = None
    leader_version: int = 0
    state: GroupState | None = None
    state_version: int = 0


class Member:
    """A broker while its context is entered; enter it, serve and leave it in one task.

    Args:
        settings: those of a master; `broker_id` is the member's own.
        file: of the settings, where changes to them are kept.
    Raises:
        ConfigError: the settings do not fit together.
    Raises on entering: what a Broker does.
    """

    def __init__(
        self, settings: BrokerSettings, clock: Clock | None = None, file: Path | None = None
    ) -> None:
        demand_member(settings)
        shipping = settings.ha_port or settings.port + ABOVE
        self.settings = replace(settings, ha_port=shipping)
        self.broker: Broker | None = None
        self._clock = clock or SystemClock()
        self._file = file
        self._etcd = Etcd(settings.etcd, self._clock, settings.lease_s / 4, EtcdAccess.by(settings))
        self._own = OwnEpoch.load(settings.config_path)
        self._keys = f"{settings.etcd_prefix}/{settings.cluster}/{settings.name}/"
        self._lease: Lease | None = None
        self._found = Found()
        self._followed: int | None = None  # the epoch, or None
        self._changed = asyncio.Event()
        self._is_deposed = False
        self._told = ""
        self._problem = ""  # why our store keeps us from leading, or following
        self._started = self._clock.monotonic()
        self._first_epoch: int | None = None  # that etcd had since the start
        self._was_out = False  # of sync, since the start
        self._is_proved = False  # to be in sync, since the start
        self._stack = AsyncExitStack()
        self._tasks = Background()

    @property
    def address(self) -> str:
        """What clients are told."""
        return self.settings.address(self.settings.port)

    @property
    def leads(self) -> bool:
        """Whether it is the master."""
        return self._lease is not None and self._lease.is_valid

    async def __aenter__(self) -> Member:
        await self._tasks.__aenter__()
        try:
            with suppress(EtcdFailed):
                await self._look()
            await self._follow()
        except BaseException as error:
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        self._note_acknowledged()
        try:
            suppressed = await self._stack.__aexit__(*error)  # type: ignore[arg-type]
        finally:
            if (
                self._lease is not None
            ):  # All that was acknowledged is at the others: one of them goes on at once.
                await self._lease.end()
            await self._tasks.__aexit__(None, None, None)
        return suppressed

    def reload(self, settings: BrokerSettings) -> None:
        """Take what can change of settings that were read anew, now and in the next role."""
        self.settings = with_live(self.settings, settings)
        if self.broker is not None:
            self.broker.reload(with_live(self.broker.settings, settings))

    async def serve(self) -> None:
        """Never return; cancelled when the broker fails, whose reason then leaves the context."""
        while True:
            self._changed.clear()
            try:
                await self._step()
                self._note("")
            except EtcdFailed as error:
                self._note(str(error))
            with suppress(TimeoutError):
                await self._clock.wait_for(self._changed.wait(), LOOK_S)

    async def _step(self) -> None:
        """Do what etcd says. Raises: EtcdFailed."""
        if self._lease is not None:
            if not self._lease.is_valid or self._is_deposed:
                await self._step_down()
            return
        await self._look()
        leader, state = self._found.leader, self._found.state
        if leader is None:
            if state is None or self._may_lead(state):
                await self._try_to_lead()
        elif leader.member == self.settings.broker_id:
            await self._end_earlier_life(leader)
        elif leader.epoch != self._followed:
            await self._follow()

    async def _look(self) -> None:
        """Raises: EtcdFailed."""
        kept = await self._etcd.below(self._keys)
        leader, state = kept.get(self._keys + "leader"), kept.get(self._keys + "state")
        try:
            self._found = Found(
                Leader.decode(leader.value) if leader else None,
                leader.version if leader else 0,
                GroupState.decode(state.value) if state else None,
                state.version if state else 0,
            )
        except msgspec.DecodeError as error:
            raise EtcdFailed(
                f"what etcd has below {self._keys} is not ours ({error}); set another etcdPrefix"
            ) from error

        self._note_proof(self._found.state)

    def _note_proof(self, state: GroupState | None) -> None:
        """A master that takes us in, after we were out or in an epoch of its own, has seen that nothing is missing."""
        if state is None:
            return
        if self._first_epoch is None:
            self._first_epoch = state.epoch
        if self.settings.broker_id not in state.in_sync:
            self._was_out = True
        elif self._was_out or state.epoch > self._first_epoch:
            self._is_proved = True

    @property
    def _is_fresh(self) -> bool:
        since_s = self._clock.monotonic() - self._started
        return not self._is_proved and since_s < _FRESH_LEASES * self.settings.lease_s

    async def _end_earlier_life(self, leader: Leader) -> None:
        """A process of ours that is gone had the lease. Raises: EtcdFailed, ConfigError."""
        if leader.store != self._own.store:
            raise ConfigError(
                f"brokerId = {leader.member} of {self.settings.name} is that of the broker at {leader.address}; each "
                "member needs another one"
            )
        key = self._keys + "leader"
        await self._etcd.change({key: self._found.leader_version}, {}, deletes=[key])
        self._changed.set()

    # To lead --------------------------------------------------------------------------------------------------------

    def _may_lead(self, state: GroupState) -> bool:
        """Whether we can be the next master; if only our store is in the way, that is told."""
        member = self.settings.broker_id
        assert self.broker is not None
        doubt = state.doubt(member, self._own, self.broker.store.end) if member in state.in_sync else None
        problem = f"not elected, though in sync: this is not the store that was ({doubt})" if doubt else ""
        if doubt is not None and problem != self._problem:
            log.critical(
                "not elected, though etcd has this member in sync in epoch %d: this is not the store that was (%s). "
                "Bring that one back, or another member that is in sync (in sync: %s). Only if they are lost for good: "
                "stop all members, delete %sstate in etcd, and start the one that has most, "
                "alone (docs/operate/failover.md)",
                *(state.epoch, doubt, ", ".join(map(str, state.in_sync)), self._keys),
            )
        self._problem = problem
        return doubt is None and state.may_lead(member, self._is_fresh)

    async def _try_to_lead(self) -> None:
        """Take the lease if nobody is faster. Raises: EtcdFailed, StoreFailed."""
        assert self.broker is not None
        settings, found, own = self.settings, self._found, self._own
        end = self.broker.stop_following()
        await _on_disk(self.broker.store, end)
        state = elected(found.state, settings.broker_id, own, end)
        leader = Leader(
            member=settings.broker_id,
            epoch=state.epoch,
            store=own.store,
            address=self.address,
            shipping=settings.ha_address(settings.ha_port or 0),
        )
        lease, keys = Lease(self._etcd, self._clock, settings.lease_s), self._keys
        await lease.begin()
        try:
            is_elected = await self._etcd.change(
                {keys + "leader": 0, keys + "state": found.state_version},
                {keys + "leader": leader.encode(), keys + "state": state.encode()},
                leased={keys + "leader": lease.number},
            )
            if is_elected:
                await self._look()
        except EtcdFailed:
            await lease.end()
            raise
        if not is_elected or self._found.leader != leader:
            await lease.end()
            return
        await self._lead(lease, state)

    async def _lead(self, lease: Lease, state: GroupState) -> None:
        settings = self.settings
        self._own.save(state.epoch, state.line)
        self._lease, self._is_deposed, self._followed, self._problem = lease, False, None, ""
        self._tasks.spawn(self._renew(lease, self._found.leader_version), "lease")
        log.warning("elected: the master of %s in epoch %d", settings.name, state.epoch)
        in_sync = InSync(
            settings.broker_id,
            state,
            self._commit,
            self._clock,
            settings.catch_up_ms / 1000,
            lambda: lease.is_valid,
        )
        term = Term(settings.broker_id, state.epoch, in_sync=in_sync, holds=lambda: lease.is_valid)
        await self._become(settings.role, 0, term)

    async def _renew(self, lease: Lease, version: int) -> None:
        """As long as etcd has the leader that it had in this version."""
        key = self._keys + "leader"

        async def leads() -> bool:
            kept = (await self._etcd.below(key)).get(key)
            return kept is not None and kept.version == version

        await lease.renew(leads)
        self._changed.set()

    async def _commit(self, wanted: GroupState) -> GroupState | None:
        """Have etcd know who is in sync; what it knows then, None if we are not the master. Raises: EtcdFailed."""
        keys, before = self._keys, self._found
        await self._etcd.change(
            {keys + "leader": before.leader_version, keys + "state": before.state_version},
            {keys + "state": wanted.encode()},
        )
        await self._look()  # whether it was done now, or by an attempt whose answer never came
        if self._found.leader_version != before.leader_version:
            self._is_deposed = True
            self._changed.set()
            return None
        return self._found.state

    async def _step_down(self) -> None:
        assert self._lease is not None
        log.error("not the master of %s any more", self.settings.name)
        self._note_acknowledged()
        lease, self._lease = self._lease, None
        await lease.end()
        self._found = Found()
        with suppress(EtcdFailed):
            await self._look()
        await self._follow()

    def _note_acknowledged(self) -> None:
        """Write down what the others have of the log, as the master that we were."""
        in_sync = (
            self.broker.term.in_sync if self.broker is not None and self.broker.term is not None else None
        )
        if in_sync is None or in_sync.replicated.value <= self._own.acknowledged:
            return
        try:
            self._own.save(self._own.epoch, self._own.line, in_sync.replicated.value)
        except OSError as error:
            log.warning("what was acknowledged cannot be written down: %s", error)

    # To follow ------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Be the slave of whoever leads; of nobody, if nobody does."""
        leader, state, own = self._found.leader, self._found.state, self._own
        self._problem = ""
        if leader is None or state is None or leader.member == self.settings.broker_id:
            self._followed = None
            await self._become_nobodys_slave()
            return
        epoch, line = leader.epoch, state.line
        log.info("following the master at %s in epoch %d", leader.address, epoch)

        def joined() -> None:
            if (own.epoch, own.line) != (epoch, line):
                own.save(epoch, line)

        self._followed = epoch
        cut_at = state.shared_end(own.epoch, own.line)
        if cut_at is not None and cut_at < own.acknowledged:
            log.critical(
                "the master at %s is not followed, and nothing is cut: it has the log up to offset %d in common with "
                "ours, and all that were in sync had it up to %d, so it has lost messages. If they matter, stop all "
                "members, delete %sstate in etcd, and start this one first, alone; if not, move the store of this one "
                "away and start it empty (docs/operate/failover.md)",
                *(leader.address, cut_at, own.acknowledged, self._keys),
            )
            self._problem = (
                f"the master at {leader.address} is not followed: it has lost messages that we have"
            )
            await self._become_nobodys_slave()
            return
        member = self.settings.broker_id
        term = Term(member, epoch, leader=leader, cut_at=cut_at, joined=joined, problem=self._obstacle)
        try:
            await self._become(BrokerRole.SLAVE, member, term)
        except LogsDiffer as error:
            log.critical("the master at %s is not followed: %s", leader.address, error)
            self._problem = f"the master at {leader.address} is not followed: {error}"
            await self._become_nobodys_slave()

    async def _become_nobodys_slave(self) -> None:
        member = self.settings.broker_id
        await self._become(BrokerRole.SLAVE, member, Term(member, self._own.epoch, problem=self._obstacle))

    def _obstacle(self) -> str:
        """What is in our way, for whoever asks."""
        if self._problem or not self._told:
            return self._problem
        return f"who is the master cannot be seen: {self._told}"

    async def _become(self, role: BrokerRole, broker_id: int, term: Term) -> None:
        """Stop the broker that there is, and start another one. Raises: as a Broker."""
        now = self.broker.settings_now if self.broker is not None else self.settings
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        broker = Broker(replace(now, role=role, broker_id=broker_id), self._clock, self._file, term)
        self.broker = await self._stack.enter_async_context(broker)

    def _note(self, problem: str) -> None:
        """Log what changed, once."""
        if problem and not self._told:
            log.warning("who is the master cannot be seen now, trying again and again: %s", problem)
        elif self._told and not problem:
            log.info("etcd answers again")
        self._told = problem


async def _on_disk(store: MessageStore, end: int) -> None:
    """Return once the log is on disk up to there: an epoch that begins there has it all after a power cut, too."""
    if store.flushed.value < end:
        store.flusher.kick()
        await store.flushed.reached(end)


def demand_member(settings: BrokerSettings) -> None:
    """See that the settings are those of a member. Raises: ConfigError."""
    settings.demand_etcd()
    if settings.broker_id == 0:
        raise ConfigError(
            "brokerId = 0 is that of whoever leads; with enableControllerMode=true give each broker of "
            f"{settings.name} another one, such as brokerId=1"
        )
    if settings.is_slave:
        raise ConfigError(
            "who is a slave is decided by etcd where enableControllerMode=true: set brokerRole to what this broker is "
            "to be as a master, SYNC_MASTER or ASYNC_MASTER"
        )
    if settings.ha_master is not None:
        raise ConfigError(
            "haMasterAddress and enableControllerMode exclude each other: leave haMasterAddress out"
        )
    if not settings.port or settings.ha_port == 0:
        raise ConfigError("enableControllerMode needs a listenPort and a haListenPort that stay the same")
