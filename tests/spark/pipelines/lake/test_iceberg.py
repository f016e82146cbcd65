"""sparrowmq.spark.pipelines.lake.iceberg: what Iceberg's own readers see."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from pyiceberg.catalog.sql import SqlCatalog

from tests.spark.pipelines.lake.tables import DAY, WRITER, Table


def test_each_snapshot_says_which_batch_it_is(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(4, 2)
    catalog = SqlCatalog("sparrowmq", uri=f"sqlite:///{table.place.state / 'catalog.db'}")
    found = catalog.load_table(("sparrowmq", "table"))
    told = [
        (each.summary["sparrowmq.writer"], each.summary["sparrowmq.batch"])
        for each in found.snapshots()
        if each.summary
    ]
    assert told == [(WRITER, "0"), (WRITER, "4")]
    assert [field.name for field in found.spec().fields] == ["_day"]
    assert found.scan(f"_day = '{DAY}'").to_arrow().num_rows == 2
    assert found.scan("_day = '2026-02-01'").to_arrow().num_rows == 0


def test_files_have_the_bounds_of_their_columns(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 3, 1, 2)
    catalog = SqlCatalog("sparrowmq", uri=f"sqlite:///{table.place.state / 'catalog.db'}")
    (file,) = catalog.load_table(("sparrowmq", "table")).inspect.files().to_pylist()
    found = file["readable_metrics"]["number"]
    assert (found["lower_bound"], found["upper_bound"], found["null_value_count"]) == (1, 3, 0)
