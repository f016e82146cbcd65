"""sparrowmq.spark.pipelines.lake.parquet: a folder that every reader may look into at any time."""

import os
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")


from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER
from sparrowmq.spark.pipelines.lake.parquet import commits_at, record_at
from sparrowmq.spark.pipelines.running.folders import lock_folder
from tests.spark.pipelines.lake.tables import Table


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_behind_the_commit_is_finished_by_the_next_start(tmp_path, monkeypatch, moved):
    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    move = os.replace
    moves: list[str] = []

    def dying(source, target):
        if len(moves) == moved:
            raise KeyboardInterrupt
        moves.append(target)
        move(source, target)

    staged = table.staged(1, 2, 3, 4, files=3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying)
        with pytest.raises(KeyboardInterrupt):
            table.open().commit(1, staged)
    assert len(table.numbers()) == 1 + moved
    assert commits_at(table.place.folder, table.place.state) is None
    assert table.open().last_batch() == 1
    found = commits_at(table.place.folder, table.place.state)
    assert found is not None and [Path(commit).name for commit in found] == ["000000001.json"]
    assert table.numbers() == [1, 2, 3, 4]


def test_a_merge_that_was_killed_shows_in_the_commits_until_the_next_start(tmp_path, monkeypatch):
    table = Table(tmp_path, "parquet")
    for batch in range(2):
        table.add(batch, batch)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_given, **_more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.open().compact(date.fromisoformat("2026-02-01"))
    assert table.numbers() == [0, 0, 1, 1]
    assert commits_at(table.place.folder, table.place.state) is None
    table.open()
    assert table.numbers() == [0, 1]
    assert commits_at(table.place.folder, table.place.state) is not None


def test_columns_are_those_of_the_last_batch_when_the_clock_was_set_back(tmp_path):
    """With those of an earlier batch, a column that becomes wider would not be written again: two types of one name."""
    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    table.add(1, 2, new=5)
    for file in table.open().paths():
        hour_ns = 3_600 * 10**9 * file.name.count("-000000001-")
        os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - hour_ns))
    assert list(table.open().columns()) == ["_day", "number", "new"]
    table.open().compact(date.fromisoformat("2026-02-01"))
    assert list(table.open().columns()) == ["_day", "number", "new"]


def test_the_settings_are_those_of_the_last_batch_when_the_clock_was_set_back(tmp_path):
    table = Table(tmp_path, "parquet")
    for batch in range(2):
        table.open().commit(batch, replace(table.staged(batch, batch), record=f"record {batch}"))
    commits = table.place.folder / OWN_FOLDER
    later = (commits / "000000001.json").stat().st_mtime + 3600
    os.utime(commits / "000000000.json", (later, later))
    assert record_at(table.place.folder) == "record 1"


def test_arrow_reads_the_folder_with_all_that_is_in_it(tmp_path):
    import pyarrow.dataset as ds

    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    with lock_folder(table.place.folder / OWN_FOLDER):
        files = ds.dataset(table.place.folder, ignore_prefixes=["."])  # the folders of days begin with _
        assert files.count_rows() == 1


def test_files_are_on_the_disk_before_a_commit_names_them(tmp_path, monkeypatch):
    table, order = Table(tmp_path, "parquet"), list[str]()
    sync = os.fsync

    def noted(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    staged = table.staged(0, 1, 2, files=2)
    monkeypatch.setattr(os, "fsync", noted)
    table.open().commit(0, staged)
    assert order[:3] == ["0.parquet", "1.parquet", "000000000.tmp"]


@pytest.mark.parametrize("left", [0, 10])
def test_a_damaged_commit_is_told(tmp_path, left):
    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    commit = table.place.folder / OWN_FOLDER / "000000000.json"
    commit.write_text(commit.read_text()[:left])
    with pytest.raises(BadStore, match=r"000000000.json is damaged.* restore the table and its state"):
        table.open()


def test_old_commits_go(tmp_path):
    table = Table(tmp_path, "parquet")
    for batch in range(25):
        table.add(batch, batch)
    assert len(list((table.place.folder / ".sparrowmq").iterdir())) == 10
    assert table.open().last_batch() == 24
    assert table.numbers() == list(range(25))


def test_a_commit_whose_files_were_lost_with_the_state_is_taken_back(tmp_path, monkeypatch):
    table = Table(tmp_path, "parquet")
    table.add(0, 1)
    with monkeypatch.context() as patch:
        patch.setattr("sparrowmq.spark.pipelines.lake.parquet.ParquetFolder._finish", lambda self: None)
        table.add(1, 2)
    shutil.rmtree(table.place.state)
    assert table.open().last_batch() == 0
    table.add(1, 2)
    assert table.numbers() == [1, 2]


def test_two_runs_with_copies_of_one_state_do_not_write_one_batch_twice(tmp_path):
    table = Table(tmp_path, "parquet")
    first, second = table.open(), table.open()
    first.commit(0, table.staged(0, 1))
    with pytest.raises(ConfigError, match="another run has written batch 0"):
        second.commit(0, table.staged(0, 1))
    assert table.numbers() == [1]


def test_a_table_of_an_earlier_release_goes_on_behind_its_last_batch(tmp_path):
    table = Table(tmp_path, "parquet")
    (table.place.state / "commits").mkdir(parents=True)
    (table.place.state / "commits" / "000000004.json").write_text("{}")
    assert table.open().last_batch() == 4
    table.add(5, 1)
    assert (table.open().last_batch(), table.numbers()) == (5, [1])
