"""The faults of a run, drawn from the seed: each begins at some time, and ends by itself.

processes   kill -9, power cut, pause, clean stop; at any moment, at any await, or in the middle of a call of the system
network     cut in one direction or both, split in two parts, slow, connections reset, connections that vanish
etcd        down, slow, answers that are lost, a lease that is lost, all data that is lost
disks       slow, full, read-only, a sync that fails, a disk that is replaced; a bit of a log or of a queue that flips
clocks      a wall clock jumps
backups     a member is backed up, and the copy restored, beside what else happens
crises      several faults that belong together (crises.py)

Each run draws its own kinds, and their mean distance: what many kinds hide together, some of them show. It also draws
how often a fault comes at a moment that etcd sees: an election, or a change of the members in sync.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation import rot
from tests.simulation.backups import Backups
from tests.simulation.cluster import Cluster
from tests.simulation.crises import Crises
from tests.simulation.etcd import Moment
from tests.simulation.pace import DENSE, Pace
from tests.simulation.world import Host

_MOST_CALLS: Final = 400  # of the system, until a process dies in one
_MOST_AWAITS: Final = 3000  # likewise
_AFTER_MOMENT_S: Final = (0.0, 0.001, 0.01, 0.1, 0.5)


class Faults:
    """Begins and ends faults.

    Args:
        mean_s: between two faults.
        kinds: the names of those to use, all equally often; None for those that the run draws.
    Attributes:
        counts: how many began, by name.
        crises: begins those that are several faults.
    """

    def __init__(
        self,
        cluster: Cluster,
        backups: Backups,
        mean_s: float,
        kinds: tuple[str, ...] | None = None,
        pace: Pace = DENSE,
    ) -> None:
        self._pace = pace
        self._cluster = cluster
        self._backups = backups
        self._scheduler = cluster.world.scheduler
        self._rng = self._scheduler.rng
        self._mean_s = mean_s
        self._eagerness = 0.0  # the share of moments that bring a fault
        self._at_moments = defaultdict[Moment, list[Callable[[int], object]]](list)
        self.crises = Crises(cluster, self)
        every: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "power": self._power,
            "die in a call": self._die_in_call,
            "die at an await": self._die_at_await,
            "double kill": self.crises.kill_twice,
            "crisis": self.crises.begin,
            "power of all": self._power_of_all,
            "pause": self._pause,
            "stop": self._stop,
            "cut": self._cut,
            "split": self._split,
            "isolate": self._isolate,
            "slow link": self._slow_link,
            "reset": self._reset,
            "vanish": self._vanish,
            "etcd down": self._etcd_down,
            "etcd loses": self._etcd_loses,
            "lost lease": self._lost_lease,
            "lost etcd": self.lose_etcd,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "read-only disk": self._read_only_disk,
            "failing sync": self._failing_sync,
            "rot": self._rot,
            "rot in a queue": self._rot_in_queue,
            "lost disk": self._lost_disk,
            "clock": self._clock,
            "backup": self._backup,
            "name server": self._namesrv,
        }
        self._every = every
        self._kinds = self._drawn() if kinds is None else {name: 1.0 for name in every if name in kinds}
        self._is_over = False
        self._ends: dict[int, Callable[[], object]] = {}
        self._number = 0
        self.counts = Counter[str]()
        cluster.etcd_state.on_moment = self._moment

    def _drawn(self) -> dict[str, float]:
        """Draw what is special about this run; return its kinds of faults, with their weights."""
        rng = self._rng
        self._mean_s *= rng.choice((0.7, 1.0, 2.0))
        self._eagerness = rng.choice((0.0, 0.05, 0.2))
        share = rng.choice((0.2, 0.6, 1.0))
        kinds = {name: 1.0 for name in self._every if rng.random() < share}
        return kinds | {"crisis": len(kinds) * rng.choice((0.1, 0.3, 1.0)) + 0.1}

    def start(self) -> None:
        """Begin a fault now and then."""
        self._scheduler.after(self._rng.expovariate(1 / self._mean_s), self._next)

    def end(self) -> None:
        """End all faults; none begins any more."""
        self._is_over = True
        self._at_moments.clear()
        for number in sorted(self._ends):
            self._ends.pop(number)()
        for host in self._cluster.members.values():
            if host.process is not None:
                host.process.dies_in = host.process.loop.dies_in = None

    def _next(self) -> None:
        if self._is_over:
            return
        self._begin()
        self.start()

    def _begin(self) -> None:
        (name,) = self._rng.choices(list(self._kinds), list(self._kinds.values()))
        self._scheduler.note(f"fault: {name}")
        self.counts[name] += 1
        self._every[name]()

    def after(self, delay_s: float, act: Callable[[], object]) -> None:
        """Do something in a while, unless the faults are over by then."""
        self._scheduler.after(delay_s, lambda: None if self._is_over else act())

    def at(self, moment: Moment, act: Callable[[int], object]) -> None:
        """Do something soon after the next moment of a kind; it gets the member."""
        self._at_moments[moment].append(act)

    def _moment(self, moment: Moment, member: int) -> None:
        if self._is_over:
            return
        for act in self._at_moments.pop(moment, ()):
            self.after(self._rng.choice(_AFTER_MOMENT_S), lambda act=act: act(member))  # type: ignore[misc]
        if self._eagerness and self._rng.random() < self._eagerness:
            self.after(self._rng.choice(_AFTER_MOMENT_S), self._begin)

    def later(self, least_s: float, most_s: float, end: Callable[[], object]) -> None:
        """End a fault some time from now, or with all others."""
        self._number += 1
        number = self._number
        self._ends[number] = end

        def over() -> None:
            if self._ends.pop(number, None) is not None:
                self._scheduler.note("fault ends")
                end()

        lasts_s = self._rng.uniform(least_s, most_s) * self._pace.length_of_fault(self._rng)
        self._scheduler.after(lasts_s, over)

    def _member(self) -> Host:
        """A member, and half of the time the master."""
        masters = self._cluster.masters
        if masters and self._rng.random() < 0.5:
            return self._cluster.members[masters[0]]
        return self._cluster.members[self._rng.choice(sorted(self._cluster.members))]

    def _hosts(self) -> list[Host]:
        return list(self._cluster.world.hosts.values())

    # Processes --------------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self.down(self._member(), power=False)

    def _power(self) -> None:
        self.down(self._member(), power=True)

    def down(self, host: Host, *, power: bool, stays_down: float = 0.5) -> None:
        """Kill, and with some probability keep it down for longer."""
        if self._rng.random() < stays_down and host not in self._cluster.keeps_down:
            self._cluster.keeps_down[host] = None
            self.later(1.0, 25.0, lambda: self._cluster.let_up(host))
        host.kill(power=power)

    def _die_in_call(self) -> None:
        process = self._member().process
        if process is not None and process.dies_in is None:
            process.dies_in = self._rng.randint(1, _MOST_CALLS)
            process.dies_by_power = self._rng.random() < 0.6

    def _die_at_await(self) -> None:
        process = self._member().process
        if process is not None and process.loop.dies_in is None:
            process.loop.dies_in = self._rng.randint(1, _MOST_AWAITS)
            process.dies_by_power = self._rng.random() < 0.6

    def _power_of_all(self) -> None:
        for host in self._cluster.members.values():
            host.kill(power=True)

    def _pause(self) -> None:
        self.pause(self._member())

    def pause(self, host: Host) -> None:
        """Let a process do nothing for a while."""
        process = host.process
        if process is not None:
            process.loop.is_paused = True
            self.later(0.2, 9.0, process.resume)

    def _stop(self) -> None:
        process = self._member().process
        if process is not None:
            process.stop()

    # The network ------------------------------------------------------------------------------------------------------

    def cut(self, one: Host, other: Host, *, both: bool, seconds: float) -> None:
        """Let nothing pass from one host to the other, or in neither direction."""
        network = self._cluster.world.network
        for source, target in ((one.ip, other.ip), (other.ip, one.ip))[: 2 if both else 1]:
            network.cut[source, target] = True
            self.later(seconds, seconds, lambda source=source, target=target: network.heal(source, target))  # type: ignore[misc]

    def _pair(self) -> tuple[Host, Host]:
        """A member, and half of the time another one, else any host."""
        one, members = self._member(), list(self._cluster.members.values())
        near: Sequence[Host] = members if len(members) > 1 and self._rng.random() < 0.5 else self._hosts()
        return one, self._rng.choice([host for host in near if host is not one])

    def _cut(self) -> None:
        one, other = self._pair()
        one, other = (one, other) if self._rng.random() < 0.5 else (other, one)
        self.cut(one, other, both=self._rng.random() < 0.5, seconds=self._rng.uniform(0.5, 25.0))

    def _split(self) -> None:
        """Let hosts on two sides not reach each other."""
        seconds, here = self._rng.uniform(0.5, 20.0), [self._rng.random() < 0.5 for _ in self._hosts()]
        sides = list(zip(self._hosts(), here, strict=True))
        for one in [host for host, is_here in sides if is_here]:
            for other in [host for host, is_here in sides if not is_here]:
                self.cut(one, other, both=True, seconds=seconds)

    def _isolate(self) -> None:
        one, seconds = self._member(), self._rng.uniform(0.5, 20.0)
        for other in self._hosts():
            if other is not one:
                self.cut(one, other, both=True, seconds=seconds)

    def _slow_link(self) -> None:
        one, other = self._pair()
        slow_s = self._rng.choice((0.01, 0.1, 0.5, 2.0))
        self.slow(one, other, slow_s)
        self.slow(other, one, slow_s)

    def slow(self, source: Host, target: Host, slow_s: float) -> None:
        """Let everything from a host take longer to another one."""
        slow, direction = self._cluster.world.network.slow_s, (source.ip, target.ip)
        slow[direction] = slow_s
        self.later(1.0, 15.0, lambda: slow.pop(direction, None))

    def _reset(self) -> None:
        ends = self._cluster.world.network.ends()
        for end in self._rng.sample(ends, min(len(ends), 4)):
            end.peer.reset()
            end.reset()

    def _vanish(self) -> None:
        ends = self._cluster.world.network.ends()
        for end in self._rng.sample(ends, min(len(ends), 4)):
            end.vanish()

    # Etcd -------------------------------------------------------------------------------------------------------------

    def _etcd_down(self) -> None:
        host = self._cluster.etcd
        if host not in self._cluster.keeps_down:
            self._cluster.keeps_down[host] = None
            self.later(0.5, 12.0, lambda: self._cluster.let_up(host))
            host.kill(power=False)

    def _etcd_loses(self) -> None:
        state = self._cluster.etcd_state
        state.loses, state.delays_s = self._rng.choice(((0.3, 0.0), (0.8, 0.0), (0.0, 0.8), (0.3, 2.0)))

        def end() -> None:
            state.loses = state.delays_s = 0.0

        self.later(1.0, 12.0, end)

    def _lost_lease(self) -> None:
        """Let etcd forget the master's lease, as an operator can revoke it."""
        self._cluster.etcd_state.lose_lease(self._scheduler.now)

    def lose_etcd(self) -> None:
        """Let etcd forget everything, if no store is empty: the operator decides which member goes on (operator.py)."""
        if not self._cluster.blank and self._cluster.in_sync():
            self._cluster.etcd_state.lose_all(self._scheduler.now)

    def _namesrv(self) -> None:
        self._rng.choice(self._cluster.namesrvs).kill(power=self._rng.random() < 0.5)

    # Disks and clocks -------------------------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        self.slow_disk(self._member())

    def slow_disk(self, host: Host) -> None:
        """Let each sync of a host take longer."""
        disk = host.disk
        disk.sync_s = self._rng.choice((0.01, 0.1, 0.5))
        self.later(1.0, 12.0, lambda: setattr(disk, "sync_s", 0.0005))

    def _full_disk(self) -> None:
        disk = self._member().disk
        disk.is_full = True
        self.later(1.0, 20.0, lambda: setattr(disk, "is_full", False))

    def _read_only_disk(self) -> None:
        disk = self._member().disk
        disk.is_read_only = True
        self.later(1.0, 20.0, lambda: setattr(disk, "is_read_only", False))

    def _failing_sync(self) -> None:
        self._member().disk.failing_syncs += self._rng.randint(1, 2)

    def _rot(self) -> None:
        """Flip a bit, unless an earlier one is not repaired."""
        cluster = self._cluster
        if cluster.rot is None:
            disks = {number: host.disk for number, host in cluster.members.items()}
            cluster.rotted(rot.flip(disks, self._rng.choice(sorted(disks)), self._rng))

    def _rot_in_queue(self) -> None:
        """Flip a bit of a queue, which can be built again from the log."""
        if (found := rot.flip_in_queue(self._member().disk, self._rng)) is not None:
            self._scheduler.note(f"a bit of {found} is wrong")

    def _lost_disk(self) -> None:
        """Replace the disk of a slave, if all members are healthy and have everything."""
        cluster = self._cluster
        slaves = [number for number in cluster.healthy() if number not in cluster.masters]
        is_whole = cluster.rot is None and cluster.in_sync() == set(cluster.members)
        if is_whole and len(slaves) == len(cluster.members) - 1 >= 2:
            cluster.replace_disk(self._rng.choice(slaves))

    def _backup(self) -> None:
        self._backups.begin(self._rng.choice(sorted(self._cluster.members)))

    def _clock(self) -> None:
        self._member().ahead_ms = self._rng.choice((-10_000, -1000, 0, 1000, 10_000))
