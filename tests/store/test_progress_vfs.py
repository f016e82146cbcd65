"""Who watches work on a store is told how far it came: from nothing to all, and not beyond."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

from sparrowmq.store.care import backup as backups
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.progress import ReadDisk, WrittenDisk, used_bytes
from sparrowmq.store.care.repair import repair
from sparrowmq.store.care.restore import restore
from sparrowmq.store.vfs import Disk
from tests.store.stores import Stores, put


class Told:
    """Everything that was told, in its order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []

    def __call__(self, step: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        self.calls.append((step, done, total))

    @property
    def steps(self) -> list[str]:
        return [step for step, _ in groupby(self.calls, lambda call: call[0])]

    def shares(self, step: str) -> list[float]:
        return [done / total for each, done, total in self.calls if each == step]


def fill(stores: Stores, count: int = 60) -> None:
    store = stores.open()
    for number in range(count):
        put(store, b"x" * 100, queue_id=number % 2, key=f"k{number}")
        store.publish()
    store.close()


def test_a_check_goes_through_the_log_the_queues_and_the_index(stores: Stores):
    fill(stores)
    told = Told()
    assert list(verify(stores.settings, Disk(), told)) == []
    assert told.steps == ["checking the log", "checking queues", "checking the index"]
    for step in told.steps:
        shares = told.shares(step)
        assert shares == sorted(shares) and shares[0] < 0.05 and shares[-1] > 0.9


def test_a_copy_is_told_by_what_is_written_of_it(stores: Stores, tmp_path: Path):
    fill(stores)
    told = Told()
    backup(stores.settings, tmp_path / "copy", WrittenDisk(backups.sources(stores.settings.layout), told))
    assert told.steps == ["copying"] and told.calls[-1][1:] == (told.calls[-1][2],) * 2
    assert told.shares("copying") == sorted(told.shares("copying")) and told.shares("copying")[0] < 0.5
    assert list(verify(stores.settings)) == []


def test_a_store_that_is_restored_is_told_likewise(stores: Stores, tmp_path: Path):
    fill(stores)
    backup(stores.settings, tmp_path / "copy", Disk())
    told, source = Told(), str(tmp_path / "copy")
    made = replace(stores.settings, path=tmp_path / "made")
    sources = [str(tmp_path / "copy" / path) for path in backups.paths(Disk(), source)]
    restore(source, made, WrittenDisk(sources, told))
    assert told.shares("copying")[-1] == 1 and told.calls[-1][2] == used_bytes(Disk(), str(tmp_path / "made"))


def test_a_repair_tells_where_in_the_log_it_is(stores: Stores):
    fill(stores)
    told = Told()
    repair(stores.settings, ReadDisk(stores.settings, told))
    shares = told.shares("reading the log")
    assert shares[0] < 0.5 and max(shares) > 0.9


def test_what_goes_meanwhile_takes_nothing(tmp_path: Path):
    assert used_bytes(Disk(), str(tmp_path / "gone")) == 0
    (tmp_path / "file").write_bytes(b"x" * 10_000)
    assert used_bytes(Disk(), str(tmp_path)) == used_bytes(Disk(), str(tmp_path / "file")) == 10_000
