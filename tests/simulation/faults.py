"""The faults of a run, drawn from the seed: each begins at some time, and ends by itself.

processes   kill -9, power cut, pause, clean stop; at any moment, at any await, or in the middle of a call of the system
network     cut in one direction or both, slow, connections reset, connections that vanish
etcd        down, slow, answers that are lost, a lease that is lost
disks       slow, full, read-only, a sync that fails, a disk that is replaced; a bit of a log or of a queue that flips
clocks      a wall clock jumps
backups     a member is backed up, and the copy restored, beside what else happens
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation import rot
from tests.simulation.backups import Backups
from tests.simulation.cluster import Cluster
from tests.simulation.world import Host

_MOST_CALLS: Final = 400  # of the system, until a process dies in one
_MOST_AWAITS: Final = 3000  # likewise


class Faults:
    """Begins and ends faults.

    Args:
        mean_s: between two faults.
        kinds: the names of those to use; None for all.
    Attributes:
        counts: how many began, by name.
    """

    def __init__(
        self, cluster: Cluster, backups: Backups, mean_s: float, kinds: tuple[str, ...] | None = None
    ) -> None:
        self._cluster = cluster
        self._backups = backups
        self._scheduler = cluster.world.scheduler
        self._rng = self._scheduler.rng
        self._mean_s = mean_s
        every: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "power": self._power,
            "die in a call": self._die_in_call,
            "die at an await": self._die_at_await,
            "double kill": self._double_kill,
            "power of all": self._power_of_all,
            "pause": self._pause,
            "stop": self._stop,
            "cut": self._cut,
            "isolate": self._isolate,
            "slow link": self._slow_link,
            "reset": self._reset,
            "vanish": self._vanish,
            "etcd down": self._etcd_down,
            "etcd loses": self._etcd_loses,
            "lost lease": self._lost_lease,
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
        self._kinds = [(name, every[name]) for name in every if kinds is None or name in kinds]
        self._is_over = False
        self._ends: dict[int, Callable[[], object]] = {}
        self._number = 0
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        """Begin a fault now and then."""
        self._scheduler.after(self._rng.expovariate(1 / self._mean_s), self._next)

    def end(self) -> None:
        """End all faults; none begins any more."""
        self._is_over = True
        for number in sorted(self._ends):
            self._ends.pop(number)()
        for host in self._cluster.members.values():
            if host.process is not None:
                host.process.dies_in = host.process.loop.dies_in = None

    def _next(self) -> None:
        if self._is_over:
            return
        name, begin = self._kinds[self._rng.randrange(len(self._kinds))]
        self._scheduler.note(f"fault: {name}")
        self.counts[name] = self.counts.get(name, 0) + 1
        begin()
        self.start()

    def _later(self, least_s: float, most_s: float, end: Callable[[], object]) -> None:
        """End a fault some time from now, or with all others."""
        self._number += 1
        number = self._number
        self._ends[number] = end

        def over() -> None:
            if self._ends.pop(number, None) is not None:
                self._scheduler.note("fault ends")
                end()

        self._scheduler.after(self._rng.uniform(least_s, most_s), over)

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
        self._down(self._member(), power=False)

    def _power(self) -> None:
        self._down(self._member(), power=True)

    def _down(self, host: Host, *, power: bool) -> None:
        """Kill, and half of the time keep it down for longer."""
        if self._rng.random() < 0.5 and host not in self._cluster.keeps_down:
            self._cluster.keeps_down[host] = None
            self._later(1.0, 25.0, lambda: self._cluster.let_up(host))
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

    def _double_kill(self) -> None:
        self._down(self._member(), power=False)
        delay_s = self._rng.choice((0.01, 0.5, 3.0, 5.0, 8.0))
        self._scheduler.after(
            delay_s, lambda: None if self._is_over else self._down(self._member(), power=False)
        )

    def _power_of_all(self) -> None:
        for host in self._cluster.members.values():
            host.kill(power=True)

    def _pause(self) -> None:
        process = self._member().process
        if process is not None:
            process.loop.is_paused = True
            self._later(0.2, 9.0, process.resume)

    def _stop(self) -> None:
        process = self._member().process
        if process is not None:
            process.stop()

    # The network ------------------------------------------------------------------------------------------------------

    def _cut_between(self, one: Host, other: Host, *, both: bool, seconds: float) -> None:
        network = self._cluster.world.network
        for source, target in ((one.ip, other.ip), (other.ip, one.ip))[: 2 if both else 1]:
            network.cut[source, target] = True
            self._later(seconds, seconds, lambda source=source, target=target: network.heal(source, target))  # type: ignore[misc]

    def _cut(self) -> None:
        one = self._member()
        other = self._rng.choice([host for host in self._hosts() if host is not one])
        one, other = (one, other) if self._rng.random() < 0.5 else (other, one)
        self._cut_between(one, other, both=self._rng.random() < 0.5, seconds=self._rng.uniform(0.5, 25.0))

    def _isolate(self) -> None:
        one, seconds = self._member(), self._rng.uniform(0.5, 20.0)
        for other in self._hosts():
            if other is not one:
                self._cut_between(one, other, both=True, seconds=seconds)

    def _slow_link(self) -> None:
        network, one = self._cluster.world.network, self._member()
        other = self._rng.choice([host for host in self._hosts() if host is not one])
        slow_s = self._rng.choice((0.01, 0.1, 0.5, 2.0))
        for direction in ((one.ip, other.ip), (other.ip, one.ip)):
            network.slow_s[direction] = slow_s
            self._later(1.0, 15.0, lambda direction=direction: network.slow_s.pop(direction, None))  # type: ignore[misc]

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
            self._later(0.5, 12.0, lambda: self._cluster.let_up(host))
            host.kill(power=False)

    def _etcd_loses(self) -> None:
        state = self._cluster.etcd_state
        state.loses, state.delays_s = self._rng.choice(((0.3, 0.0), (0.8, 0.0), (0.0, 0.8), (0.3, 2.0)))

        def end() -> None:
            state.loses = state.delays_s = 0.0

        self._later(1.0, 12.0, end)

    def _lost_lease(self) -> None:
        """Let etcd forget the master's lease, as an operator can revoke it."""
        self._cluster.etcd_state.lose_lease(self._scheduler.now)

    def _namesrv(self) -> None:
        self._rng.choice(self._cluster.namesrvs).kill(power=self._rng.random() < 0.5)

    # Disks and clocks -------------------------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        disk = self._member().disk
        disk.sync_s = self._rng.choice((0.01, 0.1, 0.5))
        self._later(1.0, 12.0, lambda: setattr(disk, "sync_s", 0.0005))

    def _full_disk(self) -> None:
        disk = self._member().disk
        disk.is_full = True
        self._later(1.0, 20.0, lambda: setattr(disk, "is_full", False))

    def _read_only_disk(self) -> None:
        disk = self._member().disk
        disk.is_read_only = True
        self._later(1.0, 20.0, lambda: setattr(disk, "is_read_only", False))

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
            number = self._rng.choice(slaves)
            host = cluster.members[number]
            host.kill(power=True)
            host.disk.lose_all()
            cluster.incomplete[number] = None

    def _backup(self) -> None:
        self._backups.begin(self._rng.choice(sorted(self._cluster.members)))

    def _clock(self) -> None:
        self._member().ahead_ms = self._rng.choice((-10_000, -1000, 0, 1000, 10_000))
