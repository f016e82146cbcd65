"""A master and its slaves that elect a new one, and lose it again and again under load, with a ledger of all answers.

Two brokers of one name, an etcd, a name server, producers that never stop, and a consumer that has to get all of it. A
round waits until both are in sync, lets some load pass, and takes the master away in one of three ways: killed and
started a little later, killed and started at once, or halted for longer than its lease and let go on. It is over when
both are in sync again.

    acked        SEND_OK: at the master and at the slaves in sync, which is what is promised
    maybe        answered with less, or not at all: may be there, or not
    gap          the longest time without any answer in a round
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sparrowmq import connect
from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.broker.failover.group_state import GroupState, Leader
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from tests.crash.ledger import Ledger
from tests.crash.rounds import TOPIC, pull_all
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd
from tests.interop.servers import OurBroker, OurNamesrv

NAME: Final = "broker-a"
QUEUES: Final = 4
WAYS: Final = ("killed", "killed", "restarted", "halted")
_LIMIT_S: Final = 60.0
_SENDERS: Final = 16


@dataclass(slots=True)
class Tally:
    """What all rounds came to."""

    rounds: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


class FailoverRig:
    """The brokers, and what is sent to them.

    Args:
        folder: for their stores.
        pause_s: between two sends of each of the producers.
        stack: ends the processes.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        stack: ExitStack,
        members: int = 2,
        *,
        pause_s: float = 0.0,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.ledger = Ledger()
        self.tally = Tally()
        self.answered_s: list[float] = []
        self.consumed: set[bytes] = set()
        self._folder = folder
        self._pause_s = pause_s
        self._random = random.Random(seed)
        self._stack = stack
        self.etcd = stack.enter_context(LiveEtcd())
        self.namesrv = stack.enter_context(OurNamesrv()).address
        self._ask = Etcd([self.etcd.endpoint], SystemClock(), 5.0)
        ports = free_ports(2 * members)
        self._ports = {number: (ports[2 * number - 2], ports[2 * number - 1]) for number in range(1, members + 1)}
        self.members: dict[int, OurBroker] = {}
        self._settings = {
            "brokerName": NAME,
            "brokerRole": "SYNC_MASTER",
            "enableControllerMode": "true",
            "etcdEndpoints": self.etcd.endpoint,
            "masterLeaseTime": 4,
            "mappedFileSizeCommitLog": 4 << 20,
            "defaultTopicQueueNums": QUEUES,
            "haHousekeepingInterval": 10_000,
            "haSendHeartbeatInterval": 1000,
            **settings,
        }

    @property
    def numbers(self) -> list[int]:
        """The ids of the members."""
        return sorted(self._ports)

    @property
    def _lease_s(self) -> int:
        return int(self._settings["masterLeaseTime"])

    def start(self, number: int) -> OurBroker:
        """Start a member, that was there before or not."""
        port, shipping = self._ports[number]
        settings = self._settings | {"brokerId": number, "haListenPort": shipping}
        broker = OurBroker(self.namesrv, self._folder / f"store-{number}", settings, port)
        self.members[number] = self._stack.enter_context(broker)
        return broker

    async def found(self) -> tuple[Leader | None, GroupState | None]:
        """What etcd has."""
        prefix = f"/sparrowmq/DefaultCluster/{NAME}/"
        kept = await self._ask.below(prefix)
        leader, state = kept.get(prefix + "leader"), kept.get(prefix + "state")
        return (
            Leader.decode(leader.value) if leader else None,
            GroupState.decode(state.value) if state else None,
        )

    async def master(self) -> str:
        """The address of the master, once there is one. Raises: TimeoutError."""
        return (await self.led_above(0)).address

    async def led_above(self, epoch: int) -> Leader:
        """The master of a later epoch, once there is one. Raises: TimeoutError."""
        deadline = time.monotonic() + _LIMIT_S
        while (leader := (await self.found())[0]) is None or leader.epoch <= epoch:
            if time.monotonic() > deadline:
                raise TimeoutError(f"there is no master after epoch {epoch}")
            await asyncio.sleep(0.05)
        return leader

    async def all_in_sync(self, above: int = 0) -> Leader:
        """The master, once each member is in sync with it, in an epoch above some number."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            leader, state = await self.found()
            are_all = state is not None and state.is_settled and set(state.in_sync) == set(self._ports)
            if leader and are_all and leader.epoch > above:
                return leader
            if time.monotonic() > deadline:
                raise TimeoutError(f"the members did not come to be in sync: {leader}, {state}")
            await asyncio.sleep(0.05)

    async def round(self, way: str | None = None) -> None:
        """One death, in one of the WAYS."""
        leader = await self.all_in_sync()
        await asyncio.sleep(self._random.uniform(0.3, 1.5))
        way, began = way or self._random.choice(WAYS), time.monotonic()
        await self.take_away(leader.member, way)
        await self.all_in_sync(above=leader.epoch)
        await self.answers_after(time.monotonic())
        self.tally.rounds += 1
        self.tally.ways[way] = self.tally.ways.get(way, 0) + 1
        self.tally.gaps_s.append(self._gap_s(began))

    async def double_death(self) -> float:
        """The master dies, and its successor just after its election; the seconds until the third member leads."""
        first = await self.all_in_sync()
        self.members[first.member].kill()
        second = await self.led_above(first.epoch)
        self.members[second.member].kill()
        began = time.monotonic()
        third = await self.led_above(second.epoch)
        took_s = time.monotonic() - began
        assert {first.member, second.member, third.member} == set(self._ports)
        for dead in (first, second):
            await asyncio.to_thread(self.start, dead.member)
        await self.all_in_sync(above=second.epoch)
        return took_s

    async def answers_after(self, moment: float) -> None:
        """Return once a send was answered after a moment."""
        deadline = time.monotonic() + _LIMIT_S
        while not self.answered_s or self.answered_s[-1] < moment:
            if time.monotonic() > deadline:
                raise TimeoutError("no send is answered any more")
            await asyncio.sleep(0.02)

    async def take_away(self, number: int, way: str) -> None:
        broker = self.members[number]
        if way == "halted":
            assert broker.process is not None
            broker.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self._lease_s * self._random.uniform(1.5, 2.5))
            broker.process.send_signal(signal.SIGCONT)
            return
        broker.kill()
        if way == "killed":
            await asyncio.sleep(self._lease_s * self._random.uniform(1, 2))
        await asyncio.to_thread(self.start, number)

    def _gap_s(self, began: float) -> float:
        times = [began, *(at for at in self.answered_s if at > began)]
        return max(later - earlier for earlier, later in pairwise(times))

    async def load(self) -> None:
        """Send until cancelled, each body once."""
        settings = ProducerSettings(retries=0)
        async with connect(self.namesrv, settings=settings) as mq, asyncio.TaskGroup() as senders:
            for number in range(_SENDERS):
                senders.create_task(self._send(mq, number))

    async def consume(self) -> None:
        """Take all messages as a group, until cancelled."""

        async def take(message: Any) -> None:
            self.consumed.add(bytes(message.body))

        async with connect(self.namesrv) as mq, mq.subscribe(TOPIC, take, group="looks"):
            await asyncio.get_running_loop().create_future()

    async def all_consumed(self) -> None:
        """Wait until what was acknowledged has come to the group; what has not after a minute never does."""
        wanted = {entry.body for entry in self.ledger.sent.values() if entry.offset is not None}
        deadline = time.monotonic() + _LIMIT_S
        while not wanted <= self.consumed and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.tally.violations += [f"lost: {body!r} came to no consumer" for body in wanted - self.consumed]

    async def _send(self, mq: Any, sender: int) -> None:
        number = 0
        while True:
            number += 1
            body = b"%d-%d-%s" % (sender, number, self._random.randbytes(8).hex().encode())
            entry = self.ledger.send(body, -1, time.monotonic_ns())
            try:
                sent = await mq.send(TOPIC, body)
            except SparrowError:
                await asyncio.sleep(0.05)
                continue
            self.answered_s.append(time.monotonic())
            entry.queue_id = sent.queue.queue_id
            if sent.status is SendStatus.OK:
                entry.returned_ns, entry.offset = time.monotonic_ns(), sent.offset
            if sent.status is SendStatus.OK and self._pause_s:
                await asyncio.sleep(self._pause_s)
            elif sent.status is not SendStatus.OK:
                await asyncio.sleep(0.01)  # or most of what is sent comes while there is one broker

    async def look(self, leader: Leader) -> None:
        """Compare all that the master shows with what was sent."""
        pool = Pool(SystemClock())
        try:
            session = await pool.session(leader.address)
            for queue_id in range(QUEUES):
                bodies = await pull_all(session, queue_id, 0)
                for body in bodies:
                    entry = self.ledger.sent.get(body)
                    if entry is not None and entry.queue_id < 0:
                        entry.queue_id = queue_id  # never answered, and there
                self.tally.violations += self.ledger.show(queue_id, 0, bodies)
        finally:
            pool.close()
        self.tally.violations += self.ledger.violations()

    def compare_logs(self) -> None:
        """Once all are stopped: a slave's log is its master's."""
        logs = {}
        for number in self._ports:
            files = sorted((self._folder / f"store-{number}" / "commitlog").glob("0*"))
            logs[number] = b"".join(file.read_bytes() for file in files).rstrip(b"\0")
        if len(set(logs.values())) != 1:
            self.tally.violations.append(f"differ: the logs have {[len(log) for log in logs.values()]} bytes")


async def die_and_check(rig: FailoverRig, ways: Sequence[str | None], say: Any = lambda _: None) -> None:
    """A death for each of the ways, None being any, and the look at the end."""
    for number in rig.numbers:
        await asyncio.to_thread(rig.start, number)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_ended, asyncio.ensure_future(rig.consume()))
        loading = asyncio.ensure_future(rig.load())
        stack.push_async_callback(_ended, loading)
        for number, way in enumerate(ways, 1):
            await rig.round(way)
            say(f"{number} deaths, {rig.ledger.acked} acknowledged, gap {rig.tally.gaps_s[-1]:.1f} s")
        await _ended(loading)
        await rig.all_consumed()
    leader = await rig.all_in_sync()
    await rig.look(leader)
    await asyncio.sleep(1)  # for the last bytes on their way to the slaves
    for broker in rig.members.values():
        broker.stop()
    rig.compare_logs()


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
