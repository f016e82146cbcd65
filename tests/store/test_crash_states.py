"""The store survives every crash that a disk can make of it; and each of its syncs is there for a reason."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.record import decode
from sparrowmq.store.log.flush import Flusher, _SyncOrder
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.recovery import Recovery
from sparrowmq.store.retention import Cleaning, Retention
from tests.store import crash_model
from tests.store.crash_model import (
    BURSTS,
    DROPS,
    FAILS,
    SETTINGS,
    STEPS,
    THREADS,
    WORKLOADS,
    Exploration,
    Model,
    Tally,
    sites_of,
)
from tests.store.crash_states import Disk, DiskState, Mutant, RecordVfs

MANY_STATES = 60_000
MANY_OF_A_FORM = 500
# What the store syncs, and whether it matters that it does so before its next effect.
SITES = {
    "checkpoint.py:save:sync": False,  # the next effect removes `abort`: a clean start copes with an older checkpoint
    "checkpoint.py:write:sync": True,
    "checkpoint.py:_sync_index:sync": True,
    "checkpoint.py:write:sync_folder": True,
    "log_file.py:create_next:sync": False,  # the two syncs of a new file can change places
    "log_file.py:create_next:sync_folder": False,
    "log_file.py:drop_first:sync_folder": True,
    "log_file.py:drop_last:sync_folder": True,
    "flush.py:_flush:sync": True,
    "message_store.py:_recover:sync_folder": False,  # a start looks behind the log's end, whatever `abort` says
    "message_store.py:open:sync_folder": False,  # no message is taken before the next sync
    "recovery.py:_run:sync": True,
}
# What recovery puts aside is for people: no message that was acknowledged is in it, so the model does not look there.
UNSEEN = {"set_aside.py:set_aside:sync", "set_aside.py:set_aside:sync_folder"}
# A process must have been killed between the making, or the going, of a log file and the sync of its name.
UNSEEN |= {"recovery.py:_run:sync_folder"}  # test_recovery.py shows what it is for
UNSEEN |= {"log_file.py:_begin_drop:sync_folder"}  # test_file_queue.py does
# Of two queue files that go the one before must be gone; but a hole is mended since a start compares queues.
UNSEEN |= {"consume_queue.py:forget_before:sync_folder"}  # test_consume_queue.py sees it done
# Of the checkpoint and the file of queue ends the older one counts, so to have either later costs a start time.
UNSEEN |= {
    "queue_ends.py:_append:sync",
    "vfs.py:replace:sync",
    "vfs.py:replace:sync_folder",
}
# A mark that is too high after quarantine makes a later start refuse; test_synced_mark.py sees it lowered.
UNSEEN |= {"flush.py:begin:sync"}
# Workloads (seed, steps, kind) that show a fault early which others show late.
Workload = tuple[int, int, dict[str, float]]
QUICK: dict[str, Workload] = {
    "checkpoint.py:write:sync_folder": (5, 6, STEPS),
    "flush.py:_flush:sync late": (3, 6, DROPS),
    "log_file.py:create_next:sync": (1, 6, BURSTS),
    "log_file.py:drop_last:sync_folder": (1, 6, DROPS),
    "log_file.py:drop_last:sync_folder late": (0, 12, DROPS),
    "recovery.py:_run:sync": (0, 6, STEPS),
    "recovery.py:_run:sync late": (1, 6, DROPS),
    "log_file.py:drop_first:sync_folder": (8, 25, STEPS),
    "message_store.py:_recover:sync_folder": (8, 8, BURSTS),
    "files go before queues are on disk": (1, 25, DROPS),
    "what a failed sync left is believed": (1, 20, FAILS),
    "the thread syncs the newest file of a burst only": (1, 25, THREADS),
    "what came while a sync was under way counts with it": (3, 25, THREADS),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each crash is a warning; ten thousand of them are not."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def hunt(mutant: Mutant | None, *first: Workload) -> Tally:
    """Explore workloads of all kinds, some first, until a violation is found or none was for long."""
    tally = Tally()
    others = [(seed, 25, weights) for seed in range(40) for weights in (BURSTS, STEPS, DROPS, FAILS)]
    for seed, steps, weights in [*first, *others]:
        if not tally.violations and tally.examined < MANY_STATES:
            Exploration(seed, steps, 8, tally, mutant, 3, weights).run()
    return tally


def quick(fault: str) -> list[Workload]:
    return [QUICK[fault]] if fault in QUICK else []


@pytest.mark.covers("S-STORE-08")
@pytest.mark.timeout(300)  # 20,000 recoveries are a minute of CPU, and there may be others on the machine
@pytest.mark.parametrize(
    ("wanted", "most_per_cut"),
    [
        (40, 1),
        pytest.param(500, 2, marks=pytest.mark.slow),
        pytest.param(20_000, 10, marks=pytest.mark.nightly),
    ],
)
def test_no_crash_loses_what_was_acknowledged(capsys, wanted, most_per_cut):
    tally = Tally()
    seed = 1000
    while len(tally.states) < wanted and not tally.violations:
        for steps, per_cut, weights in WORKLOADS:
            Exploration(seed, steps, min(per_cut, most_per_cut), tally, weights=weights).run()
        seed += 1
    with capsys.disabled():
        print(f"\n{len(tally.states)} crash states, {tally.examined} recoveries, {tally.kills} kills")
    assert tally.violations == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "module", "name", "value"),
    [
        pytest.param(
            (STEPS, DROPS),
            crash_model,
            "SETTINGS",
            replace(SETTINGS, commit_log_path="/other/log"),
            id="a log elsewhere",
        ),
    ],
)
def test_nor_does_one_of_a_store_of_another_form(monkeypatch, kinds, module, name, value):
    monkeypatch.setattr(module, name, value)
    tally = Tally()
    for seed in range(2000, 2010):
        for weights in kinds:
            if len(tally.states) < MANY_OF_A_FORM and not tally.violations:
                Exploration(seed, 25, 2, tally, weights=weights).run()
    assert tally.violations == [] and len(tally.states) >= MANY_OF_A_FORM


@pytest.mark.slow
def test_every_sync_of_the_store_is_on_the_list():
    assert sites_of(range(6), 30) == {*SITES, *UNSEEN}


# What is found out only after very many states.
LONG = {
    "checkpoint.py:save:sync",
    "checkpoint.py:write:sync",
    "checkpoint.py:write:sync late",
    "checkpoint.py:write:sync_folder late",
    "log_file.py:drop_first:sync_folder",
    "log_file.py:drop_first:sync_folder late",
}


def marked(site: str, kind: str = "") -> object:
    return pytest.param(site, marks=pytest.mark.nightly if site + kind in LONG else ())


@pytest.mark.slow
@pytest.mark.parametrize("site", [marked(site) for site in SITES])
def test_a_store_that_forgets_a_sync_is_found_out(site):
    tally = hunt(Mutant(site), *quick(site))
    assert tally.violations, f"{tally.examined} states did not show that {site} is needed"


@pytest.mark.parametrize("site", [marked(site, " late") for site, matters in SITES.items() if matters])
@pytest.mark.slow
def test_a_store_that_syncs_one_effect_too_late_is_found_out(site):
    tally = hunt(Mutant(site, late=True), *quick(f"{site} late"), *quick(site))
    assert tally.violations, f"{tally.examined} states did not show that {site} must come before the next effect"


def leave_tail(self: Recovery, end: int) -> None:
    while self.log.row.files and self.log.row.files[-1].begin > end:
        self.log.row.drop_last()


def believe_entries(self: ConsumeQueue, queue_offset: int) -> None:
    self.end.value = self.next_offset = queue_offset


def java_rule(self: LogReader, offset: int) -> tuple[memoryview | None, int, str | None]:
    """What Java checks: the body's CRC, and that the sizes add up."""
    try:
        record, following = self.parse(offset)
        is_in_place = record is None or decode(record).physical_offset == offset
    except SparrowError as error:
        return None, offset, str(error)
    return record, following, None if is_in_place else "not its place"


