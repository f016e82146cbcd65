"""The cluster that is simulated: members of one group, etcd, two name servers and clients, each on a host of its own.

A supervisor starts a server again some time after it died, as systemd does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings, SlaveAck
from sparrowmq.broker.member import Member
from sparrowmq.client.client import Client
from sparrowmq.client.cluster import network as client_network
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from tests.simulation.etcd import PORT as ETCD_PORT
from tests.simulation.etcd import EtcdState, FakeEtcd, Kept
from tests.simulation.files import ROOT
from tests.simulation.rot import Rot
from tests.simulation.world import Host, Process, SimClock, World, this_process

Program = Callable[[], Coroutine[Any, Any, Any]]
BROKER: Final = "broker-a"
_PORT: Final = 10911
_NAMESRV_PORT: Final = 9876
_EACH_HOUR: Final = ";".join(f"{hour:02d}" for hour in range(24))


class Cluster:
    """The servers of one run.

    Attributes:
        members: the hosts of the brokers, by brokerId.
        live: the running member of each brokerId, for the checker.
        restarts_s: the longest time until a dead server starts again.
        keeps_down: hosts that the supervisor leaves alone.
        incomplete: members with a new disk that the master has not yet left out of those in sync.
        blank: members with a new disk, until they are in sync again.
    """

    def __init__(
        self,
        world: World,
        members: int = 3,
        *,
        slave_ack: SlaveAck = SlaveAck.FLUSHED,
        slave_reads: bool = True,
        retention_h: int = 72,
    ) -> None:
        self.world = world
        self.members = {number: world.add(f"m{number}", f"10.0.0.{10 + number}") for number in range(1, members + 1)}
        self.namesrvs = [world.add(f"n{number}", f"10.0.0.{20 + number}") for number in (1, 2)]
        self.etcd = world.add("etcd", "10.0.0.31")
        self.etcd_state = EtcdState()
        self.live: dict[int, Member] = {}
        self.restarts_s = 3.0
        self.keeps_down: dict[Host, None] = {}
        self.incomplete: dict[int, None] = {}
        self.blank: dict[int, None] = dict.fromkeys(self.members)
        self._rot: Rot | None = None
        self._state: Kept | None = None
        self._in_sync: frozenset[int] = frozenset()
        self._slave_ack = slave_ack
        self._slave_reads = slave_reads
        self._retention_h = retention_h
        self._clients = 0
        self._programs: dict[Host, Program] = {}
        world.on_end = self._ended

    def start(self) -> None:
        """Start all servers."""
        self._serve(self.etcd, lambda: FakeEtcd(self.etcd, self.etcd_state).run())
        for host in self.namesrvs:
            self._serve(host, lambda host=host: self._run_namesrv(host))  # type: ignore[misc]
        for number, host in self.members.items():
            self._serve(host, lambda number=number: self._run_member(number))  # type: ignore[misc]

    def client(self, program: Program) -> Host:
        """Run a client's program on a host of its own."""
        self._clients += 1
        host = self.world.add(f"c{self._clients}", f"10.0.0.{50 + self._clients}")
        host.start(program)
        return host

    def connect(self, **arguments: Any) -> Client:
        """The client of the process that runs."""
        process = this_process(self.world)
        with patch.object(client_network, "local_ip", lambda _: process.host.ip):
            return Client(self._namesrv_text, clock=SimClock(process), **arguments)

    @property
    def masters(self) -> list[int]:
        """The members that act as masters now."""
        return [number for number, member in self.live.items() if self._runs(number) and member.leads]

    @property
    def serving_master(self) -> int | None:
        """The member that serves as the master, if exactly one leads."""
        masters = self.masters
        broker = self.live[masters[0]].broker if len(masters) == 1 else None
        return masters[0] if broker is not None and not broker.settings.is_slave else None

    def healthy(self) -> list[int]:
        """The members that run, with a good disk and network, while etcd answers."""
        network, state = self.world.network, self.etcd_state
        is_etcd_good = self.etcd.process is not None and not self.etcd.process.is_dead
        if not is_etcd_good or state.loses or state.delays_s:
            return []
        damaged = {self.rot.member} if self.rot is not None else set()
        damaged.update(self.incomplete)
        troubled = {host for pair in (*network.cut, *network.slow_s) for host in pair}
        return [
            number
            for number, host in self.members.items()
            if self._runs(number) and host.is_healthy and host.ip not in troubled and number not in damaged
        ]

    def rotted(self, rot: Rot | None) -> None:
        """A bit has flipped."""
        if rot is not None:
            self._rot = rot
            self.world.scheduler.note(f"m{rot.member}: byte {rot.at} of {rot.path} is wrong")

    @property
    def rot(self) -> Rot | None:
        """The bit that is wrong now, if there is one."""
        if self._rot is not None and not self._rot.is_there:
            self.world.scheduler.note(f"m{self._rot.member}: byte {self._rot.at} of {self._rot.path} is right again")
            self._rot = None
        return self._rot

    def in_sync(self) -> frozenset[int]:
        """The members in sync, as etcd has them."""
        for key, kept in self.etcd_state.keys.items():
            if key.endswith(b"/state"):
                if kept is not self._state:
                    self._state, self._in_sync = kept, frozenset(json.loads(kept.value)["in_sync"])
                    self.incomplete = {member: None for member in self.incomplete if member in self._in_sync}
                    filled = self._in_sync - self.incomplete.keys()
                    self.blank = {member: None for member in self.blank if member not in filled}
                return self._in_sync
        return frozenset()

    @property
    def awaits_operator(self) -> bool:
        """Whether only an operator can give the group a master: etcd knows no group, or one in sync has a new disk."""
        return self.etcd_state.lacks_state or bool(self.blank.keys() & self.in_sync())

    def replace_disk(self, number: int) -> None:
        """Let a member start again with an empty disk."""
        host = self.members[number]
        host.kill(power=True)
        host.disk.lose_all()
        self.incomplete[number] = self.blank[number] = None

    def log_of(self, number: int) -> dict[str, bytes]:
        """The files of a member's log, as its system shows them, without the unwritten rest."""
        folder = f"{ROOT}/store/commitlog/"
        found = {
            path: bytes(file.data).rstrip(b"\0")
            for path, file in self.members[number].disk.names.items()
            if path.startswith(folder) and file is not None
        }
        return {path: content for path, content in found.items() if content}

    def _runs(self, number: int) -> bool:
        process = self.members[number].process
        return process is not None and not process.is_dead

    @property
    def _namesrv_text(self) -> str:
        return ";".join(f"{host.ip}:{_NAMESRV_PORT}" for host in self.namesrvs)

    def _serve(self, host: Host, program: Program) -> None:
        self._programs[host] = program
        host.start(program)

    def _ended(self, process: Process) -> None:
        host = process.host
        if process in host.tools:
            return
        for number in self.members:
            if self.members[number] is host and number in self.live:
                # A member that was just elected may die before it knows.
                is_elected = number == self.etcd_state.leader and process.ended != "end"
                self.etcd_state.is_orphaned |= is_elected or self.live[number].leads
        if host in self._programs:
            delay_s = 0.2 + self.world.scheduler.rng.random() * self.restarts_s
            self.world.scheduler.after(delay_s, lambda: self._again(host))
        elif process.why:
            self.world.scheduler.unhandled.append(process.why)

    def _again(self, host: Host) -> None:
        if host.process is not None and host.process.is_dead and host not in self.keeps_down:
            host.start(self._programs[host])

    def let_up(self, host: Host) -> None:
        """Let the supervisor start a host again."""
        self.keeps_down.pop(host, None)
        self._again(host)

    async def _run_namesrv(self, host: Host) -> None:
        settings = NamesrvSettings(
            port=_NAMESRV_PORT, bind_address=host.ip, insecure=True, kv_path=Path(ROOT) / "kvConfig.json"
        )
        async with Namesrv(settings, SimClock(this_process(self.world))) as namesrv:
            await namesrv.serve()

    async def _run_member(self, number: int) -> None:
        async with Member(self.settings(number), SimClock(this_process(self.world))) as member:
            self.live[number] = member
            await member.serve()

    def settings(self, number: int) -> BrokerSettings:
        """The settings of a member."""
        return BrokerSettings(
            name=BROKER,
            cluster="c",
            namesrv=tuple(f"{host.ip}:{_NAMESRV_PORT}" for host in self.namesrvs),
            port=_PORT,
            ip=self.members[number].ip,
            fast_port=0,
            store_path=Path(ROOT) / "store",
            role=BrokerRole.SYNC_MASTER if len(self.members) > 1 else BrokerRole.ASYNC_MASTER,
            slave_ack=self._slave_ack,
            commit_log_file_bytes=256 << 10,
            consume_queue_file_bytes=20 * 500,
            index_slots=100,
            index_entries=400,
            topic_queues=4,
            auto_create_topic=False,  # a late send would make a topic again that was deleted
            insecure=True,
            busy_poll=False,
            broker_id=number,
            failover=True,
            etcd=(f"{self.etcd.ip}:{ETCD_PORT}",),
            slave_reads=self._slave_reads,
            disk_max_used_percent=95,
            retention_h=self._retention_h,
            delete_when=_EACH_HOUR if self._retention_h < 24 else "04",
            transaction_timeout_ms=2000,
            transaction_interval_ms=3000,
        )
