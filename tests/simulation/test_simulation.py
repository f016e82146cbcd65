"""The simulation itself, and short runs of it. `./run simulate` has longer ones."""

import asyncio
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.simulation.disk import SECTOR, SimDisk
from tests.simulation.history import ORDERS, Fate, History
from tests.simulation.network import Network, Transport
from tests.simulation.pace import CALM
from tests.simulation.rot import LOG, flip
from tests.simulation.schedule import Scheduler
from tests.simulation.simulate import Run

ROOT = "/simdisk"
_AT_REST = 1e6  # seconds between two faults: none begins


@pytest.mark.slow
def test_run_without_faults_keeps_every_promise():
    run = Run(1, 0.2, fault_s=_AT_REST)
    found = run.outcome()
    assert found.violations == []
    assert found.acknowledged > 50
    assert found.changes > 10
    assert found.popped > 10
    assert len(run.history.handled) > 50
    assert run.history.sorted_ends.total() > 50
    not_shown = {place for place in run.history.acknowledged if place[0] == ORDERS} - run.history.shown.keys()
    assert len(not_shown) < 3, "the last ones may come when the consumer has ended"
    assert not [line for line in found.recent if " WARNING the chore " in line]


@pytest.mark.slow
def test_same_seed_gives_the_same_trace_in_each_process_compiled_or_not():
    program = "from tests.simulation.simulate import Run; print(Run(3, 0.3, fault_s=4.0).outcome().trace_hash)"
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hashes, "SPARROWMQ_KERNEL": form},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for hashes, form in (("0", "plain"), ("177", ""))
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].strip()) == 16


@pytest.mark.slow
def test_runs_side_by_side_print_what_runs_in_turn_print():
    command = [sys.executable, "-m", "tests.simulation", "--runs", "2", "--length", "0.1", "--jobs"]
    printed = [subprocess.run([*command, jobs], stdout=subprocess.PIPE, text=True, check=True).stdout for jobs in "12"]
    traces = [re.findall("seed .* trace (.*)", text) for text in printed]
    assert traces[0] == traces[1]
    assert len(set(traces[0])) == 2


@pytest.mark.slow
def test_backup_beside_a_busy_broker_has_all_that_was_acknowledged_before():
    found = Run(7, 1.0, fault_s=3.0, kinds=("backup",)).outcome()
    assert found.violations == []
    assert found.backups > 5
    assert found.failed_backups == 0


@pytest.mark.slow
def test_flipped_bits_are_repaired_from_another_member():
    found = Run(5, 1.0, fault_s=5.0, kinds=("rot",)).outcome()
    assert found.violations == []
    assert found.faults["rot"] > 1


@pytest.mark.slow
def test_clients_and_brokers_replace_connections_that_have_vanished():
    found = Run(2002, 1.5, fault_s=2.0, kinds=("vanish",)).outcome()
    assert found.violations == []
    assert found.faults["vanish"] > 20


@pytest.mark.slow
def test_an_operator_brings_a_group_back_after_etcd_has_lost_its_data():
    run = Run(16, 2.0, fault_s=8.0, kinds=("crisis", "lost etcd"))
    assert run.outcome().violations == []
    assert run.workload.operator.elections > 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_calm_run_deletes_old_messages_and_keeps_every_promise():
    pace = replace(CALM, minutes=70.0, quiet_s=1500.0, delays=("10s", "1m", "20m"), retention_h=(1,))
    run = Run(3, pace=pace)
    found = run.outcome()
    assert found.violations == []
    assert min(run.history.begins[ORDERS, queue] for queue in range(4)) > 0
    assert found.later > 20


@pytest.mark.slow
def test_a_double_kill_ends_the_master_and_then_the_one_that_is_elected():
    run = Run(7, 1.0, fault_s=10.0, kinds=("double kill",))
    found = run.outcome()
    assert found.violations == []
    assert found.failovers >= 2 * run.faults.crises.dead_successors > 2


@pytest.mark.slow
def test_staged_batches_are_published_once_whatever_happens():
    found = Run(5, 1.0, fault_s=4.0, kinds=("kill", "reset", "die in a call")).outcome()
    assert found.violations == []
    assert found.failovers > 0


@pytest.mark.parametrize("seed", [14, pytest.param(11, marks=pytest.mark.slow)])
def test_run_with_faults_keeps_every_promise(seed):
    found = Run(seed, 0.4, fault_s=3.0).outcome()
    assert found.broken == {}, found.violations
    assert found.elections > 0


# The network ------------------------------------------------------------------------------------------------------


class Loop:
    """As much of a process's loop as a connection needs."""

    is_dead = False

    def call_soon(self, function, *args):
        function(*args)


class Told(asyncio.Protocol):
    """Keeps what a connection passes to its protocol."""

    def __init__(self):
        self.received = b""
        self.lost = []

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.lost.append(type(exc))


