"""sparrowmq.spark.pipelines.lake.parquet: files of a batch are staged first, and moved after their commit."""

import uuid
from datetime import date

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.lake import staging_address
from sparrowmq.spark.pipelines.lake.parquet import RemoteParquetFolder
from tests.spark.pipelines.lake.s3 import table_at

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def table(s3, tmp_path):
    return table_at(f"s3://bucket/{uuid.uuid4().hex}/orders", tmp_path, "parquet")


def test_readers_see_no_file_before_its_commit(table):
    table.add(0, 1)
    staged = table.staged(1, 2)
    assert table.numbers() == [1]
    assert len(staging_address(table.place).storage.list()) == 1
    table.open().commit(1, staged)
    assert table.numbers() == [1, 2]
    assert staging_address(table.place).storage.list() == []


def test_the_next_start_moves_what_a_crash_has_left(table, monkeypatch):
    staged = table.staged(0, 1)
    with monkeypatch.context() as crash:
        crash.setattr(RemoteParquetFolder, "_finish", lambda *_args: None)
        RemoteParquetFolder(table.place).commit(0, staged)
    assert RemoteParquetFolder(table.place).last_batch() == 0
    assert table.numbers() == [1]


def test_a_staged_file_that_somebody_removed_is_no_lost_row(table):
    staged = table.staged(0, 1)
    staging_address(table.place).storage.clear()
    with pytest.raises(ConfigError, match=r"is gone before it was moved to .*; restore it, or move the table"):
        table.open().commit(0, staged)


@pytest.mark.slow
def test_only_the_last_commits_are_kept(table):
    for batch in range(12):
        table.add(batch, batch)
    kept = sorted(each.base_name for each in table.root.storage.list(".sparrowmq/commits"))
    assert (len(kept), kept[-1]) == (10, "000000011.json")
    assert table.numbers() == list(range(12))


def test_a_commit_that_cannot_be_read_is_an_error_that_says_what_to_do(table):
    table.add(0, 1)
    table.root.storage.write(".sparrowmq/commits/000000001.json", b"{")
    with pytest.raises(ConfigError, match=r"000000001.json cannot be read .*; restore it, or move the table"):
        table.open().last_batch()


def test_its_files_are_not_put_together(table):
    table.add(0, 1)
    with pytest.raises(ConfigError, match="keep tables behind addresses as delta or iceberg"):
        table.open().compact(date(2026, 2, 1))
