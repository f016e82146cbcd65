"""sparrowmq.spark.pipelines.tables.partition_columns: the columns of bodies by which tables are divided."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.partitioning import Partitioning
from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.partition_columns import (
    PartitionCheck,
    check_partition_columns,
    check_partition_types,
    partition_column_types,
    partition_fault,
    pin_types,
)


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("a", "string bigint int boolean date decimal(9,2)", "double float binary timestamp array<int>"),
        ("bucket(4, a)", "string bigint date timestamp decimal(9,2)", "double boolean struct<b:int>"),
        ("truncate(4, a)", "string bigint decimal(9,2)", "date boolean map<string,int>"),
        ("day(a)", "date timestamp", "string bigint"),
        ("hour(a)", "timestamp", "date string"),
    ],
)
def test_each_transform_has_its_types(text, good, bad):
    partitioning = Partitioning.parse(text)
    (field,) = partitioning.fields
    assert [partition_fault(field, type_of(kind)) for kind in good.split()] == [""] * len(good.split())
    for kind in bad.split():
        with pytest.raises(ConfigError, match=r"needs a column of .*, and a is .*; choose another column"):
            check_partition_types(partitioning, {"a": type_of(kind)})


@pytest.mark.parametrize(
    ("text", "known", "fields", "found"),
    [
        ("a", {}, {}, {"a": "string"}),
        ("a", {}, {"a": "bigint", "b": "double"}, {"a": "bigint", "b": "double"}),
        ("a", {}, {"a": "double"}, {"a": "string"}),
        ("a", {"a": "bigint"}, {"a": "string"}, {"a": "bigint"}),
        ("a", {}, {"A": "bigint"}, {"a": "string"}),
        ("day(a)", {}, {"a": "string"}, {"a": "timestamp"}),
        ("day(a)", {}, {"a": "date"}, {"a": "date"}),
        ("day", {}, {"a": "double"}, {"a": "double"}),
    ],
)
def test_a_column_of_a_partition_is_there_and_keeps_its_type(text, known, fields, found):
    assert pin_types(Partitioning.parse(text), known, fields) == found


def test_the_columns_of_partitions_have_types_for_spark():
    found = partition_column_types(Partitioning.parse("a, bucket(4, b), day(c), hour"), {"a": "bigint"})
    assert {name: kind.simpleString() for name, kind in found.items()} == {
        "a": "bigint", "b_bucket": "int", "c_day": "date", "_hour": "string",
    }  # fmt: skip
    assert partition_column_types(Partitioning.parse("day, year(c)"), {})["_day"].simpleString() == "date"


@pytest.mark.parametrize(
    ("text", "mode", "names", "key", "why"),
    [
        ("country", "raw", None, None, "it has keys and tags"),
        ("day(tags)", "raw", None, None, "it has keys and tags"),
        ("tags", "raw", None, None, r"write truncate\(32, tags\) or bucket\(16, tags\)"),
        ("truncate(33, keys)", "raw", None, None, r"write truncate\(32, keys\)"),
        ("id", "json", None, "id", r"write bucket\(16, id\)"),
        ("c", "schema", ["a", "b"], None, "it has a, b"),
        ("A", "schema", ["a"], None, "did you mean a"),
        ("bucket(4, a)", "schema", ["a", "A_Bucket"], None, "name the column otherwise"),
    ],
)
def test_what_no_table_of_a_mode_can_be_divided_by_is_refused(text, mode, names, key, why):
    with pytest.raises(ConfigError, match=why):
        check_partition_columns(Partitioning.parse(text), mode, names, key)


def test_good_partitions_pass():
    for text, mode, names in (
        ("bucket(4, keys), truncate(32, tags), hour", "raw", None),
        ("a, day", "json", None),
        ("a", "schema", ["a"]),
        ("none", "raw", None),
    ):
        check_partition_columns(Partitioning.parse(text), mode, names, "id")


def test_a_text_that_no_folder_can_have_is_a_reason():
    rows = pa.RecordBatch.from_pydict(
        {
            "body": [b""] * 4,
            "reason": pa.array([None, None, "bad", None]),
            "field_0": ["x" * 300, "x", "x" * 300, None],
        }
    )
    read = PartitionCheck(lambda batches: iter(batches), Partitioning.parse("a, bucket(4, b)"), ["a"])
    (found,) = read([rows])
    assert found.column("reason").to_pylist() == ["a is too long for a partition", None, "bad", None]
    assert found.schema == rows.schema
