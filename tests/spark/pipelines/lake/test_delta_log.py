"""sparrowmq.spark.pipelines.lake.delta: no fault of a disk hides rows of a Delta table from its readers."""

from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

from sparrowmq.errors import BadStore
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from tests.spark.pipelines.lake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(tmp_path):
    return Table(tmp_path, "delta")


def fill(table, count):
    lake = table.open()
    for batch in range(count):
        lake.commit(batch, table.staged(batch, batch))
    return lake


def file_of(table, version, kind="json"):
    return table.place.folder / f"_delta_log/{version:020}.{kind}"


def test_an_emptied_commit_before_others_is_refused_by_starts_commits_and_readers(tmp_path, table):
    lake = fill(table, 5)
    file_of(table, 4).write_bytes(b"")
    assert len(table.numbers()) == 4  # a reader does not notice
    refused = pytest.raises(BadStore, match=r"04\.json is empty, so readers of the table lack its rows")
    with refused:
        table.open()
    with refused:
        lake.commit(5, table.staged(5, 5))
    with refused:
        read_table(cast("SparkSession", None), table.place.folder)


def test_commits_that_a_power_cut_has_emptied_do_not_count_and_the_table_goes_on(table):
    fill(table, 4)
    for version in (4, 5):
        file_of(table, version).write_bytes(b"")
    assert table.open().last_batch() == 1
    table.add(2, 2)
    table.add(3, 3)
    assert (table.open().last_batch(), table.numbers()) == (3, [0, 1, 2, 3])


def test_an_emptied_commit_behind_a_checkpoint_that_has_its_rows_does_no_harm(table):
    fill(table, 24)
    file_of(table, 4).write_bytes(b"")
    table.add(24, 24)
    assert table.numbers() == list(range(25))


@pytest.mark.parametrize("is_zeroed", [False, True])
def test_a_damaged_checkpoint_goes_if_the_versions_are_there(table, is_zeroed):
    fill(table, 24)
    checkpoint = file_of(table, 19, "checkpoint.parquet")
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size if is_zeroed else 0))
    table.add(24, 24)
    assert (table.open().last_batch(), table.numbers()) == (24, list(range(25)))


def test_a_damaged_checkpoint_stays_if_versions_before_it_are_gone(table):
    fill(table, 24)
    checkpoint = file_of(table, 19, "checkpoint.parquet")
    checkpoint.write_bytes(b"")
    file_of(table, 3).unlink()
    with pytest.raises(BadStore, match="restore the table and its state from a backup"):
        table.open()
    assert checkpoint.exists()


def test_a_table_whose_first_commits_a_power_cut_has_emptied_is_begun_again(table):
    fill(table, 1)
    for path in table.place.folder.glob("_delta_log/*.json"):
        path.write_bytes(b"")
    with pytest.raises(BadStore, match="restore the table"):
        table.open()  # its rows are there
    for path in table.place.folder.glob("*/*.parquet"):
        path.unlink()
    table.add(0, 7)
    assert table.numbers() == [7]
