"""Two brokers, a name server, an etcd and clients on machines of their own, whose wires, clocks and processes fail.

Either a static pair (a SYNC_MASTER and its slave), or two brokers that elect their master in the etcd. An episode:

    all is well     both brokers in sync, both clients answered
    troubles        one or two, drawn by the seed, for up to two and a half leases
    a look          all that was acknowledged so far is in both logs, now, while it is broken
    healed          ... in 30 s at most: again in sync, both clients answered, both logs the same, byte by byte

    cut             a wire, or all of one machine, both ways or one way; nobody is told
    lossy, slow, late   the same wires lose packets, carry few bytes a second, or bring them later and out of order
    halted          a broker, the etcd, the name server or clients are stopped, and go on later
    clock           a broker's time of day jumps by seconds, an hour or a month, either way, and back
    unheard         a broker is cut off and killed, so that its peers' connections never end; it starts later

After the last episode all that was written down is looked at (history.py). Settings are those of the safest kind:
SEND_OK says that a message is on two disks.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from sparrowmq import connect
from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.broker.failover.group_state import GroupState
from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from tests.crash.history import Acked, Epoch, History
from tests.crash.rounds import TOPIC, pull_all
from tests.crash.skewed import Skew
from tests.crash.wires import CUT, Machine, Trouble, Wires
from tests.interop.child import Child, scratch
from tests.interop.etcd import LiveEtcd
from tests.interop.servers import REPOSITORY, OurBroker, OurNamesrv

NAME: Final = "broker-a"
QUEUES: Final = 4
LEASE_S: Final = 2
HEALED_S: Final = 30.0
SETTINGS: Final = {
    "brokerName": NAME,
    "insecure": "true",  # on wires of our own
    "flushDiskType": "SYNC_FLUSH",
    "slaveAck": "flushed",
    "slaveTimeout": 1000,
    "slaveReadEnable": "true",
    "haListenPort": 10912,
    "haHousekeepingInterval": 3000,
    "haSendHeartbeatInterval": 500,
    "mappedFileSizeCommitLog": 4 << 20,
    "defaultTopicQueueNums": QUEUES,
    "registerNameServerPeriod": 10_000,
}
_CLIENTS: Final = ("client-1", "client-2")
_SENDERS: Final = 4
_BROKERS: Final = ("a", "b")
_JUMPS_MS: Final = (5_000, 3_600_000, 30 * 86_400_000)


# A trouble that has begun: what it is, and how it ends.
Begun: TypeAlias = tuple[str, Callable[[], object]]
Plan: TypeAlias = Callable[["NetworkRig"], Begun]


@dataclass(slots=True)
class Tally:
    """What all episodes came to.

    Attributes:
        troubles: how often each kind was there.
        healed_s: how long after each episode all was well again.
    """

    episodes: int = 0
    troubles: Counter[str] = field(default_factory=Counter)
    healed_s: list[float] = field(default_factory=list)
    epochs: int = 0
    reads: int = 0
    violations: list[str] = field(default_factory=list)


class SkewedBroker(OurBroker):
    """A broker on a machine of its own, whose time of day can be wrong."""

    def __init__(self, machine: Machine, namesrv: str, store: Path, conf: Mapping[str, object], skew: Skew) -> None:
        own = {"brokerIP1": machine.address}
        super().__init__(namesrv, store, {**conf, **own}, 10911)
        self.address = f"{machine.address}:10911"
        self._machine = machine
        python, _, _, *arguments = self._command
        self._command = [python, "-m", "tests.crash.skewed", str(skew.file), *arguments]
        self._environment |= {"PYTHONPATH": str(REPOSITORY)}

    def __enter__(self) -> SkewedBroker:
        with self._machine.inside():
            return super().__enter__()


class Talking(Child):
    """The process of talker.py on a machine, and the events that it wrote down."""

    def __init__(self, machine: Machine, namesrv: str, file: Path, name: str, senders: int) -> None:
        command = [sys.executable, "-m", "tests.crash.talker", namesrv, str(file), name, str(senders)]
        super().__init__(scratch("talker"), command, PYTHONPATH=str(REPOSITORY))
        self._machine = machine
        self._events = file
        self._read = 0

    def __enter__(self) -> Talking:
        with self._machine.inside():
            return super().__enter__()

    def skip(self, before: Child) -> None:
        """Go on behind what was read of the one before, which wrote to the same file."""
        assert isinstance(before, Talking)
        self._read = before._read

    def events(self) -> list[list[Any]]:
        """Those that are new."""
        if not self._events.exists():
            return []
        with self._events.open("rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        return [msgspec.json.decode(line) for line in whole]


class NetworkRig:
    """The machines and what runs there.

    Args:
        folder: for stores and what clients wrote down.
        stack: ends all of it.
        is_elected: whether brokers elect their master; else it is "a".
    Attributes:
        master: who is it now, "a" or "b".
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        stack: ExitStack,
        *,
        is_elected: bool,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self.history, self.tally = History(), Tally()
        self._folder = folder
        self._random = random.Random(seed)
        self._stack = stack
        self._is_elected = is_elected
        self._settings = settings
        self._wires = stack.enter_context(Wires(seed))
        names = ["namesrv", *_BROKERS, *_CLIENTS, *(["etcd"] if is_elected else [])]
        self._machines = {name: self._wires.machine() for name in names}
        self._watch = self._wires.machine()  # where we are; its wires are always whole
        self._namesrv = f"{self._machines['namesrv'].address}:9876"
        self._children: dict[str, Child] = {}
        self._skews = {name: Skew(folder / f"skew-{name}") for name in _BROKERS}
        self._epochs: dict[int, Epoch] = {}
        self.master = "a"
        self._unseen: list[Acked] = []  # acknowledged, and not looked for in the logs yet
        self._compared = 0  # bytes of the logs that are known to be the same
        self._heard_ns: dict[str, int] = {}  # when each client sent what was acknowledged last
        self._endpoint = ""
        self._etcd: Etcd | None = None
        self._state: GroupState | None = None
        self._has_leader = False

    async def play(self, episodes: Sequence[Plan | None], say: Callable[[str], object] = lambda _: None) -> None:
        """These, None being what the dice say, until a promise is broken; then the last look at everything.

        Call it in a thread that nothing else uses.
        """
        with self._watch.inside():
            watching = asyncio.ensure_future(self._watch_epochs())
            try:
                await self._begin()
                for number, plan in enumerate(episodes, 1):
                    say(f"{number}: {await self._episode(plan)}")
                    if self.tally.violations:
                        return
                await self._end()
            finally:
                watching.cancel()
                self._undo_all()

    # The machines' programs -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        machines = self._machines
        with machines["namesrv"].inside():
            conf = {"bindAddress": machines["namesrv"].address, "insecure": "true"}
            self._children["namesrv"] = self._stack.enter_context(OurNamesrv(conf, 9876))
        if self._is_elected:
            with machines["etcd"].inside():
                etcd = self._stack.enter_context(LiveEtcd(machines["etcd"].address))
            self._children["etcd"] = etcd
            self._endpoint = etcd.endpoint
            self._etcd = Etcd([etcd.endpoint], SystemClock(), 1.0)
        for name in _BROKERS:
            await asyncio.to_thread(self._start, name)
        await self._well(time.monotonic() + HEALED_S, is_heard=False)
        async with connect(self._namesrv) as mq:
            await mq.admin.create_topic(TOPIC, queues=QUEUES)
        for name in _CLIENTS:
            self._children[name] = self._stack.enter_context(self._talking(name, _SENDERS))
        await self._well(time.monotonic() + HEALED_S)

    def _talking(self, name: str, senders: int) -> Talking:
        file = self._folder / f"{name}.events"
        return Talking(self._machines[name], self._namesrv, file, name, senders)

    def _start(self, name: str) -> None:
        """Start a broker, that was there before or not."""
        conf = SETTINGS | self._role(name) | dict(self._settings)
        machine, store = self._machines[name], self._folder / f"store-{name}"
        broker = SkewedBroker(machine, self._namesrv, store, conf, self._skews[name])
        self._children[name] = self._stack.enter_context(broker)

    def _role(self, name: str) -> dict[str, object]:
        if self._is_elected:
            return {
                "brokerRole": "SYNC_MASTER",
                "brokerId": _BROKERS.index(name) + 1,
                "enableControllerMode": "true",
                "etcdEndpoints": self._endpoint,
                "masterLeaseTime": LEASE_S,
            }
        if name == self.master:
            return {"brokerRole": "SYNC_MASTER", "brokerId": 0}
        return {"brokerRole": "SLAVE", "brokerId": 1, "haListenPort": "off"}

    async def _watch_epochs(self) -> None:
        """See who leads, for ever: etcd keeps where epochs began, and of whom the last one is."""
        prefix = f"/sparrowmq/DefaultCluster/{NAME}/"
        while self._is_elected:
            await asyncio.sleep(0.05)
            if self._etcd is None:
                continue
            with suppress(EtcdFailed):
                kept = await self._etcd.below(prefix)
                leader, state = kept.get(f"{prefix}leader"), kept.get(f"{prefix}state")
                self._has_leader = leader is not None
                if state is not None:
                    self._note(GroupState.decode(state.value))

    def _note(self, state: GroupState) -> None:
        self._state = state
        for number, begin in state.begins:
            self._epochs.setdefault(number, Epoch(number, begin, ""))
        self.master = _BROKERS[state.leader - 1]
        address = self._machines[self.master].address
        self._epochs[state.epoch] = Epoch(state.epoch, self._epochs[state.epoch].begin, address)

    # An episode -----------------------------------------------------------------------------------------------------

    async def _episode(self, plan: Plan | None) -> str:
        """One; what it was about."""
        await asyncio.sleep(self._random.uniform(0.1, 0.6))
        if plan is not None:
            troubles, hold_s = [plan(self)], 2.0 * LEASE_S
        else:
            troubles = [self._drawn() for _ in range(self._random.choice((1, 1, 1, 2, 2)))]
            hold_s = self._random.uniform(0.5, 2.5 * LEASE_S)
        await asyncio.sleep(hold_s)
        self._look_at_logs()
        began = time.monotonic()
        for _, undo in reversed(troubles):
            await asyncio.to_thread(undo)
        self._wires.heal()
        told = ", ".join(what for what, _ in troubles)
        try:
            await self._well(began + HEALED_S)
        except TimeoutError as error:
            self.tally.violations.append(f"unhealed: {told}: {error}")
        self.tally.episodes += 1
        self.tally.healed_s.append(time.monotonic() - began)
        return f"{told}; healed in {self.tally.healed_s[-1]:.1f} s, {self.history.ledger.acked} acknowledged"

    def _drawn(self) -> Begun:
        """Begin a trouble, as the dice fall."""
        draw = self._random.random()
        if draw < 0.5:
            return self._trouble_wires()
        if draw < 0.75:
            return self.halt(self._random.choice([*_BROKERS, self.master, *self._children]))
        if draw < 0.88:
            jump_ms = self._random.choice(_JUMPS_MS) * self._random.choice((-1, 1))
            return self.skew(self._random.choice(_BROKERS), jump_ms)
        return self.kill_unheard(self._random.choice(_BROKERS))

    def _trouble_wires(self) -> Begun:
        rng = self._random
        kinds = {
            "cut": CUT,
            "lossy": Trouble(lost=rng.choice((0.02, 0.1, 0.3))),
            "slow": Trouble(rate=rng.choice((5e3, 3e4, 2e5))),
            "late": Trouble(delay_s=rng.uniform(0.01, 0.8), jitter_s=rng.choice((0.0, 0.05))),
        }
        kind = rng.choice(["cut", "cut", *kinds])
        one = rng.choice((self.master, *_BROKERS, *self._machines))
        others = sorted(set(self._machines) - {one})
        far = rng.choice((others, [rng.choice(others)], *[[name] for name in _BROKERS if name != one]))
        return self.wires(kind, kinds[kind], one, far, rng.choice(("both ways", "both ways", "out", "in")))

    def wires(self, kind: str, trouble: Trouble, one: str, far: Sequence[str], way: str = "both ways") -> Begun:
        """Those between one machine and others; `way` may be "out" or "in", as the one sees it."""
        self.tally.troubles[kind] += 1
        for name in far:
            if way != "in":
                self._wires.trouble(self._machines[one], self._machines[name], trouble)
            if way != "out":
                self._wires.trouble(self._machines[name], self._machines[one], trouble)
        return f"{kind} {self._called(one)}-{'+'.join(map(self._called, far))} {way}", lambda: None

    def halt(self, name: str) -> Begun:
        """A process stops, and goes on later as if no time had passed."""
        self.tally.troubles["halted"] += 1
        pid = self._children[name].pid
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        def undo() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        return f"halted {self._called(name)}", undo

    def skew(self, name: str, jump_ms: int) -> Begun:
        """A broker's clock jumps, and back."""
        self.tally.troubles["clock"] += 1
        self._skews[name].set(jump_ms)
        return f"clock {self._called(name)} {jump_ms / 1000:+g} s", lambda: self._skews[name].set(0)

    def kill_unheard(self, name: str) -> Begun:
        """A broker is cut off and killed; nobody hears that its connections end."""
        self.tally.troubles["unheard"] += 1
        machine = self._machines[name]
        for other in self._machines.values():
            self._wires.between(machine, other, CUT)
        self._children[name].kill()

        def undo() -> None:
            self._wires.heal()
            process = self._children[name].process
            if process is not None and process.poll() is not None:
                self._start(name)

        return f"unheard {self._called(name)}", undo

    @property
    def slave(self) -> str:
        """The other one."""
        return _BROKERS[1 - _BROKERS.index(self.master)]

    def _called(self, name: str) -> str:
        """Its name, and what it is now."""
        return f"{name} (the master)" if name == self.master else name

    # What is looked at ----------------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        """Read what the clients have written down since."""
        for name in _CLIENTS:
            talking = self._children.get(name)
            for event in talking.events() if isinstance(talking, Talking) else ():
                known = len(self.history.acked)
                self.history.take(*event)
                for acked in self.history.acked[known:]:
                    self._unseen.append(acked)
                    self._heard_ns[name] = max(self._heard_ns.get(name, 0), acked.invoked_ns)

    def _look_at_logs(self) -> None:
        """See that what was acknowledged is in both logs: at any moment, however broken all is."""
        self._take_events()
        unseen, self._unseen = self._unseen, []
        for name in _BROKERS:
            self.tally.violations += self.history.not_in(self._log(name), name, unseen)

    def _log(self, name: str) -> bytes:
        files = sorted((self._folder / f"store-{name}" / "commitlog").glob("0*"))
        return b"".join(file.read_bytes() for file in files)

    async def _well(self, deadline: float, is_heard: bool = True) -> None:
        """Return when all is well. Raises: TimeoutError."""
        since_ns = time.monotonic_ns()
        while (problem := self._problem(since_ns if is_heard else 0)) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{problem}, {HEALED_S:g} s after all was whole again")
            await asyncio.sleep(0.05)
        self._look_at_logs()
        self._compare_logs()

    def _problem(self, since_ns: int) -> str | None:
        """Why not all is well yet."""
        if self._etcd is not None:
            if not self._has_leader:
                return "nobody leads"
            if self._state is None or len(self._state.in_sync) < len(_BROKERS):
                return f"not all are in sync: {self._state}"
        self._take_events()
        silent = [name for name in _CLIENTS if since_ns and self._heard_ns.get(name, 0) < since_ns]
        return f"{' and '.join(silent)} got nothing acknowledged" if silent else None

    def _compare_logs(self) -> None:
        """Up to what was acknowledged last both are the same."""
        end = max((each.place for each in self.history.acked), default=0)
        one, other = (self._log(name)[self._compared : end] for name in _BROKERS)
        if one != other:
            self.tally.violations.append(f"differ: the logs between {self._compared} and {end}")
        self._compared = end

    async def _end(self) -> None:
        """Look at everything."""
        for name in _CLIENTS:
            await asyncio.to_thread(self._children[name].stop)
        self._take_events()
        await self._all_read()
        self._compared = 0
        self._unseen = list(self.history.acked)
        self._look_at_logs()
        self._compare_logs()
        await self._show()
        self.tally.violations += self.history.violations(self._epochs)
        self.tally.epochs, self.tally.reads = len(self._epochs), len(self.history.reads)

    async def _all_read(self) -> None:
        """A consumer that begins where the group is gets what is left."""
        name = _CLIENTS[0]
        talking = self._talking(name, 0)
        talking.skip(self._children[name])
        self._children[name] = await asyncio.to_thread(self._stack.enter_context, talking)
        deadline = time.monotonic() + HEALED_S
        wanted = {each.body for each in self.history.acked}
        while time.monotonic() < deadline and not wanted <= {each[0] for each in self.history.reads}:
            await asyncio.sleep(0.2)
            self._take_events()
        await asyncio.to_thread(talking.stop)
        self._take_events()

    async def _show(self) -> None:
        """What the last master shows of all queues."""
        pool = Pool(SystemClock())
        try:
            session = await pool.session(f"{self._machines[self.master].address}:10911")
            for queue_id in range(QUEUES):
                self.tally.violations += self.history.show(queue_id, await pull_all(session, queue_id, 0))
        finally:
            pool.close()

    def _undo_all(self) -> None:
        """So that all can be stopped in order."""
        self._wires.heal()
        for child in self._children.values():
            process = child.process
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
