"""sparrowmq.spark.pipelines.lake.iceberg_metadata: paths as the values of Iceberg's manifests, and back."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.expressions.literals import literal

from sparrowmq.spark.pipelines.lake.iceberg_metadata import IcebergPartitions
from sparrowmq.spark.pipelines.lake.partitioning import Partitioning

STORED = pa.array([datetime(2026, 1, 31, 5, tzinfo=UTC)], pa.timestamp("us", "UTC"))
ROWS = pa.table(
    {
        "_mq": pa.StructArray.from_arrays([STORED], ["storeTimestamp"]),
        "_day": pa.array([date(2026, 1, 31)]),
        "country": ["null"],
        "n": pa.array([-7], pa.int64()),
        "paid": [True],
        "due": pa.array([date(1969, 12, 31)]),
        "at": pa.array([-1], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def made(tmp_path):
    """Makes an Iceberg table that is divided."""

    def made(text):
        catalog = InMemoryCatalog("memory", warehouse=f"file://{tmp_path}")
        catalog.create_namespace("a")
        table = catalog.create_table("a.b", ROWS.schema)
        partitions = IcebergPartitions(Partitioning.parse(text))
        partitions.set_spec(table)
        return table, partitions

    return made


@pytest.mark.parametrize(
    "text",
    [
        "day", "hour", "month", "year", "country", "n", "paid", "due", "bucket(7, country), n", "truncate(10, n)",
        "truncate(2, country)", "day(due), month(at)", "year(due), hour(at)", "none",
    ],
)  # fmt: skip
def test_a_file_gets_the_values_of_pyicebergs_own_transforms(made, tmp_path, text):
    table, partitions = made(text)
    assert partitions.describe_spec(table) == text
    partitioning = Partitioning.parse(text)
    path = partitioning.paths(ROWS.to_batches()[0], empty_is_null=False)[0].as_py()
    pq.write_table(ROWS, tmp_path / "f.parquet")
    file = partitions.data_file(table.io, table.metadata, f"file://{tmp_path}/f.parquet", path)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    (task,) = table.scan().plan_files()
    assert list(task.file.partition) == [expected(table, field) for field in table.spec().fields]
    assert partitions.path(table.metadata, task.file.partition) == path
    assert task.file.spec_id == table.spec().spec_id


def expected(table, field):
    """The value that pyiceberg's own transform gives for the row."""
    name, kind = table.schema().find_column_name(field.source_id), table.schema().find_type(field.source_id)
    value = STORED[0].as_py() if name == "_mq.storeTimestamp" else ROWS[name][0].as_py()
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, date):
        value = value.isoformat()
    return field.transform.transform(kind)(literal(value).to(kind).value)


def test_nulls_come_back(made):
    table, partitions = made("country, day(due), bucket(4, n)")
    path = Partitioning.parse("country, day(due), bucket(4, n)").path_for(
        dict.fromkeys(("country", "due_day", "n_bucket"))
    )
    record = partitions.record(table.metadata, path)
    assert list(record) == [None, None, None] and partitions.path(table.metadata, record) == path


def test_other_partitions_are_said(made):
    table, _ = made("country")
    assert IcebergPartitions(Partitioning.parse("day")).describe_spec(table) == "identity of country"
    with table.update_spec() as update:
        update.remove_field("country")
    assert IcebergPartitions(Partitioning.parse("day")).describe_spec(table) == "none"
