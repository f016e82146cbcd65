"""sparrowmq.spark.lakehouse.lake_loop: a table at a time is merged, and only one that has new files."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.lakehouse.lake_loop import Upkeep
from sparrowmq.spark.lakehouse.lake_settings import SectionSettings
from sparrowmq.spark.lakehouse.lake_table import Figures


@dataclass
class Table:
    """A table whose merge takes as long as the test wants."""

    topic: str
    settings: SectionSettings = field(default_factory=lambda: SectionSettings(to="/{topic}", compact_every_s=60))
    figures: Figures = field(default_factory=lambda: Figures(batches=1))
    is_begun: bool = True
    busy_with: str = ""
    merges: int = 0
    error: Exception | None = None
    root: str = "/lake/orders"
    state: str = "/lake/orders.state"
    may_end: threading.Event = field(default_factory=threading.Event)

    def merge(self, today):
        self.merges += 1
        assert self.may_end.wait(20)
        if self.error is not None:
            raise self.error
        return 10, 1, 2

    def release_files(self):
        pass


@pytest.fixture
def upkeep():
    said: list[str] = []
    clock = [0.0]
    upkeep = Upkeep(said.append, lambda: clock[0])
    yield upkeep, said, clock
    upkeep.close()


def until_free(upkeep, tables):
    deadline = time.monotonic() + 20
    while any(table.busy_with for table in tables):
        assert time.monotonic() < deadline
        upkeep.run_due(tables)
        time.sleep(0.01)


def test_one_table_at_a_time_is_merged_when_it_is_due(upkeep):
    upkeep, said, clock = upkeep
    tables = [Table("a"), Table("b")]
    upkeep.run_due(tables)
    assert not any(table.busy_with for table in tables)  # not at the start, when there is a backlog
    clock[0] = 61
    upkeep.run_due(tables)
    upkeep.run_due(tables)
    assert [table.busy_with for table in tables] == ["merging", ""]
    for table in tables:
        table.may_end.set()
    until_free(upkeep, tables)
    assert [table.merges for table in tables] == [1, 1]
    assert said == [f"{topic}: 10 files merged to 1, 2 old days taken out" for topic in "ab"]


def test_a_table_without_new_batches_is_left_alone(upkeep):
    upkeep, _, clock = upkeep
    table = Table("a")
    table.may_end.set()
    upkeep.run_due([table])
    for _ in range(3):
        clock[0] += 61
        upkeep.run_due([table])
        until_free(upkeep, [table])
    assert table.merges == 1
    table.figures.batches += 1
    clock[0] += 61
    upkeep.run_due([table])
    until_free(upkeep, [table])
    assert table.merges == 2


def test_a_merge_that_fails_is_said_and_the_table_goes_on(upkeep):
    upkeep, said, clock = upkeep
    table = Table("a", error=PermissionError("the folder is read-only"))
    table.may_end.set()
    upkeep.run_due([table])
    clock[0] = 61
    upkeep.run_due([table])
    until_free(upkeep, [table])
    assert said == ["a: its files were not merged: PermissionError: the folder is read-only; tried again when due next"]


def test_never_is_never(upkeep):
    upkeep, _, clock = upkeep
    table = Table("a", SectionSettings(to="/{topic}", compact_every_s=0))
    for _ in range(3):
        clock[0] += 1e6
        upkeep.run_due([table])
    assert table.merges == 0
