"""sparrowmq.spark.pipelines.tables.ddl: types as DDL, there and back."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as t

from sparrowmq.spark.pipelines.tables.ddl import ddl_of, names_in, type_of

SIMPLE = ["boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date"]
SIMPLE += ["timestamp", "timestamp_ntz", "decimal(38,0)", "decimal(5,2)", "varchar(3)", "char(4)"]


@pytest.mark.parametrize("ddl", SIMPLE)
def test_simple_types_are_read_as_they_are_written(ddl):
    for text in (ddl, f"array<{ddl}>", f"map<string,{ddl}>", f"struct<a:{ddl},b:struct<c:array<{ddl}>>>"):
        assert ddl_of(type_of(text)) == text


@pytest.mark.parametrize("name", ["a", "a b", "a`b", "`", ",", "a:b<c>", "ä", "9", "\n", "struct", "\ud800"])
def test_names_may_be_anything(name):
    kind = t.StructType([t.StructField(name, t.ArrayType(t.StructType([t.StructField(name, t.LongType())])))])
    assert type_of(ddl_of(kind)) == kind


def test_spark_reads_the_same(spark):
    names = ["a", "a b", "a`b", ",", "ä", "9"]
    kind = t.StructType([t.StructField(name, t.ArrayType(t.DecimalType(9, 2))) for name in names])
    assert t.DataType.fromDDL(ddl_of(kind)) == kind
    assert type_of(kind.__class__([t.StructField("a", t.LongType())]).simpleString()) is not None


@pytest.mark.parametrize(
    "ddl",
    ["", "nothing", "array", "array<", "array<int", "array<int>>", "struct<>", "struct<a>", "struct<a:int,>",
     "decimal(5", "decimal(5,2", "map<string>", "int int", "struct<`a:int>", "interval day"],
)  # fmt: skip
def test_what_is_no_type_is_refused(ddl):
    with pytest.raises(ValueError, match=r"is no type|invalid literal"):
        type_of(ddl)


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("id bigint, name string", ["id", "name"]),
        ("id: bigint NOT NULL,`a, ``b` decimal(9,2)", ["id", "a, `b"]),
        ("a struct<x:int,y:map<string,int>> COMMENT 'b, c', d array<int>", ["a", "d"]),
        ("\nSTRUCT<id: bigint, struct: struct<a:int,b:int>>", ["id", "struct"]),
        ("", []),
    ],
)
def test_the_names_of_columns_are_found_in_a_schema(schema, names):
    assert names_in(schema) == names
