"""One run: a cluster, its clients and its faults, and at the end the comparison with what the clients saw."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.broker.broker_settings import SlaveAck
from tests.simulation.backups import Backups
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults
from tests.simulation.history import Fate, History
from tests.simulation.pace import DENSE, Pace
from tests.simulation.workload import Workload
from tests.simulation.world import World

VERIFY_S: Final = 240.0
REPAIR_S: Final = 180.0  # until a flipped bit is repaired, after the last fault
# Until a master leads, while most of the members in sync are healthy. A member whose election etcd did not answer lets
# others go first for 10 s.
ELECTION_S: Final = 12.0
_COLLECTED_S: Final = 30.0  # after that, what came later is read
_SLAVE_READS: Final = 4  # of so many seeds, all but one let readers ask slaves
_MEMBERS: Final = (3, 3, 3, 2, 1)  # by seed; a single one is a broker whose answers mean "on disk"
_START_S: Final = 20.0
_COLLECT_S: Final = 600.0


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        shown: messages that consumers got.
        changes: acknowledged changes of topics, groups and offsets.
        popped: messages whose acknowledgement was answered to a consumer that pops.
        later: acknowledged messages for later: delayed ones, and those of transactions and staged batches.
        failovers: the number of elections after the death of a leader's process.
        backups: the number of those that were made and compared.
        failed_backups: the number of those that could not be made.
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
    popped: int
    failed: int
    changes: int
    later: int
    elections: int
    failovers: int
    faults: dict[str, int]
    backups: int
    failed_backups: int
    recent: list[str] = field(repr=False, default_factory=list)


class Run:
    """A run with one seed.

    Args:
        minutes: simulated minutes with faults; None for those of the pace.
        fault_s: the mean time between two faults, likewise.
        kinds: the names of the faults; None for all.
    """

    def __init__(
        self,
        seed: int,
        minutes: float | None = None,
        *,
        fault_s: float | None = None,
        kinds: tuple[str, ...] | None = None,
        pace: Pace = DENSE,
    ) -> None:
        self.pace = pace
        self._minutes = minutes if minutes is not None else pace.minutes
        self.world = World(seed)
        members = _MEMBERS[seed % len(_MEMBERS)]
        slave_reads = seed % _SLAVE_READS > 0
        retention_h = pace.retention_h[seed // len(_MEMBERS) % len(pace.retention_h)]
        self.cluster = Cluster(
            self.world,
            members,
            slave_ack=SlaveAck.FLUSHED,
            slave_reads=slave_reads,
            retention_h=retention_h,
        )
        self.history = History(self.world.scheduler, shows_safe_only=members > 1, keeps_s=retention_h * 3600.0)
        self.workload = Workload(self.cluster, self.history, pace)
        self.backups = Backups(self.cluster, self.history)
        mean_s = fault_s if fault_s is not None else pace.fault_s
        self.faults = Faults(self.cluster, self.backups, mean_s, kinds, pace)
        self._healthy_since: dict[int, float] = {}
        self._led = 0.0

    def outcome(self) -> Outcome:
        """Run, and check."""
        began = time.process_time()
        with self.world.entered(), self.pace.entered():
            self._play()
            trace_hash, recent = self.world.scheduler.trace_hash, list(self.world.scheduler.recent)
        return self.ended(time.process_time() - began, trace_hash, recent)

    def ended(self, cpu_s: float, trace_hash: str = "", recent: Sequence[str] = ()) -> Outcome:
        """Return how the run has ended."""
        history, etcd, backups = self.history, self.cluster.etcd_state, self.backups
        return Outcome(
            seed=self.world.seed,
            simulated_s=self.world.scheduler.now,
            cpu_s=cpu_s,
            trace_hash=trace_hash,
            violations=history.violations,
            broken=dict(history.broken),
            acknowledged=len(history.acknowledged),
            shown=len(history.shown),
            popped=sum(history.pops.values()),
            failed=history.failed,
            changes=history.changes,
            later=sum(fate is Fate.ONCE for fate in history.later.values()),
            elections=etcd.elections,
            failovers=etcd.failovers,
            faults=self.faults.counts,
            backups=backups.done,
            failed_backups=backups.failed,
            recent=list(recent),
        )

    def _play(self) -> None:
        scheduler = self.world.scheduler
        self.cluster.start()
        self.workload.start()
        self._look()
        if self.pace.deletes:
            self.world.collect_regularly(lambda: self.cluster.etcd.process, _COLLECT_S)
        scheduler.run(_START_S)
        if self.workload.is_ready:
            self.faults.start()
            scheduler.run(_START_S + 60 * self._minutes)
            self.faults.end()
            self.workload.is_over = True
            scheduler.run(scheduler.now + self.pace.quiet_s - _COLLECTED_S)
            self.workload.collects = False
            scheduler.run(scheduler.now + _COLLECTED_S)
            self._await_repair()
            self._verify()
        else:
            self.history.violated("start", "the cluster did not start")
        for text in scheduler.unhandled:
            self.history.violated("not handled", text)

    def _await_repair(self) -> None:
        scheduler, until = self.world.scheduler, self.world.scheduler.now + REPAIR_S
        while self.cluster.rot is not None and scheduler.now < until:
            scheduler.run(scheduler.now + 1.0)
        if self.cluster.rot is not None:
            self.history.violated("not repaired", f"{self.cluster.rot.path} of member {self.cluster.rot.member}")

    def _verify(self) -> None:
        scheduler, until = self.world.scheduler, self.world.scheduler.now + VERIFY_S
        quiet_s = self.pace.quiet_s
        if not self.cluster.masters:
            self.history.violated("no master", f"no master {quiet_s:.0f} s after the last fault")
        if self.workload.running:
            self.history.violated(
                "client hangs", f"{self.workload.running} clients hang {quiet_s:.0f} s after the last fault"
            )
        self.cluster.client(self.workload.verify)
        while self.workload.found is None and scheduler.now < until:
            scheduler.run(scheduler.now + 1.0)
        if self.workload.found is None:
            self.history.violated("unreadable", "the messages cannot be read at the end")
        if not self.history.acknowledged:
            self.history.violated("nothing acknowledged", f"{self.history.failed} operations failed")
        self._compare_logs()

    def _compare_logs(self) -> None:
        """All members have the same log at the end."""
        ends = {number: member.broker.store.end for number, member in self.cluster.live.items() if member.broker}
        if len(set(ends.values())) != 1:
            self.history.violated("logs differ", f"the members' logs end at {ends}")
            return
        logs = [self.cluster.log_of(number) for number in self.cluster.members]
        # Each member deletes old files in its own time. All files from there on must be the same.
        begin = max(min(log, default="") for log in logs) if self.pace.deletes else ""
        kept = [{path: content for path, content in log.items() if path >= begin} for log in logs]
        if not kept[0] or any(each != kept[0] for each in kept):
            self.history.violated("logs differ", "the members' logs differ")

    def _look(self) -> None:
        """See from outside whether two members lead at once, or none though one could."""
        masters, now = self.cluster.masters, self.world.scheduler.now
        if len(masters) > 1 and now > self.cluster.etcd_state.overlaps_until:
            self.history.violated("two masters", f"{masters} lead at the same time")
        healthy = set(self.cluster.healthy())
        self._healthy_since = {member: self._healthy_since.get(member, now) for member in sorted(healthy)}
        steady = {member for member, since in self._healthy_since.items() if now - since > ELECTION_S}
        in_sync = self.cluster.in_sync()
        is_able = in_sync and 2 * len(in_sync & steady) > len(in_sync)
        if self.cluster.serving_master is not None or self.cluster.awaits_operator:
            self.history.outage_s = max(self.history.outage_s, now - self._led)
            self._led = now
        elif is_able and now - self._led > ELECTION_S:
            self._led = now
            text = f"of {sorted(in_sync)} in sync {sorted(steady)} are healthy for {ELECTION_S:.0f} s"
            self.history.violated("no election", text)
        self.world.scheduler.after(self.pace.look_s, self._look)


def outcome_of(
    seed: int, minutes: float | None, fault_s: float | None, kinds: tuple[str, ...] | None, pace: Pace
) -> Outcome:
    """Run a seed; an error of the simulation itself is reported as a violation."""
    run = Run(seed, minutes, fault_s=fault_s, kinds=kinds, pace=pace)
    try:
        return run.outcome()
    except Exception:
        run.history.violated("simulation", traceback.format_exc())
        return run.ended(0.0)
