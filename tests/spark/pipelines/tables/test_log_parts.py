"""sparrowmq.spark.pipelines.tables.log_parts: what a table has of a stored log."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.runner import Runner
from sparrowmq.spark.pipelines.tables.log_parts import LogParts, added, numbered
from sparrowmq.spark.stored.blocks import LogFile, Span

SIZE = 100
FILES = [LogFile(f"/log/{begin:020}", begin, SIZE) for begin in (0, 100, 200)]


class Writer:
    """In the place of the tables: notes what it is given, and fails after it if told to."""

    def __init__(self, tmp_path, last_batch=-1):
        self.root, self.last_batch = tmp_path, last_batch
        self.given: list[tuple[int, int]] = []
        self.fails = self.is_empty = False

    def write(self, begin, batch):
        self.given.append((begin, batch))
        self.last_batch = self.last_batch if self.is_empty else max(batch, self.last_batch)
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


def test_what_was_added_changes_with_rows_alone(tmp_path, add):
    writer = Writer(tmp_path)
    assert added(tmp_path) == {}
    add(writer, 0)
    first = added(tmp_path)
    writer.is_empty = True
    add(writer, 1)
    assert added(tmp_path) == first != {}
    writer.is_empty = False
    add(writer, 2)
    assert added(tmp_path) != first


def test_files_that_were_only_counted_are_there(tmp_path, add):
    writer: Any = Writer(tmp_path, last_batch=1)
    add(writer, 0, 1, 2, before=numbered(writer, FILES))
    assert writer.given == [(200, 2)]
    add(writer, 0, 1, 2)
    assert writer.given == [(200, 2)]
