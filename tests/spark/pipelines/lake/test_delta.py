"""sparrowmq.spark.pipelines.lake.delta: what Delta's own readers and tools see."""

import time
from dataclasses import replace
from datetime import date
from statistics import median
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake import delta
from sparrowmq.spark.pipelines.lake.compaction import MERGE_AT_TINY_FILES
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from tests.spark.pipelines.lake.tables import DAY, WRITER, Table


def test_the_log_says_who_wrote_which_batch_and_how_many_rows_a_file_has(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(3, 1, 2, 3)
    delta = DeltaTable(str(table.place.path))
    assert delta.transaction_version(WRITER) == 3
    assert delta.metadata().partition_columns == ["_day"]
    counts: Any = delta.get_add_actions(flatten=True)["num_records"]
    assert [count.as_py() for count in counts] == [3]
    (file,) = delta.file_uris()
    assert f"/_day={DAY}/{WRITER}-" in file


def test_all_that_commits_and_merges_write_is_brought_to_the_disk(tmp_path, monkeypatch):
    table, synced = Table(tmp_path, "delta"), set()
    monkeypatch.setattr(delta, "sync", lambda path: synced.add(path.name))
    table.add(0, 1)
    table.add(1, 2, other="a new column")
    assert {path.name for path in table.place.folder.glob("_delta_log/*.json")} <= synced
    lake = table.open()
    lake.compact(date.max)
    (merged,) = lake.paths()
    assert {merged.name, *(path.name for path in table.place.folder.glob("_delta_log/*.json"))} <= synced
    lake.expire(date.max)
    assert {path.name for path in table.place.folder.glob("_delta_log/*.json")} <= synced


def test_two_writers_do_not_take_each_others_batches_for_theirs(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(3, 1)
    other = open_lake("delta", TableLocation(table.place.path, table.place.state, "other"))
    assert other.last_batch() == -1


@pytest.mark.slow
@pytest.mark.parametrize("commits", [250, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_a_late_commit_costs_what_an_early_one_did(tmp_path, commits):
    table = Table(tmp_path, "delta")
    lake, took = table.open(), []
    for batch in range(commits):
        staged, before = table.staged(batch, batch), time.process_time()
        lake.commit(batch, staged)
        took.append(time.process_time() - before)
    assert sum(took[-100:]) / 100 < 6 * median(took[10:50])
    assert len(table.open().paths()) <= MERGE_AT_TINY_FILES + 1
    assert table.numbers() == list(range(commits))
    assert table.open().last_batch() == commits - 1


@pytest.mark.slow
def test_the_log_in_a_folder_stays_short_and_a_reader_that_has_begun_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.pipelines.lake.delta._MAX_VERSIONS", 100)
    table = Table(tmp_path, "delta")
    lake, log = table.open(), table.place.folder / "_delta_log"
    for batch in range(281):
        lake.commit(batch, table.staged(batch, batch))
    early = DeltaTable(str(table.place.path))
    for batch in range(281, 330):
        lake.commit(batch, replace(table.staged(batch, batch), record=f"record {batch}"))
    assert len(list(log.iterdir())) < 300
    assert table.numbers() == list(range(330))
    assert (table.open().last_batch(), table.open().record()) == (329, "record 329")
    assert DeltaTable(str(table.place.path), version=early.version()).version() == early.version()
    early.update_incremental()
    assert early.to_pyarrow_dataset().count_rows() == 330


@pytest.mark.slow
def test_the_log_of_an_owner_who_wants_a_longer_history_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.pipelines.lake.delta._MAX_VERSIONS", 4)
    table = Table(tmp_path, "delta")
    table.add(0, 0)
    longer = {"delta.logRetentionDuration": "interval 30 days"}
    DeltaTable(str(table.place.path)).alter.set_table_properties(longer)
    lake = table.open()
    for batch in range(1, 120):
        lake.commit(batch, table.staged(batch, batch))
    assert DeltaTable(str(table.place.path), version=2).to_pyarrow_dataset().count_rows() == 1


def test_a_new_table_keeps_files_and_versions_as_long_as_deltas_default_is(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(0, 1)
    assert not any("Retention" in name for name in DeltaTable(str(table.place.path)).metadata().configuration)


def test_the_files_that_a_merge_has_replaced_stay_for_a_week(tmp_path):
    table = Table(tmp_path, "delta")
    lake = table.open()
    for batch in range(3):
        lake.commit(batch, table.staged(batch, batch))
    before = DeltaTable(str(table.place.path)).version()
    lake.compact(date.max)
    assert len(lake.paths()) == 1
    old = DeltaTable(str(table.place.path), version=before)
    assert old.to_pyarrow_dataset().count_rows() == 3


def test_a_table_in_a_folder_has_a_checkpoint_each_20_versions(tmp_path):
    table = Table(tmp_path, "delta")
    lake = table.open()
    for batch in range(45):
        lake.commit(batch, table.staged(batch, batch))
    found = sorted((table.place.folder / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(path.name[:20]) for path in found] == [19, 39]
    assert table.numbers() == list(range(45))


def test_a_table_that_was_restored_says_where_it_is_now(tmp_path):
    table = Table(tmp_path, "delta")
    for batch in range(3):
        table.open().commit(batch, replace(table.staged(batch, batch), record=f"record {batch}"))
    delta = DeltaTable(str(table.place.path))
    delta.restore(delta.version() - 1)
    assert table.open().record() == "record 1"
    assert table.numbers() == [0, 1]


def test_a_table_that_was_restored_to_what_it_was_before_its_first_batch_is_refused(tmp_path):
    table = Table(tmp_path, "delta")
    table.open().commit(0, replace(table.staged(0, 0), record="record 0"))
    DeltaTable(str(table.place.path)).restore(0)
    assert open_lake("delta", replace(table.place, writer="another")).record() is None
    with pytest.raises(ConfigError, match="before its first batch; restore a later version"):
        table.open().record()


def test_two_runs_with_copies_of_one_state_do_not_write_one_batch_twice(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(0, 1)
    first, second = table.open(), table.open()
    first.commit(1, table.staged(1, 2))
    with pytest.raises(ConfigError, match="another run has written batch 1"):
        second.commit(1, table.staged(1, 2))
    second.commit(2, table.staged(2, 3))
    with pytest.raises(CommitFailedError):
        first.commit(2, table.staged(2, 3))
    assert table.numbers() == [1, 2, 3]


def test_a_commit_that_would_leave_rows_in_the_table_is_refused(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(0, 1)
    lake, staged = table.open(), table.staged(1, 2)
    with pytest.raises(FileNotFoundError, match="is no file of the table; its rows would stay"):
        lake.commit(1, replace(staged, removed=[*lake.paths(), tmp_path / "elsewhere.parquet"]))
    assert table.numbers() == [1]
