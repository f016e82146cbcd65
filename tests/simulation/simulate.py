"""One run: a cluster, its clients and its faults, and at the end the comparison with what the clients saw."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.broker.broker_settings import SlaveAck
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.workload import Workload
from tests.simulation.world import World

QUIET_S: Final = 40.0  # after the last fault, until all that was delayed has come
VERIFY_S: Final = 240.0
ELECTION_S: Final = 15.0  # until a master leads, if most of the members in sync are healthy
_LOOK_S: Final = 0.05
_MEMBERS: Final = (3, 3, 3, 2, 1)  # by seed; a single one is a broker whose answers mean "on disk"
_START_S: Final = 20.0


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        recent: the last events of the trace.
    """

    seed: int
    simulated_s: float
    cpu_s: float
    trace_hash: str
    violations: list[str]
    broken: dict[str, int]
    acknowledged: int
    shown: int
    failed: int
    elections: int
    faults: dict[str, int]
    recent: list[str] = field(repr=False, default_factory=list)


class Run:
    """A run with one seed.

    Args:
        minutes: simulated minutes with faults.
        fault_s: the mean time between two faults.
        kinds: the names of the faults; None for all.
    """

    def __init__(
        self, seed: int, minutes: float = 5.0, *, fault_s: float = 6.0, kinds: tuple[str, ...] | None = None
    ) -> None:
        self._minutes = minutes
        self.world = World(seed)
        self.cluster = Cluster(self.world, _MEMBERS[seed % len(_MEMBERS)], slave_ack=SlaveAck.FLUSHED)
        self.history = History(self.world.scheduler, shows_safe_only=len(self.cluster.members) > 1)
        self.workload = Workload(self.cluster, self.history)
        self.faults = Faults(self.cluster, fault_s, kinds)
        self._healthy_since: dict[int, float] = {}
        self._led = 0.0

    def outcome(self) -> Outcome:
        """Run, and check."""
        began = time.process_time()
        with self.world.entered():
            self._play()
            trace_hash, recent = self.world.scheduler.trace_hash, list(self.world.scheduler.recent)
        return Outcome(
            self.world.seed,
            self.world.scheduler.now,
            time.process_time() - began,
            trace_hash,
            self.history.violations,
            dict(self.history.broken),
            len(self.history.acknowledged),
            len(self.history.shown),
            self.history.failed,
            self.cluster.etcd_state.elections,
            self.faults.counts,
            recent,
        )

    def _play(self) -> None:
        scheduler = self.world.scheduler
        self.cluster.start()
        self.workload.start()
        self._look()
        scheduler.run(_START_S)
        if self.workload.is_ready:
            self.faults.start()
            scheduler.run(_START_S + 60 * self._minutes)
            self.faults.end()
            self.workload.is_over = True
            scheduler.run(scheduler.now + QUIET_S)
            self._verify()
        else:
            self.history.violated("start", "the cluster did not start")
        for text in scheduler.unhandled:
            self.history.violated("not handled", text)

    def _verify(self) -> None:
        scheduler, until = self.world.scheduler, self.world.scheduler.now + VERIFY_S
        if not self.cluster.masters:
            self.history.violated("no master", f"no master {QUIET_S:.0f} s after the last fault")
        if self.workload.running:
            self.history.violated(
                "client hangs", f"{self.workload.running} clients hang {QUIET_S:.0f} s after the last fault"
            )
        self.cluster.client(self.workload.verify)
        while self.workload.found is None and scheduler.now < until:
            scheduler.run(scheduler.now + 1.0)
        if self.workload.found is None:
            self.history.violated("unreadable", "the messages cannot be read at the end")
        self._compare_logs()

    def _compare_logs(self) -> None:
        """All members have the same log at the end."""
        ends = {
            number: member.broker.store.end for number, member in self.cluster.live.items() if member.broker
        }
        if len(set(ends.values())) != 1:
            self.history.violated("logs differ", f"the members' logs end at {ends}")
            return
        logs = {number: self.cluster.log_of(number) for number in self.cluster.members}
        if len(set(logs.values())) != 1:
            self.history.violated("logs differ", "the members' logs differ")

    def _look(self) -> None:
        """See from outside whether two members lead at once, or none though one could."""
        masters, now = self.cluster.masters, self.world.scheduler.now
        if len(masters) > 1:
            self.history.violated("two masters", f"{masters} lead at the same time")
        healthy = set(self.cluster.healthy())
        self._healthy_since = {member: self._healthy_since.get(member, now) for member in sorted(healthy)}
        steady = {member for member, since in self._healthy_since.items() if now - since > ELECTION_S}
        in_sync = self.cluster.in_sync()
        is_able = in_sync and 2 * len(in_sync & steady) > len(in_sync)
        if masters or not is_able:
            self._led = now
        elif now - self._led > ELECTION_S:
            self._led = now
            text = f"of {sorted(in_sync)} in sync {sorted(steady)} are healthy for {ELECTION_S:.0f} s"
            self.history.violated("no election", text)
        self.world.scheduler.after(_LOOK_S, self._look)