def too_young(self: Retention, now_ms: int, used: float, asked: Cleaning = Cleaning.NOTHING) -> int:
    """All files but the one that is written, whether queues know of them on disk or not."""
    return max(0, sum(file.begin <= self._log.end for file in self._log.row.files) - 1)


def newest_file(self: Flusher) -> None:
    """Order a sync of what was written, where that is more than one file of the last one alone."""
    end = self._log.written
    if end > self._ordered_end:
        self._orders.put(_SyncOrder(end, self._log.row.between(self._ordered_end, end)[-1:]))
        self._ordered_end = end


def all_that_is_written(self: Model, order: _SyncOrder) -> int:
    return self.store.written.value


def believe_pages(self: Recovery, scan_from: int, end: int) -> None:
    """Sync what can be read, as if that brought it to disk."""


LOGIC: dict[str, tuple[type, str, Callable[..., object]]] = {
    "the tail is not zeroed": (Recovery, "cut", leave_tail),
    "entries that a crash left are believed": (ConsumeQueue, "truncate", believe_entries),
    "a record without its CRC passes for one of Java": (LogReader, "examine", java_rule),
    "files go before queues are on disk": (Retention, "count_expired", too_young),
    "what a failed sync left is believed": (Recovery, "_write_again", believe_pages),
    "the thread syncs the newest file of a burst only": (Flusher, "kick", newest_file),
    "what came while a sync was under way counts with it": (Model, "synced", all_that_is_written),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", LOGIC)
def test_a_store_that_skips_a_step_is_found_out(fault, monkeypatch):
    monkeypatch.setattr(*LOGIC[fault])
    tally = hunt(None, *quick(fault))
    assert tally.violations, f"{tally.examined} states did not show that it matters when {fault}"


def test_a_disk_keeps_what_was_synced_and_perhaps_what_was_not():
    vfs = RecordVfs()
    vfs.make_folder("/a")
    file = vfs.create("/a/f", 1024, allocate=True)
    vfs.sync_folder("/")
    vfs.sync_folder("/a")
    vfs.sync(file)
    vfs.write(file, 500, b"x" * 24)
    disk = Disk(DiskState())
    for effect in vfs.effects:
        disk.apply(effect)
    found = {state.files["/a/f"] for state in disk.states(100, random.Random(0))}
    first, second = bytes(500) + b"x" * 12, b"x" * 12 + bytes(500)
    assert found == {first + second, first + bytes(512), bytes(512) + second, bytes(1024)}
