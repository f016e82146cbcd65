"""sparrowmq.spark.pipelines.lake.spark_reader: Spark reads tables of each format without a jar."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.compaction import widen_columns
from sparrowmq.spark.pipelines.lake.lake import TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from sparrowmq.spark.pipelines.tables.batch_files import stage_rows
from tests.spark.pipelines.lake.tables import KINDS_AT_LENGTH

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_all_rows_and_the_columns_of_all_batches_are_read(spark, tmp_path, kind):
    lake = open_lake(kind, TableLocation(tmp_path / "a table", tmp_path / "a table.state", "writer"))
    for batch, columns in enumerate(("id", "id, nullif('x', '') as more")):
        rows = spark.sql(f"select {columns}, date'2026-01-31' as _day from range({batch * 10}, {batch * 10 + 5})")
        lake.commit(batch, stage_rows(rows, tmp_path / "staged", f"w-{batch:09}", lake.layout))
    found = read_table(spark, tmp_path / "a table")
    assert set(found.columns) == {"id", "more", "_day"}
    assert sorted((row.id, row.more) for row in found.collect()) == [
        *((number, None) for number in range(5)),
        *((number, "x") for number in range(10, 15)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_integers_are_read_as_the_column_has_them_though_older_files_have_smaller_ones(spark, tmp_path, kind):
    lake = open_lake(kind, TableLocation(tmp_path / "t", tmp_path / "t.state", "writer"))
    for batch, size in enumerate(("smallint", "int")):
        rows = spark.sql(
            f"select {batch} as id, cast(7 as {size}) as one, array(cast(8 as {size})) as list, "
            "date'2026-01-31' as _day"
        )
        staged = stage_rows(rows, tmp_path / "staged", f"w-{batch:09}", lake.layout)
        widen_columns(lake, staged.schema, tmp_path / "rewritten")
        lake.commit(batch, staged)
    found = read_table(spark, tmp_path / "t").sort("id").collect()
    assert [(row.id, row.one, row.list) for row in found] == [(0, 7, [8]), (1, 7, [8])]


def test_what_another_format_left_when_it_never_began_hides_no_rows(spark, tmp_path):
    place = TableLocation(tmp_path / "t", tmp_path / "t.state", "writer")
    open_lake("iceberg", place)
    rows = spark.sql("select id, date'2026-01-31' as _day from range(3)")
    open_lake("parquet", place).commit(0, stage_rows(rows, tmp_path / "staged", "w-000000000", Layout(BY_DAY, False)))
    assert sorted(row.id for row in read_table(spark, tmp_path / "t").collect()) == [0, 1, 2]


def test_a_folder_without_a_table_is_told(spark, tmp_path):
    with pytest.raises(ConfigError, match="has no rows; name the folder of a table"):
        read_table(spark, tmp_path / "nothing")
