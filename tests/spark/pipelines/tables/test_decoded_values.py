"""sparrowmq.spark.pipelines.tables.encoded_bodies: values become those of a column, exactly or not at all."""

import datetime as d
from decimal import Decimal
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as t

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.encoded_bodies import encoded_converter
from sparrowmq.spark.pipelines.tables.json_values import Misfit

MOMENT = d.datetime(2026, 1, 1, tzinfo=d.UTC)
PAIR = t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (t.BooleanType(), False, False),
        (t.BooleanType(), {}, True),
        (t.IntegerType(), 2**31 - 1, 2**31 - 1),
        (t.LongType(), -(2**63), -(2**63)),
        (t.DoubleType(), 0.1, 0.1),
        (t.DoubleType(), 5, 5.0),
        (t.DecimalType(5, 2), Decimal("1.5"), Decimal("1.50")),
        (t.DecimalType(20, 0), 2**64 - 1, Decimal(2**64 - 1)),
        (t.StringType(), "x", "x"),
        (t.StringType(), b"\xc3\xa9", "é"),
        (t.StringType(), 5, "5"),
        (t.StringType(), True, "true"),
        (t.StringType(), Decimal("1E+3"), "1000"),
        (t.StringType(), UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (t.StringType(), d.time(1, 2, 3, 4), "01:02:03.000004"),
        (t.StringType(), {"a": [MOMENT, b"\0", None]}, '{"a": ["2026-01-01T00:00:00+00:00", "AA==", null]}'),
        (t.BinaryType(), b"\0", b"\0"),
        (t.BinaryType(), "é", b"\xc3\xa9"),
        (t.DateType(), d.date(1, 1, 1), d.date(1, 1, 1)),
        (t.TimestampType(), MOMENT, MOMENT),
        (t.TimestampNTZType(), d.datetime(2026, 1, 1), d.datetime(2026, 1, 1)),
        (t.ArrayType(t.LongType()), [1, None], [1, None]),
        (t.MapType(t.LongType(), t.StringType()), {1: "x"}, [(1, "x")]),
        (PAIR, {"a": 1, "more": None}, {"a": 1, "b": None}),
    ],
)
def test_a_value_fits_its_column(kind, value, expected):
    found = encoded_converter(kind)(value)
    assert found == expected and type(found) is type(expected)
    assert encoded_converter(kind)(None) is None


@pytest.mark.parametrize(
    ("kind", "value", "path", "shown"),
    [
        (t.BooleanType(), 1, "", "boolean"),
        (t.BooleanType(), {"a": 1}, "", "boolean"),
        (t.IntegerType(), 2**31, "", "int"),
        (t.LongType(), True, "", "bigint"),
        (t.LongType(), 1.0, "", "bigint"),
        (t.DoubleType(), 2**53 + 1, "", "double"),
        (t.DoubleType(), 10**400, "", "double"),
        (t.DoubleType(), "1", "", "double"),
        (t.DecimalType(5, 2), Decimal("1.555"), "", "decimal(5,2)"),
        (t.DecimalType(5, 2), Decimal("1234.5"), "", "decimal(5,2)"),
        (t.DecimalType(5, 2), 1.5, "", "decimal(5,2)"),
        (t.StringType(), b"\xff", "", "string"),
        (t.BinaryType(), 5, "", "binary"),
        (t.DateType(), MOMENT, "", "date"),
        (t.TimestampType(), d.datetime(2026, 1, 1), "", "timestamp"),
        (t.TimestampNTZType(), MOMENT, "", "timestamp_ntz"),
        (t.ArrayType(t.LongType()), [1, "x"], "[1]", "bigint"),
        (t.ArrayType(t.LongType()), {"a": 1}, "", "array<bigint>"),
        (t.MapType(t.StringType(), PAIR), {"k": {"a": "x"}}, "['k'].a", "bigint"),
        (PAIR, {"c": 1}, ".c", "field of its column"),
        (PAIR, [], "", "struct<a:bigint,b:string>"),
    ],
)
def test_a_value_that_does_not_fit_says_where(kind, value, path, shown):
    with pytest.raises(Misfit) as caught:
        encoded_converter(kind)(value)
    assert (caught.value.path, caught.value.kind) == (path, shown)


def test_a_type_that_no_value_has_is_refused():
    with pytest.raises(ConfigError, match="interval"):
        encoded_converter(t.DayTimeIntervalType())
