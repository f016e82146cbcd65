"""A member of a failover group: one of several brokers with the same name. The state in etcd decides its role.

                      there is no master, and we are in sync ── elected ──┐
    slave of the master ── cut to the common part, follow                  master, while the lease is valid
          ^                                                                │
          └────────────── another one leads, or the lease is not renewed ──┘

To change its role, a member stops its broker and starts another one, in this process, on this store, at the same port.
The change takes about half a second; clients see a connection that ended.

A member tries its port and its disk before it tries to become the master (failover/candidacy.py). If its start as the
master still fails, it gives up its lease at once and lets others go first.

    hand over    take no more messages ── all members in sync have the log ── etcd: no leader, and the successor

A slave looks at etcd twice a second; a master looks with each renewal of its lease. A master without etcd goes on until
its lease expires by its own clock, and then becomes a slave. Members that still reach etcd may have elected another
master by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from sparrowmq.broker.broker import Broker, MemberResources
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.candidacy import Candidacy, Reason
from sparrowmq.broker.failover.etcd import Etcd, EtcdAccess
from sparrowmq.broker.failover.group_keys import FOLDER, UNKNOWN, EtcdGroup, Lease, Presence, Present, read_group
from sparrowmq.broker.failover.group_state import (
    RECOVERING,
    GroupState,
    Leader,
    OwnEpoch,
    elected,
    new_line,
    with_successor,
)
from sparrowmq.broker.failover.handover import (
    HAND_OVER_S,
    RoomWatch,
    SlowWatch,
    check_begin,
    drain,
    next_master,
    refusal,
    wait_until_flushed,
)
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.replication.ha_master import PORTS_ABOVE, port_for_slaves
from sparrowmq.broker.replication.peer_repair import BEYOND_ALL_LOGS
from sparrowmq.broker.store import FreedSpace, opened_full, repair_from_peers
from sparrowmq.errors import ConfigError, DiskFull, EtcdFailed, LogsDiffer, RemoteError, SparrowError, StoreFailed
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.tasks import Background, Spawn
from sparrowmq.protocol.hosts import split_address
from sparrowmq.remoting.listener import is_loopback
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.settings.live_settings import with_live
from sparrowmq.store.log.set_aside import set_aside_ranges
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk

log = logging.getLogger(__name__)
POLL_S: Final = 0.5
_SUCCESSOR_POLL_S: Final = 0.1
RETRY_S: Final = 2.0  # between two attempts to start a broker, or two trials of the disk


class Member:
    """A member of a group, by a master's settings; entered, served and left in one task. Raises: ConfigError."""

    def __init__(self, settings: BrokerSettings, clock: Clock | None = None, file: Path | None = None) -> None:
        check_member_settings(settings)
        shipping_port = settings.ha_port or settings.port + PORTS_ABOVE
        self.settings = replace(settings, ha_port=shipping_port)
        self._clock = clock or SystemClock()
        access = EtcdAccess.of(settings)
        self._etcd = Etcd(settings.etcd, self._clock, settings.lease_s / 4, access)
        self._own_record = OwnEpoch.load(settings.config_path)
        self._keys = f"{settings.etcd_prefix}/{settings.cluster}/{settings.name}/"
        self._presence = Presence(self._etcd, f"{self._keys}{FOLDER}{settings.broker_id}", settings.lease_s)
        self._lease: Lease | None = None
        self._etcd_group = EtcdGroup()
        # The master that we follow. Its epoch does not identify it: a new line of epochs can reuse the number.
        self._followed_leader: Leader | None = None
        self._wake = asyncio.Event()
        self._is_deposed = False
        self._etcd_problem = ""
        self._problem = ""  # the reason why we do not lead, or do not follow
        self._candidacy = Candidacy(settings.broker_id, settings.name, settings.lease_s, self._own_record, self._clock)
        self._last_step_s = self._clock.monotonic()  # when `serve` last looked
        self._trial_failed_s: float | None = None  # when the last trial of the disk failed
        self._start_failed_s: float | None = None
        self._is_able_to_lead = False  # whether this member could lead in spite of the problem
        self._live_settings = self.settings  # the settings with the changes of operators
        self._is_handing_over = False
        self._awaits_successor = False
        self._has_served = False
        self._tasks = Background()
        self._space_watch = RoomWatch(self._clock, settings.lease_s)
        self._slow_watch = SlowWatch(self._clock, settings.lease_s)
        self._member_start = MemberStart(self._own_record, self._clock, file, self._look_for_peers, self._tasks.spawn)
        self._term = Term(
            *(settings.broker_id, 0),
            peers=self._look_for_peers,
            elect=self._elect,
            process_ms=self._clock.now_ms(),
            log_epoch=lambda: self._own_record.epoch,
            etcd_tls=access.tls,
        )

    @property
    def address(self) -> str:
        return self.settings.address(self.settings.port)

    @property
    def broker(self) -> Broker | None:
        return self._member_start.broker

    @property
    def leads(self) -> bool:
        return self._lease is not None and self._lease.is_valid

    @property
    def _in_sync(self) -> InSync | None:
        return self.broker.term.in_sync if self.broker is not None else None

    async def __aenter__(self) -> Member:
        await self._tasks.__aenter__()
        try:
            with suppress(EtcdFailed):
                await self._poll_etcd()
            await self._follow()
        except BaseException as error:
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
            raise
        self._tasks.spawn(self._publish_presence(), "presence")
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        if self.leads:
            with suppress(SparrowError):
                await self._hand_over(0, stays=False)
        self._note_acknowledged()
        try:
            suppressed = await self._member_start.end(*error)
        finally:
            if self._lease is not None:
                await self._lease.end()  # other members have all acknowledged messages: one can lead at once
            await self._presence.end()
            await self._tasks.__aexit__(None, None, None)
        return suppressed

    def reload(self, settings: BrokerSettings) -> None:
        self.settings = with_live(self.settings, settings)
        self._live_settings = with_live(self._live_settings, settings)
        if self.broker is not None:
            self.broker.reload(with_live(self.broker.settings, settings))

    async def serve(self) -> None:
        """Serve forever. If the broker fails, this call is cancelled, and the context raises the error."""
        while True:
            self._wake.clear()
            try:
                await self._change_role_if_needed()
                self._log_etcd("")
            except EtcdFailed as error:
                self._log_etcd(str(error))
            self._last_step_s = self._clock.monotonic()
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), POLL_S)

    async def _change_role_if_needed(self) -> None:
        """Raises: EtcdFailed."""
        if self._lease is not None:
            has_successor = (in_sync := self._in_sync) is not None and in_sync.has_successor
            if not self._lease.is_valid or self._is_deposed:
                await self._step_down()
            elif self.broker is not None and self._space_watch.is_short(self.broker.store, has_successor):
                with suppress(RemoteError):  # the member in sync has just gone
                    await self._hand_over(0, stays=True)
                    self._space_watch.note_leave()
            elif self.broker is not None and (problem := self._slow_watch.problem(self.broker.store)):
                await self._leave_slow_disk(problem)
            return
        await self._poll_etcd()
        leader = self._etcd_group.leader
        if self.broker is not None and self._member_start.has_space():
            await self._follow()
        elif leader is None:
            await self._try_to_lead()
        elif leader.member == self.settings.broker_id:
            await self._end_earlier_life(leader)
        elif leader != self._followed_leader and self._is_retry_due(self._start_failed_s):
            await self._follow()
        if self.broker is None and self._is_retry_due(self._start_failed_s):
            await self._become_lone_slave()

    async def _poll_etcd(self) -> None:
        values = await self._etcd.below(self._keys)
        self._etcd_group = read_group(values, self._keys, self.settings.broker_id)
        self._candidacy.note_group(self._etcd_group.leader, self._etcd_group.state)
        if self._candidacy.is_proved:
            self._member_start.note_doubt("")

    async def _end_earlier_life(self, leader: Leader) -> None:
        """Delete the leader key of an earlier process of this member. Raises: EtcdFailed, ConfigError."""
        if leader.store != self._own_record.store:
            raise ConfigError(
                f"the broker at {leader.address} has brokerId = {leader.member} in {self.settings.name}, too; each "
                "member needs its own"
            )
        key = self._keys + "leader"
        await self._etcd.change({key: self._etcd_group.leader_version}, {}, deletes=[key])
        self._wake.set()

    async def _try_to_lead(self) -> None:
        """Become the master if the rules allow it and no other member is faster. Raises: EtcdFailed, StoreFailed."""
        if self.broker is None or self._member_start.disk_full_reason:
            return
        group, store = self._etcd_group, self.broker.store
        reason = self._candidacy.reason(group.state, group.state_version, store.end, group.others)
        if reason is None:
            if not self._is_retry_due(self._trial_failed_s):
                return
            is_chosen = self._candidacy.is_chosen(group.state_version)
            reason = await self._candidacy.obstacle(store, port_for_slaves(self.settings), is_chosen=is_chosen)
            self._trial_failed_s = self._clock.monotonic() if reason is not None else None
        self._note_reason(reason)
        if reason is None:
            await self._campaign(self.broker)

    def _is_retry_due(self, failed_at: float | None) -> bool:
        return failed_at is None or self._clock.age(failed_at) >= RETRY_S

    def _note_reason(self, reason: Reason | None) -> None:
        problem_text = reason.text if reason is not None else ""
        if reason is not None and problem_text != self._problem:
            if reason.remedy:
                log.critical("%s. %s", problem_text, reason.remedy)
            else:
                log.warning("%s", problem_text)
        self._problem, self._is_able_to_lead = problem_text, reason is None or reason.is_able_to_lead

    async def _campaign(self, broker: Broker) -> None:
        """Ask etcd for the lead, and start as the master if we get it. Raises: EtcdFailed, StoreFailed."""
        settings, group, own_record = self.settings, self._etcd_group, self._own_record
        end = broker.stop_following()
        await wait_until_flushed(broker.store, end)
        if self._candidacy.is_chosen(group.state_version):
            state = new_line(settings.broker_id, own_record, end, group.state.epoch if group.state else 0)
        else:
            state = elected(group.state, settings.broker_id, own_record, end)
        leader = Leader(
            member=settings.broker_id,
            epoch=state.epoch,
            store=own_record.store,
            address=self.address,
            shipping=settings.ha_address(settings.ha_port or 0),
            tells_shown=True,
        )
        lease, keys = Lease(self._etcd, self._clock, settings.lease_s), self._keys
        try:
            await lease.begin()
            is_elected = await self._etcd.change(
                {keys + "leader": 0, keys + "state": group.state_version},
                {keys + "leader": leader.encode(), keys + "state": state.encode()},
                leased={keys + "leader": lease.number},
            )
            if is_elected:
                await self._poll_etcd()
        except EtcdFailed as error:
            await lease.end()
            self._candidacy.note_failed_start(str(error))
            raise
        if not is_elected or self._etcd_group.leader != leader:
            await lease.end()
            return
        try:
            await self._lead(lease, state, group.expected)
        except StoreFailed:
            await lease.end()
            raise
        except (SparrowError, OSError) as error:
            await self._give_up(lease, error)

    async def _lead(self, lease: Lease, state: GroupState, expected: frozenset[int]) -> None:
        settings = self.settings
        self._own_record.doubt = ""
        self._own_record.save(state.epoch, state.line)
        self._lease, self._is_deposed, self._followed_leader, self._problem = lease, False, None, ""
        self._tasks.spawn(self._renew(lease, self._etcd_group.leader_version), "lease")
        log.warning("elected: the master of %s in epoch %d", settings.name, state.epoch)
        in_sync = InSync(
            settings.broker_id,
            state,
            partial(self._commit, self._etcd_group.leader_version),
            self._clock,
            settings.catch_up_ms / 1000,
            lambda: lease.is_valid,
            expected,
        )
        term = replace(
            self._term,
            epoch=state.epoch,
            in_sync=in_sync,
            is_current=lambda: lease.is_valid,
            accepts_writes=lambda: lease.is_valid and not self._is_handing_over,
            hand_over=lambda member: self._hand_over(member, stays=True),
        )
        await self._start_broker_as(settings.role, 0, term)
        self._candidacy.note_lead()
        self._slow_watch.begin()

    async def _give_up(self, lease: Lease, error: Exception) -> None:
        log.critical(
            "elected in epoch %d, but this member cannot start as the master: %s. It gives up its lease; other members "
            "in sync go first",
            *(self._own_record.epoch, error),
        )
        self._lease = None
        await lease.end()
        self._candidacy.note_failed_start(str(error))
        self._etcd_group, self._followed_leader = EtcdGroup(), None

    async def _renew(self, lease: Lease, version: int) -> None:
        key = self._keys + "leader"

        async def leads() -> bool:
            values = (await self._etcd.below(key)).get(key)
            return values is not None and values.version == version

        await lease.renew(leads)
        self._wake.set()

    async def _commit(self, version: int, state: GroupState) -> GroupState | None:
        """Write the members in sync to etcd; return the new state, or None if the leader key has another `version`."""
        keys = self._keys
        await self._etcd.change(
            {keys + "leader": version, keys + "state": self._etcd_group.state_version}, {keys + "state": state.encode()}
        )
        await self._poll_etcd()  # the change was made now, or by an earlier attempt whose answer never came
        if self._etcd_group.leader_version != version:
            self._is_deposed = True
            self._wake.set()
            return None
        return self._etcd_group.state

    async def _step_down(self) -> None:
        assert self._lease is not None
        level = logging.WARNING if self._awaits_successor else logging.ERROR
        log.log(level, "this member is no longer the master of %s", self.settings.name)
        lease, self._lease = self._lease, None
        await lease.end()
        self._note_acknowledged()  # last, as a disk that hangs does not return
        self._etcd_group = EtcdGroup()
        with suppress(EtcdFailed):
            await self._poll_etcd()
            if self._awaits_successor:
                begin_s = self._clock.monotonic()
                while self._etcd_group.leader is None and self._clock.age(begin_s) < HAND_OVER_S:
                    await self._clock.sleep(_SUCCESSOR_POLL_S)
                    await self._poll_etcd()
        self._is_handing_over = self._awaits_successor = False
        await self._follow()

    def _note_acknowledged(self) -> None:
        """Save the offset up to which all members in sync had the log, at the end of our time as master."""
        in_sync = self._in_sync
        if in_sync is None or in_sync.replicated.value <= self._own_record.acknowledged:
            return
        try:
            self._own_record.save(self._own_record.epoch, self._own_record.line, in_sync.replicated.value)
        except OSError as error:
            log.warning("cannot save the acknowledged offset: %s", error)

    async def _hand_over(self, wanted_member: int, *, stays: bool) -> int:
        """Give the lead to a member in sync (0: any one) once all members in sync have the whole log. Return that
        member.

        Raises: RemoteError, we do not lead, or the others do not get the log in time; EtcdFailed, etcd may have handed
        it over.
        """
        broker, lease, in_sync = self.broker, self._lease, self._in_sync
        if broker is None or in_sync is None or lease is None or not lease.is_valid or self._is_handing_over:
            raise refusal("this member does not lead, or hands over the lead already")
        successor = next_master(in_sync, self.settings.broker_id, wanted_member)
        self._is_handing_over = True
        try:
            assert broker.journal is not None
            await drain(broker.store, broker.journal.write_changes, in_sync, self._clock)
            if self._lease is not lease:
                raise refusal("this member does not lead any more")
            keys, group = self._keys, self._etcd_group
            assert group.state is not None
            is_done = await self._etcd.change(
                {keys + "leader": group.leader_version, keys + "state": group.state_version},
                {keys + "state": with_successor(group.state, successor, stays).encode()},
                deletes=[keys + "leader"],
            )
            if not is_done:
                raise refusal("the members in sync have just changed; try again")
        except EtcdFailed:
            lease.deadline = 0.0  # etcd may have made the change
            raise
        except BaseException:
            broker.store.appender.continue_log()
            self._is_handing_over = False
            raise
        log.warning("the lead of %s is handed over to member %d", self.settings.name, successor)
        lease.deadline, self._awaits_successor = 0.0, stays
        self._wake.set()
        return successor

    async def _leave_slow_disk(self, problem: str) -> None:
        in_sync = self._in_sync
        if self._is_handing_over or in_sync is None or not in_sync.has_successor:
            return
        self._slow_watch.note_leave()
        log.critical("%s: handing over the lead to another member in sync", problem)
        try:
            await self._hand_over(0, stays=True)
        except (RemoteError, EtcdFailed) as error:
            log.warning("giving up the lead, because the hand-over failed: %s", error)
            self._candidacy.note_failed_start(problem)
            self._is_deposed = self._awaits_successor = True
            self._wake.set()

    async def _elect(self, is_forced: bool) -> None:
        """Begin a new line of epochs with this store, by an operator's decision. Raises: RemoteError, EtcdFailed."""
        if self._lease is not None:
            raise refusal("this member is the master")
        await self._poll_etcd()
        if (broker := self.broker) is None:
            raise refusal(self._member_start.problem or "this member is just starting; try again in a second")
        reason = await self._candidacy.obstacle(broker.store, port_for_slaves(self.settings), is_chosen=True)
        unfit = self._member_start.disk_full_reason or (reason.text if reason is not None else "")
        check_begin(self._etcd_group, self._own_record, broker.store.end, is_forced, unfit)
        log.warning("an operator has decided that this member begins a new line of epochs")
        self._candidacy.choose(self._etcd_group.state_version)
        self._wake.set()

    async def _follow(self) -> None:
        leader, state, own_record = self._etcd_group.leader, self._etcd_group.state, self._own_record
        self._problem, self._is_able_to_lead, self._followed_leader = "", False, None
        if leader is None or state is None or leader.member == self.settings.broker_id:
            await self._become_lone_slave()
            return
        epoch, line = leader.epoch, state.line
        if not self._member_start.problem:  # otherwise each attempt would say so, and hide the reason why it fails
            log.info("following the master at %s in epoch %d", leader.address, epoch)

        def on_joined() -> None:
            if (own_record.epoch, own_record.line) != (epoch, line):
                own_record.save(epoch, line)

        self._followed_leader = leader
        cut_at = state.shared_end(own_record.epoch, own_record.line)
        if cut_at is not None and cut_at < own_record.acknowledged:
            log.critical(
                "the master at %s has lost messages, so this member does not follow it, and cuts nothing off its log. "
                "Both logs are the same up to offset %d; all members in sync had the log up to %d. To keep the "
                "messages, stop all other members and run `sparrowmq cluster elect -b %s --member %d --force`. To "
                "give them up, move this member's store away and start it empty (docs/operate/failover.md)",
                *(leader.address, cut_at, own_record.acknowledged, self.settings.name, self.settings.broker_id),
            )
            self._problem = f"the master at {leader.address} is not followed: it has lost messages that we have"
            await self._become_lone_slave()
            return
        term = replace(
            self._term,
            epoch=epoch,
            leader=leader,
            cut_at=cut_at,
            is_shared=(own_record.epoch, own_record.line) == (epoch, line),
            on_joined=on_joined,
            problem=self._obstacle,
        )
        try:
            await self._become_slave(term)
        except LogsDiffer as error:
            log.critical("the master at %s is not followed: %s", leader.address, error)
            self._problem = f"the master at {leader.address} is not followed: {error}"
            await self._become_lone_slave()

    async def _become_lone_slave(self) -> None:
        await self._become_slave(replace(self._term, epoch=self._own_record.epoch, problem=self._obstacle))

    async def _become_slave(self, term: Term) -> None:
        """Start as a slave; a member that has served tries again later. Raises: LogsDiffer, StoreFailed."""
        try:
            await self._start_broker_as(BrokerRole.SLAVE, term.member, term)
            self._has_served, self._start_failed_s, self._member_start.problem = True, None, ""
        except (LogsDiffer, StoreFailed):
            raise
        except (SparrowError, OSError) as error:
            if not self._has_served:
                raise
            if str(error) != self._member_start.problem:
                log.critical("this member cannot start, trying again and again: %s", error)
            self._member_start.problem, self._followed_leader = str(error), None
            self._start_failed_s = self._clock.monotonic()

    def _obstacle(self) -> str:
        etcd_problem = self._etcd_problem and f"the master is unknown, as etcd fails: {self._etcd_problem}"
        return self._member_start.disk_full_reason or self._problem or etcd_problem

    async def _start_broker_as(self, role: BrokerRole, broker_id: int, term: Term) -> None:
        live_settings = self._live_settings = (
            self.broker.settings_now if self.broker is not None else self._live_settings
        )
        await self._member_start.begin(replace(live_settings, role=role, broker_id=broker_id), term)
        if live_settings is not self._live_settings and self.broker is not None:  # settings were reloaded meanwhile
            self.broker.reload(with_live(self.broker.settings, self._live_settings))

    async def _look_for_peers(self) -> list[str]:
        with suppress(EtcdFailed):
            values = await self._etcd.below(self._keys)
            others = read_group(values, self._keys, self.settings.broker_id).others
            self._etcd_group = self._etcd_group._replace(others=others)
        leader = self._etcd_group.leader
        addresses = [leader.address] if leader is not None and leader.member != self.settings.broker_id else []
        return list(dict.fromkeys(addresses + [member.address for member in self._etcd_group.others]))

    async def _publish_presence(self) -> None:
        while True:
            is_alive = self._clock.age(self._last_step_s) < self.settings.lease_s
            if is_alive and self.broker is not None:
                with suppress(EtcdFailed):
                    await self._presence.show(self._present(self.broker))
            await self._clock.sleep(self.settings.lease_s / 4)

    def _present(self, broker: Broker) -> Present:
        disk_full_reason = self._member_start.disk_full_reason  # on a full disk the end of the log is unknown
        end = broker.store.end if self._etcd_group.is_vacant and not disk_full_reason else UNKNOWN
        problem = disk_full_reason or ("" if self._is_able_to_lead else self._problem)
        is_proved = self._candidacy.is_proved
        return Present.of(self.settings.broker_id, self._own_record, self.address, end, problem, is_proved=is_proved)

    def _log_etcd(self, problem: str) -> None:
        if problem and not self._etcd_problem:
            log.warning("the master is unknown, as etcd fails; trying again and again: %s", problem)
        elif self._etcd_problem and not problem:
            log.info("etcd answers again")
        self._etcd_problem = problem