def test_what_is_sent_after_a_power_cut_is_answered_with_a_reset_though_pieces_were_lost():
    scheduler, told = Scheduler(1), Told()
    network = Network(scheduler, lambda ip: True)
    near = Transport(network, cast(Any, Loop()), ("client", 1), ("broker", 2))
    far = Transport(network, cast(Any, Loop()), ("broker", 2), ("client", 1))
    near.peer, far.peer = far, near
    near.begin(told)
    far.write(b"in time ")
    network.slow_s["broker", "client"] = 1.0
    far.write(b"late")
    far.is_lost = True
    network.power_cuts["broker"] += 1
    network.slow_s.clear()
    scheduler.run(5.0)
    assert (told.received, told.lost) == (b"in time ", [])
    near.write(b"are you there?")
    scheduler.run(10.0)
    assert (told.received, told.lost) == (b"in time ", [ConnectionResetError])


# The disk ---------------------------------------------------------------------------------------------------------


def test_synced_bytes_and_names_survive_each_power_cut():
    for seed in range(50):
        disk = SimDisk(ROOT)
        kept = disk.create(f"{ROOT}/kept")
        kept.write(0, b"a" * 2 * SECTOR)
        kept.sync()
        disk.sync_folder(ROOT)
        kept.write(0, b"b" * SECTOR)
        disk.cut_power(random.Random(seed))
        assert disk.names[f"{ROOT}/kept"] is kept
        assert kept.data[SECTOR:] == b"a" * SECTOR
        assert kept.data[:SECTOR] in (b"a" * SECTOR, b"b" * SECTOR)


def test_power_cut_may_lose_and_may_keep_what_was_not_synced():
    found = set()
    for seed in range(50):
        disk = SimDisk(ROOT)
        disk.create(f"{ROOT}/new").write(0, b"x" * SECTOR)
        disk.cut_power(random.Random(seed))
        inode = disk.names.get(f"{ROOT}/new")
        found.add(None if inode is None else bytes(inode.data))
    assert found >= {None, b"", b"x" * SECTOR}


def test_sync_after_a_failed_one_does_not_bring_back_the_bytes():
    lost = 0
    for seed in range(20):
        disk = SimDisk(ROOT)
        file = disk.create(f"{ROOT}/file")
        file.write(0, b"a" * SECTOR)
        file.sync()
        disk.sync_folder(ROOT)
        file.write(0, b"b" * SECTOR)
        file.fail_sync()
        file.sync()
        assert file.data == b"b" * SECTOR, "the system shows what it has not written"
        disk.cut_power(random.Random(seed))
        lost += file.data == b"a" * SECTOR
    assert lost == 20


def test_bits_flip_only_where_another_member_has_the_same_bytes_on_disk():
    disks = {number: SimDisk(ROOT) for number in (1, 2)}
    files = [disk.create(f"{LOG}0") for disk in disks.values()]
    for file in files:
        file.write(0, bytes(range(1, 251)) * 200)
    rng = random.Random(1)
    assert flip(disks, 1, rng) is None, "nothing is on disk"
    for file in files:
        file.sync()
    rot = flip(disks, 1, rng)
    assert rot is not None
    assert rot.is_there
    ours, theirs = (file.data for file in files)
    assert [at for at in range(len(ours)) if ours[at] != theirs[at]] == [rot.at]
    ours[rot.at] = theirs[rot.at]
    assert not rot.is_there
    ours[:] = bytes(len(ours))
    assert flip(disks, 1, rng) is None, "the other member has other bytes"


# The history ------------------------------------------------------------------------------------------------------


def test_history_finds_each_broken_promise():
    history = History(Scheduler(1))
    history.stored("orders", 0, 0, "s1-1")
    history.stored("orders", 0, 1, "s1-2")
    history.stored("orders", 0, 0, "s2-1")
    history.saw("orders", 0, 1, "s2-9", 2)
    history.poppable["p1-1"] = None
    history.popped("p1-2")
    history.pop_settled("p1-2")
    history.popped("p1-2")
    history.check_pops()
    history.sorted(0, 1)
    history.check_handled()
    history.later = {"d1-1": Fate.ONCE, "d1-2": Fate.ONCE, "d1-3": Fate.NEVER}
    history.topics, history.groups = {"t1": {2}}, {"g1": {True}}
    history.offsets = {("readers", 0): {7}}
    history.check_log({("orders", 0, 0): "s1-2", ("orders", 0, 1): "s1-1", ("orders", 0, 2): "s1-1"})
    history.check_later({"d1-1": 2, "d1-3": 1})  # type: ignore[arg-type]
    history.batches = [["w1-1", "w1-2"], ["w1-3"]]
    history.check_batches({("staged", 0, 0): "w1-3", ("staged", 0, 1): "w1-1"})
    history.check_state({"t1": 1}, set(), {})
    assert set(history.broken) == {
        "offset given twice",
        "shown, then changed",
        "read again",
        "overtaken",
        "never handled",
        "popped again",
        "never popped",
        "acknowledged message lost",
        "shown message lost",
        "stored twice",
        "order",
        "delivered twice",
        "never delivered",
        "rolled back and delivered",
        "batch in part",
        "order of batches",
        "topic changed",
        "group changed",
        "offset changed",
    }
