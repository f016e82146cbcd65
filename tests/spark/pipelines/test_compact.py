"""sparrowmq.spark.pipelines.table: fewer files, the same rows; old days go."""

from __future__ import annotations

import json
from datetime import date

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("duckdb")

from click.testing import CliRunner

from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands.pipeline_commands import pipeline
from sparrowmq.spark.pipelines import compact
from sparrowmq.spark.pipelines.lake.lake import open_lake
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, save_settings, state_folder
from tests.spark.pipelines.lake.tables import DAY, KINDS, WRITER, Table


@pytest.fixture(params=KINDS)
def table(request, tmp_path):
    """A table of three batches, of two files each."""
    made = Table(tmp_path, request.param)
    save_settings(state_folder(made.place.path), TableSettings("t", request.param, "raw", None, writer=WRITER))
    for batch in range(3):
        made.open().commit(batch, made.staged(batch, 2 * batch, 2 * batch + 1, files=2))
    return made


def tend(table, **given):
    return compact(table.place.path, say=lambda _: None, **given)


def test_the_rows_are_the_same_in_fewer_files_and_the_table_goes_on(table):
    report = tend(table, day=lambda: date.fromisoformat("2026-02-01"))
    assert (report.read, report.written) == (6, 1)
    assert table.numbers() == list(range(6))
    assert table.open().last_batch() == 2
    table.add(3, 6, more="x")
    assert table.numbers() == list(range(7))
    assert tend(table, day=lambda: date.fromisoformat("2026-02-01")).written == 1
    assert [row["more"] for row in table.rows()] == [None] * 6 + ["x"]
    assert table.open().last_batch() == 3


def test_a_day_that_is_not_over_is_left_alone_unless_told(table):
    assert tend(table, day=lambda: date.fromisoformat(DAY)).written == 6
    assert tend(table, day=lambda: date.fromisoformat(DAY), all_days=True).written == 1


def test_days_that_are_too_old_go(table):
    assert tend(table, keep_days=30, day=lambda: date.fromisoformat("2026-03-02")).written == 1
    assert table.numbers() == list(range(6))
    tend(table, keep_days=30, day=lambda: date.fromisoformat("2026-03-03"))
    assert table.numbers() == []
    assert table.open().last_batch() == 2


def test_days_from_before_the_calendar_are_none(table):
    tend(table, keep_days=1_000_000, day=lambda: date.fromisoformat("2026-03-02"))
    assert table.numbers() == list(range(6))


def test_snapshots_and_files_that_nobody_needs_go_and_the_last_batch_is_still_known(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.pipelines.lake.iceberg_metadata.UNUSED_DELAY_S", 0.0)
    table = Table(tmp_path, "iceberg")
    save_settings(state_folder(table.place.path), TableSettings("t", "iceberg", "raw", None, writer=WRITER))
    for batch in range(3):
        table.add(batch, batch)
    tend(table, day=lambda: date.fromisoformat("2026-02-01"))
    assert len(list(table.place.folder.rglob("*.parquet"))) == 1
    assert table.numbers() == [0, 1, 2]
    assert table.open().last_batch() == 2


def test_a_merge_that_was_cut_off_is_finished_by_the_next_start(tmp_path, monkeypatch):
    table = Table(tmp_path, "parquet")
    for batch in range(2):
        table.add(batch, batch)
    monkeypatch.setattr("sparrowmq.spark.pipelines.lake.parquet.ParquetFolder._finish_merge", lambda self: None)
    lake = open_lake("parquet", table.place)
    lake.compact(date.fromisoformat("2026-02-01"))
    monkeypatch.undo()
    assert len(table.open().paths()) == 1
    assert table.numbers() == [0, 1]


def test_what_is_no_table_or_is_written_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is no table"):
        compact(tmp_path / "none")
    save_settings(state_folder(tmp_path / "t"), TableSettings("t", "parquet", "raw", None))
    for folder in (state_folder(tmp_path / "t"), tmp_path / "t" / ".sparrowmq"):
        with lock_folder(folder), pytest.raises(ConfigError, match="another run is at work"):
            compact(tmp_path / "t")
    with pytest.raises(ConfigError, match="file_size=1GiB must be from 64MiB to 512MiB"):
        compact(tmp_path / "t", file_size="1GiB")
    with pytest.raises(ConfigError, match="give 1 or more"):
        compact(tmp_path / "t", keep_days=0)


def test_a_dry_run_changes_nothing_even_if_a_run_was_cut_off(table, monkeypatch):
    with monkeypatch.context() as killed:
        killed.setattr("sparrowmq.spark.pipelines.lake.parquet.ParquetFolder._finish", lambda self: None)
        table.open().commit(3, table.staged(3, 6))
    before = contents(table.place.path.parent)
    tend(table, keep_days=1, dry_run=True)
    assert contents(table.place.path.parent) == before


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_counts_files(tmp_path):
    table = Table(tmp_path, "parquet")
    save_settings(state_folder(table.place.path), TableSettings("t", "parquet", "raw", None, writer=WRITER))
    for batch in range(2):
        table.add(batch, batch)
    args = ["compact", str(table.place.path), "--all-days"]
    assert ": 2 files" in CliRunner().invoke(pipeline, [*args, "--dry-run"]).stderr
    report = json.loads(CliRunner().invoke(pipeline, args).stdout)
    assert (report["read"], report["written"]) == (2, 1)
