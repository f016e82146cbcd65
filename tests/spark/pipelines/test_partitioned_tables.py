"""Tables of the pipeline `table` that are divided by fields and transforms, written and read by Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import preview, publish, table
from sparrowmq.spark.pipelines.lake.catalogs import open_catalog, table_identifier
from sparrowmq.spark.pipelines.tables.table_settings import read_rows, state_folder
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.lake.tables import KINDS
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(300)

COUNTRIES = ["DE", "007", "a/b %", None, ""]
BODIES = [
    b'{"id":%d,"country":%s}' % (n, b"null" if country is None else f'"{country}"'.encode())
    for n, country in enumerate(COUNTRIES * 4)
]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def topic(spark, namesrv):
    return Topic(spark, namesrv)


@pytest.fixture
def run(topic, tmp_path):
    """Runs the pipeline once, over a table in a folder."""

    def run(kind="parquet", to="table", **given):
        given = {"mode": "json", **given}
        return table(
            topic.name, tmp_path / to, name_server=topic.options["nameServer"], format=kind, once=True,
            spark=topic.spark, say=lambda _: None, **given,
        )  # fmt: skip

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_spark_writes_and_reads_each_value_of_a_partition(topic, run, tmp_path, kind):
    topic.send_bodies(BODIES)
    report = run(kind, partition="country, bucket(2, id)")
    assert (report.written, report.errors) == (len(BODIES), 0)
    more = [
        b'{"id":100,"country":"DE"}',
        b'{"id":101,"country":7}',
        b'{"id":102,"country":"%s"}' % (b"x" * 300),
    ]
    topic.send_bodies(more)
    report = run(kind, partition="country, bucket(id, 2)")
    assert (report.written, report.errors) == (2, 1)
    rows = {row.id: row.country for row in read_rows(topic.spark, tmp_path / "table").collect()}
    empty = "" if kind == "iceberg" else None  # where folders and logs are the values
    expected = {n: empty if country == "" else country for n, country in enumerate(COUNTRIES * 4)}
    assert rows == expected | {100: "DE", 101: "7"}


@pytest.mark.slow
def test_spark_reads_only_the_folders_of_a_condition(topic, run, tmp_path):
    topic.send_bodies(BODIES)
    run("parquet", partition="country, hour")
    rows = read_rows(topic.spark, tmp_path / "table").where("country = '007'")
    assert rows.count() == 4
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(country" in plan and "= 007)]" in plan
    assert str(rows.schema["_hour"].dataType) == "StringType()"


@pytest.mark.slow
def test_deltas_log_and_icebergs_manifests_choose_the_files_of_a_condition(topic, run, tmp_path):
    topic.send_bodies(BODIES)
    run("delta", "delta", partition="country")
    run("iceberg", "iceberg", partition="bucket(4, id)")
    delta = DeltaTable(str(tmp_path / "delta"))
    assert len(delta.file_uris(file_pruning_predicate=[("country", "=", "007")])) < len(delta.file_uris())
    found = delta.to_pyarrow_dataset().to_table().to_pylist()
    assert sum(row["country"] == "a/b %" for row in found) == 4
    path = tmp_path / "iceberg"
    iceberg = open_catalog(path, state_folder(path)).load_table(table_identifier(path))
    some = list(iceberg.scan("id = 3").plan_files())
    assert len({str(task.file.partition) for task in some}) == 1 < len(list(iceberg.scan().plan_files()))
    assert iceberg.scan("id = 3").to_arrow().column("country").to_pylist() == [None]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["raw", "schema"])
def test_other_modes_have_partitions_too(topic, run, tmp_path, mode):
    topic.send_bodies(BODIES)
    if mode == "raw":
        run(mode="raw", partition="truncate(3, tags), bucket(2, keys)")
        names = ["tags_trunc", "keys_bucket"]
    else:
        run(mode="schema", schema="id bigint, country string, at timestamp", partition="day(at), month")
        names = ["at_day", "_month"]
    rows = read_rows(topic.spark, tmp_path / "table")
    assert rows.count() == len(BODIES) and set(names) <= set(rows.columns)


@pytest.mark.slow
def test_a_table_in_one_folder_goes_on_and_is_published_without_columns_of_its_own(topic, run, namesrv, tmp_path):
    topic.send_bodies(BODIES)
    run(partition="none")
    assert all(path.parent == tmp_path / "table" for path in (tmp_path / "table").rglob("*.parquet"))
    run("delta", "by-hour", partition="hour, bucket(4, id)")
    copy = f"{topic.name}-copy"
    publish(tmp_path / "by-hour", copy, name_server=namesrv, spark=topic.spark, say=lambda _: None)
    options = {"nameServer": namesrv, "topic": copy}
    bodies = [row.body for row in topic.spark.read.format("rocketmq").options(**options).load().collect()]
    assert len(bodies) == len(BODIES) and all(b"bucket" not in body and b"_hour" not in body for body in bodies)


@pytest.mark.slow
def test_a_partition_that_does_not_fit_is_refused_before_anything_is_written(topic, run, tmp_path):
    topic.send_bodies(BODIES)
    for given, why in (
        ({"partition": "order.country"}, "nested field"),
        ({"partition": "contry", "mode": "schema", "schema": "country string"}, "of no column of the schema"),
        (
            {"partition": "hour(d)", "mode": "schema", "schema": "d date"},
            "needs a column of timestamps, and d is date",
        ),
        ({"partition": "x", "mode": "schema", "schema": "x double"}, "x is double; choose another column"),
        ({"partition": "country", "mode": "raw"}, "it has keys and tags"),
    ):
        with pytest.raises(ConfigError, match=why):
            run(**given)
    assert not (tmp_path / "table").exists() and not (tmp_path / "table.state").exists()
    run(partition="country")
    with pytest.raises(ConfigError, match="begun with the partition country, not day"):
        run()
    said = preview(topic.name, tmp_path / "table", name_server=topic.options["nameServer"], mode="json",
                   partition="country", spark=topic.spark)  # fmt: skip
    assert "mode json, partition country" in said