class MemberStart:
    """Starts the brokers of one member, one after the other, with the same `MemberResources`: so it stays registered.

    `problem` says why the member has no broker, and `disk_full_reason` why the last one could only start read-only.
    """

    def __init__(
        self,
        own_record: OwnEpoch,
        clock: Clock,
        file: Path | None,
        look_for_peers: Callable[[], Awaitable[Sequence[str]]],
        spawn: Spawn,
    ) -> None:
        self.broker: Broker | None = None
        self.problem = ""
        self.disk_full_reason = ""
        self._stack = AsyncExitStack()
        self._resources: MemberResources | None = None
        self._freed_space: FreedSpace | None = None
        self._own_record = own_record
        self._clock = clock
        self._file = file
        self._look_for_peers = look_for_peers
        self._spawn = spawn

    async def begin(self, settings: BrokerSettings, term: Term) -> None:
        """Stop the broker that runs, and start another; damaged records come from other members. Raises: as Broker."""
        await self._stop()
        try:
            resources = self._resources = self._resources or await self._open_resources(settings)
            self.broker = await self._start_broker(settings, term, resources)
        except BaseException:
            await self._disconnect()  # clients must not look for a broker here
            raise

    async def end(self, *error: object) -> bool | None:
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
        resources = MemberResources(settings, self._clock)
        await resources.open_metrics(self._spawn, lambda: self.problem or "the broker starts or stops")
        return resources

    async def _start_broker(self, settings: BrokerSettings, term: Term, resources: MemberResources) -> Broker:
        layout, was_interrupted = settings.store(settings.port).layout, self._own_record.doubt == RECOVERING
        may_change = settings.corrupt_policy is CorruptPolicy.QUARANTINE or Disk().exists(layout.abort)
        if may_change and not self._own_record.doubt:
            self.note_doubt(RECOVERING)
        if self._own_record.doubt and any(set_aside_ranges(Disk(), layout, "damaged")):
            # Other members may have what an earlier start fenced off.
            reason = await repair_from_peers(settings, self._clock, BEYOND_ALL_LOGS, peers=self._look_for_peers)
            if reason:
                log.info("the records that earlier starts fenced off are not repaired: %s", reason)
        broker = Broker(settings, self._clock, self._file, term, resources)
        broker = await self._stack.enter_async_context(broker)
        self.disk_full_reason = str(broker.store.flushed.error) if opened_full(broker.store) else ""
        self._freed_space = broker.freed_space
        doubt = broker.store.recovered.doubt
        if doubt or (self._own_record.doubt == RECOVERING and not was_interrupted and not self.disk_full_reason):
            self.note_doubt(doubt)
        return broker

    async def _disconnect(self) -> None:
        if self._resources is not None:
            await self._resources.disconnect()

    def has_space(self) -> bool:
        return self._freed_space is not None and self._freed_space.is_free()

    def note_doubt(self, doubt: str) -> None:
        try:
            self._own_record.note_doubt(doubt)
        except (OSError, DiskFull) as error:
            log.warning("cannot record that the store may be incomplete: %s", error)


def check_member_settings(settings: BrokerSettings) -> None:
    """Raises: ConfigError."""
    settings.check_etcd()
    if settings.broker_id == 0:
        raise ConfigError(
            "brokerId = 0 is the master's; with enableControllerMode=true give each broker of "
            f"{settings.name} another one, such as brokerId=1"
        )
    if settings.is_slave:
        raise ConfigError(
            "etcd decides which member is a slave (enableControllerMode=true): set brokerRole to the role as a master, "
            "SYNC_MASTER or ASYNC_MASTER"
        )
    if settings.ha_master is not None:
        raise ConfigError("haMasterAddress and enableControllerMode exclude each other: leave haMasterAddress out")
    if not settings.port or settings.ha_port == 0:
        raise ConfigError("enableControllerMode needs a listenPort and a haListenPort that stay the same")
    is_here = all(is_loopback(split_address(address)[0]) for address in settings.etcd)
    if settings.tls_mode is TlsMode.ENFORCING and not settings.etcd_tls and not is_here:
        raise ConfigError(
            "tls.server.mode=enforcing, but the connection to etcd is not encrypted: set etcd.tls.enable=true"
        )
