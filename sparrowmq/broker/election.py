"""A member of a group with failover: one of several brokers of the same name, master or slave as etcd says.

                      there is no master, and we are in sync ── elected ──┐
    slave of the master ── cut to the common part, follow                  master, while the lease is valid (lease.py)
          ^                                                                │
          └────────────── another one leads, or the lease is not renewed ──┘

To change its role, a member stops its broker and starts another one, in this process, on this store, at the same port.
So no part of a broker has to know how to change its role. The change takes about half a second; clients see a
connection that ended.

A slave looks at etcd twice a second; a master looks with each renewal of its lease. Without etcd no member is elected.
A master without etcd goes on until its lease expires by its own clock, and then becomes a slave. Members that still
reach etcd may have elected another master by then.
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
from sparrowmq.protocol.hosts import split_address
from sparrowmq.remoting.listen_address import is_loopback
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.settings.live_settings import with_live
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
_FRESH_LEASES: Final = (
    2  # the lease times for which a started member without a proof of being in sync lets others go first
)


class Found(NamedTuple):
    """The state of the group in etcd. A version of 0 means that the key does not exist."""

    leader: Leader | None = None
    leader_version: int = 0
    state: GroupState | None = None
    state_version: int = 0


class Member:
    """A member, which runs while its context is entered. Enter the context, serve and leave it in one task.

    Args:
        settings: those of a master; `broker_id` is the member's own.
        file: the settings file, where changes to the settings are saved.
    Raises:
        ConfigError: the settings exclude each other, or one is missing.
    Raises on entering: as a Broker.
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
        self._followed: int | None = None  # the epoch of the master that we follow, or None
        self._changed = asyncio.Event()
        self._is_deposed = False
        self._told = ""
        self._problem = ""  # the reason why our store keeps us from leading, or following
        self._started = self._clock.monotonic()
        self._first_epoch: int | None = None  # the first epoch that etcd had since the start
        self._was_out = False  # out of sync at some time since the start
        self._is_proved = False  # proved to be in sync since the start
        self._stack = AsyncExitStack()
        self._tasks = Background()

    @property
    def address(self) -> str:
        """The address for clients."""
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
            ):  # All acknowledged messages are at the other members: one of them can be elected at once.
                await self._lease.end()
            await self._tasks.__aexit__(None, None, None)
        return suppressed

    def reload(self, settings: BrokerSettings) -> None:
        """Apply the changeable settings of a settings file that was read again, now and in the next role."""
        self.settings = with_live(self.settings, settings)
        if self.broker is not None:
            self.broker.reload(with_live(self.broker.settings, settings))

    async def serve(self) -> None:
        """Serve forever. When the broker fails, this is cancelled, and the context raises the reason."""
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
        """Change the role if the state of etcd demands it. Raises: EtcdFailed."""
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
        """Read the state of the group from etcd. Raises: EtcdFailed."""
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
        """Note a proof that we are in sync: a master has taken us in, and so has checked that our log lacks nothing.

        That is so if we were out of sync before, or if the epoch is newer than the first one since the start.
        """
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
        """Delete the leader's key that an earlier process of this member left. Raises: EtcdFailed, ConfigError."""
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
        """Whether we can be the next master. If only our store prevents it, log the reason."""
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
        """Become the master if no other member is faster. Raises: EtcdFailed, StoreFailed."""
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
        """Renew the lease as long as etcd has the leader of this version."""
        key = self._keys + "leader"

        async def leads() -> bool:
            kept = (await self._etcd.below(key)).get(key)
            return kept is not None and kept.version == version

        await lease.renew(leads)
        self._changed.set()

    async def _commit(self, wanted: GroupState) -> GroupState | None:
        """Write the members in sync to etcd.

        Returns:
            The state that etcd has then; None if we are not the master.
        Raises:
            EtcdFailed
        """
        keys, before = self._keys, self._found
        await self._etcd.change(
            {keys + "leader": before.leader_version, keys + "state": before.state_version},
            {keys + "state": wanted.encode()},
        )
        await self._look()  # the change was made now, or by an earlier attempt whose answer never came
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
        """Save the offset up to which all members in sync had the log, at the end of our time as master."""
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
        """Become the slave of the master; a slave without a master if there is none."""
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
        """The problem that prevents us from leading or following, for `brokerStatus`; "" if there is none."""
        if self._problem or not self._told:
            return self._problem
        return f"who is the master cannot be seen: {self._told}"

    async def _become(self, role: BrokerRole, broker_id: int, term: Term) -> None:
        """Stop the present broker, and start another one. Raises: as a Broker."""
        now = self.broker.settings_now if self.broker is not None else self.settings
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        broker = Broker(replace(now, role=role, broker_id=broker_id), self._clock, self._file, term)
        self.broker = await self._stack.enter_async_context(broker)

    def _note(self, problem: str) -> None:
        """Log each change between a reachable etcd and a problem once."""
        if problem and not self._told:
            log.warning("who is the master cannot be seen now, trying again and again: %s", problem)
        elif self._told and not problem:
            log.info("etcd answers again")
        self._told = problem


async def _on_disk(store: MessageStore, end: int) -> None:
    """Return when the log is on disk up to `end`. So an epoch that begins there survives a power cut."""
    if store.flushed.value < end:
        store.flusher.kick()
        await store.flushed.reached(end)


def demand_member(settings: BrokerSettings) -> None:
    """Check that the settings are those of a member. Raises: ConfigError."""
    settings.demand_etcd()
    if settings.broker_id == 0:
        raise ConfigError(
            "brokerId = 0 is the master's; with enableControllerMode=true give each broker of "
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
    is_here = all(is_loopback(split_address(address)[0]) for address in settings.etcd)
    if settings.tls_mode is TlsMode.ENFORCING and not settings.etcd_tls and not is_here:
        raise ConfigError(
            "tls.server.mode=enforcing, and etcd, which decides who is the master, is asked in the clear: set "
            "etcd.tls.enable=true"
        )
