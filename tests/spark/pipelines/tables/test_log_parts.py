"""sparrowmq.spark.pipelines.tables.log_parts: what a table has of a stored log."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.lake import open_lake
from sparrowmq.spark.pipelines.running.runner import Runner
from sparrowmq.spark.pipelines.tables.log_parts import LogParts, end_by_batches, last_batches
from sparrowmq.spark.pipelines.tables.progress import Record, parse_record
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from sparrowmq.spark.pipelines.tables.table_writer import ERRORS, ROWS, TableProgress
from sparrowmq.spark.source.log_files import LogFile, Span
from tests.spark.pipelines.lake.tables import KINDS_AT_LENGTH, Table

SIZE = 100
FILES = [LogFile(f"/log/{begin:020}", begin, SIZE) for begin in (0, 100, 200)]


class Writer:
    """In the place of the tables: notes what it is given, and fails after it if told to."""

    def __init__(self, tmp_path, last_batch=-1):
        self.root, self.last_batch = tmp_path, last_batch
        self.given: list[tuple[int, int]] = []
        self.fails = self.is_empty = False
        self.newest_record = self.log = None

    def note_log(self, noted):
        self.log = noted

    def write(self, begin, batch):
        self.given.append((begin, batch))
        if not self.is_empty and batch > self.last_batch:
            self.last_batch = batch
            self.newest_record = parse_record(Record(batch, None, None, self.fails, -1, {}, self.log).text())
        if self.fails:
            raise OSError("the test")


@pytest.fixture
def add(tmp_path):
    """Adds whole files, by their numbers."""

    def add(writer, *wanted, before=0):
        parts = LogParts(tmp_path / "stored-a.json", Runner(say=lambda _: None), before)
        found = [Span(FILES[number], 0, SIZE) for number in wanted]
        read: Any = lambda file, _: file.begin  # noqa: E731
        parts.add(found, writer, read)

    return add


def test_files_are_added_once_in_any_order_and_as_batches_that_follow_each_other(tmp_path, add):
    writer = Writer(tmp_path)
    for wanted in ([2], [1, 2], [0], [0, 1, 2]):
        add(writer, *wanted)
    assert writer.given == [(200, 0), (100, 1), (0, 2)]


def test_a_file_that_was_cut_short_is_the_same_batch_again_and_before_all_others(tmp_path, add):
    writer = Writer(tmp_path)
    add(writer, 2)
    writer.fails = True
    with pytest.raises(OSError, match="the test"):
        add(writer, 1)
    writer.fails = False
    with pytest.raises(ConfigError, match=r"while it added the log file 0{17}100 .* that file first"):
        add(writer, 0)
    add(writer, 0, 1, 2)
    assert writer.given == [(200, 0), (100, 1), (100, 1), (0, 2)]


def test_a_file_of_which_no_table_has_anything_is_begun_anew(tmp_path, add):
    writer = Writer(tmp_path)
    writer.fails = True
    with pytest.raises(OSError, match="the test"):
        add(writer, 1)
    writer.fails, writer.last_batch = False, -1
    add(writer, 0, 1)
    assert writer.given == [(100, 0), (0, 0), (100, 1)]


def test_a_lost_or_older_state_adds_no_part_twice(tmp_path, add):
    writer, path = Writer(tmp_path), tmp_path / "stored-a.json"
    add(writer, 2)
    older = path.read_bytes()
    add(writer, 1)
    for state in (None, older):
        forget(path, state)
        add(writer, 1, 2)
    assert writer.given == [(200, 0), (100, 1)]
    add(writer, 0)
    assert writer.given[2:] == [(0, 2)]


def test_a_lost_state_does_the_part_again_whose_errors_were_to_come(tmp_path, add):
    writer, path = Writer(tmp_path), tmp_path / "stored-a.json"
    add(writer, 2)
    writer.fails = True
    with pytest.raises(OSError, match="the test"):
        add(writer, 1)
    writer.fails = False
    forget(path, None)
    add(writer, 0, 1, 2)
    assert writer.given == [(200, 0), (100, 1), (100, 1), (0, 2)]


def test_a_table_that_was_restored_gets_the_parts_that_it_lacks(tmp_path, add):
    writer = Writer(tmp_path)
    add(writer, 2)
    older = writer.newest_record
    add(writer, 1)
    writer.newest_record, writer.last_batch = older, 0
    add(writer, 1, 2)
    assert writer.given == [(200, 0), (100, 1), (100, 1)]
    writer.newest_record, writer.last_batch = None, -1
    add(writer, 1, 2)
    assert writer.given[3:] == [(100, 0), (200, 1)]


def test_rows_of_a_log_without_any_note_of_its_parts_are_refused(tmp_path, add):
    with pytest.raises(ConfigError, match=r"stored-a\.json is gone, so it is not known which they are; restore it"):
        add(Writer(tmp_path, last_batch=3), 1)


class Tables:
    """A table and its table of errors on disk, without Spark; each start opens them again, and may die in a batch.

    A message is an offset of the log. Every fourth of them is an error.
    """

    def __init__(self, folder, kind, death=""):
        self.root, self.death = folder, death
        self.tables = {name: Table(folder / "tables" / name, kind) for name in (ROWS, ERRORS)}
        lane = "-stored-a"
        lakes = {
            name: open_lake(kind, replace(each.place, lane=lane, writer=f"{each.place.writer}{lane}"))
            for name, each in self.tables.items()
        }
        self.lakes = lakes
        self.progress = TableProgress(folder, TableSettings("t", kind, "raw", None), lakes)

    @property
    def last_batch(self):
        return max(each.last_batch() for each in self.lakes.values())

    @property
    def newest_record(self):
        return self.progress.newest_record()

    def note_log(self, noted):
        self.progress.log = noted

    def write(self, begin, batch):
        for step, table in (("planned", ROWS), (ROWS, ERRORS)):
            self._perhaps_die(step)
            self.add(table, begin, batch)
        self._perhaps_die(ERRORS)

    def _perhaps_die(self, step):
        if self.death == step:
            raise OSError("the test")

    def add(self, table, begin, batch):
        chosen = [n for n in range(begin, begin + SIZE, 10) if (n % 40 == 0) == (table == ERRORS)]
        staged: Any = lambda _: self.tables[table].staged(batch, *chosen)  # noqa: E731
        self.progress.add(table, batch, staged, is_half=table == ROWS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_no_mishap_loses_or_doubles_a_row_of_a_log(tmp_path, add, kind, seed):
    chance, path, tables, copies = Random(seed), tmp_path / "stored-a.json", tmp_path / "tables", []
    tables.mkdir()
    for number in range(4):
        death = chance.choice(["planned", ROWS, ERRORS])
        with suppress(OSError):
            add(Tables(tmp_path, kind, death), *chance.sample([0, 1, 2], 3))
        copies.append((path.read_bytes(), shutil.copytree(tables, tmp_path / f"copy{number}")))
        state, copy = chance.choice(copies)
        mishap = chance.choice(["none", "lost", "older state", "older tables"])
        if mishap in ("lost", "older state"):
            forget(path, state if mishap == "older state" else None)
        elif mishap == "older tables":
            shutil.rmtree(tables)
            shutil.copytree(copy, tables)
    add(Tables(tmp_path, kind), 0, 1, 2)
    found = Counter(row["number"] for each in Tables(tmp_path, kind).tables.values() for row in each.rows())
    assert found == Counter(range(0, 3 * SIZE, 10))


def test_tables_of_different_times_are_refused(tmp_path, add):
    for number in (0, 1):
        add(Tables(tmp_path, "parquet"), number)
        shutil.copytree(tmp_path / "tables", tmp_path / f"copy{number}")
    shutil.rmtree(tmp_path / "tables" / ROWS)
    shutil.copytree(tmp_path / "copy0" / ROWS, tmp_path / "tables" / ROWS)
    with pytest.raises(ConfigError, match=r"are of different times.* restore both from the same time"):
        add(Tables(tmp_path, "parquet"), 2)


def forget(path, state):
    """Let the state be an older one, or be lost."""
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    if state is not None:
        path.write_bytes(state)


def test_what_was_added_changes_with_rows_alone(tmp_path, add):
    writer = Writer(tmp_path)
    assert last_batches(tmp_path) == {}
    add(writer, 0)
    first = last_batches(tmp_path)
    writer.is_empty = True
    add(writer, 1)
    assert last_batches(tmp_path) == first != {}
    writer.is_empty = False
    add(writer, 2)
    assert last_batches(tmp_path) != first


def test_files_that_were_only_counted_are_there(tmp_path, add):
    writer: Any = Writer(tmp_path, last_batch=1)
    add(writer, 0, 1, 2, before=end_by_batches(writer, FILES))
    assert writer.given == [(200, 2)]
    add(writer, 0, 1, 2)
    assert writer.given == [(200, 2)]
