"""sparrowmq.spark.pipelines.tables.json_values: JSON values become those of a column exactly, or not at all."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as t

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.json_values import Misfit, converter, read_object

LINES = t.StructType([t.StructField("lines", t.ArrayType(t.StructType([t.StructField("price", t.DecimalType(5, 2))])))])


def value(text):
    return read_object(b'{"a":%s}' % text)["a"]


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (t.BooleanType(), b"true", True),
        (t.ByteType(), b"-128", -128),
        (t.LongType(), b"9223372036854775807", 9223372036854775807),
        (t.DoubleType(), b"0.1", 0.1),
        (t.DoubleType(), b"9007199254740992", 9007199254740992.0),
        (t.DoubleType(), b"0.12345678901234567890", 0.12345678901234568),
        (t.FloatType(), b"0.5", 0.5),
        (t.DecimalType(5, 2), b"1.500", Decimal("1.50")),
        (t.DecimalType(38, 0), b"18446744073709551615", Decimal(18446744073709551615)),
        (t.StringType(), b'"5"', "5"),
        (t.StringType(), b'{"a":[1.50,null]}', '{"a":[1.50,null]}'),
        (t.DateType(), b'"2026-11-23"', date(2026, 11, 23)),
        (t.TimestampType(), b'"2026-11-23T10:00:00+02:00"', datetime(2026, 11, 23, 8, tzinfo=UTC)),
        (t.TimestampType(), b'"2026-11-23T10:00:00"', datetime(2026, 11, 23, 10, tzinfo=UTC)),
        (t.TimestampType(), b"1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (t.TimestampNTZType(), b'"2026-11-23T10:00:00"', datetime(2026, 11, 23, 10)),
        (t.BinaryType(), b'"AP8="', b"\x00\xff"),
        (t.ArrayType(t.IntegerType()), b"[1,null]", [1, None]),
        (t.MapType(t.StringType(), t.IntegerType()), b'{"x":1}', [("x", 1)]),
        (LINES, b'{"lines":[{"price":1.5,"more":1}]}', {"lines": [{"price": Decimal("1.50")}]}),
        (LINES, b"{}", {"lines": None}),
    ],
)
def test_a_value_that_fits_is_kept_exactly(kind, text, wanted):
    found = converter(kind)(value(text))
    assert found == wanted and type(found) is type(wanted)
    assert converter(kind)(None) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (t.BooleanType(), b"1"),
        (t.BooleanType(), b'"true"'),
        (t.ByteType(), b"128"),
        (t.IntegerType(), b"true"),
        (t.LongType(), b"9223372036854775808"),
        (t.LongType(), b"1.0"),
        (t.LongType(), b'"1"'),
        (t.DoubleType(), b"9007199254740993"),
        (t.DoubleType(), b"1e400"),
        (t.DoubleType(), b"1" * 400),
        (t.DoubleType(), b'"1.5"'),
        (t.FloatType(), b"16777217"),
        (t.FloatType(), b"1e39"),
        (t.DecimalType(5, 2), b"1.005"),
        (t.DecimalType(5, 2), b"1000"),
        (t.DecimalType(5, 2), b"1e999999999"),
        (t.StringType(), b'"\\ud800"'),
        (t.StringType(), b'{"\\ud800":1}'),
        (t.DateType(), b'"yesterday"'),
        (t.TimestampType(), b"1.5"),
        (t.TimestampType(), b"99999999999999999"),
        (t.TimestampNTZType(), b'"2026-11-23T10:00:00Z"'),
        (t.BinaryType(), b'"no base64"'),
        (t.ArrayType(t.IntegerType()), b"1"),
        (t.MapType(t.StringType(), t.IntegerType()), b"[]"),
        (LINES, b"5"),
    ],
)
def test_a_value_that_would_change_is_a_misfit(kind, text):
    with pytest.raises(Misfit) as raised:
        converter(kind)(value(text))
    assert (raised.value.path, raised.value.kind) == ("", kind.simpleString())


def test_a_misfit_inside_says_where():
    with pytest.raises(Misfit) as raised:
        converter(LINES)(value(b'{"lines":[{"price":1},{"price":"2"}]}'))
    assert (raised.value.path, raised.value.kind) == (".lines[1].price", "decimal(5,2)")


def test_types_that_no_json_becomes_are_refused_with_what_to_write():
    for kind in (
        t.CalendarIntervalType(),
        t.MapType(t.IntegerType(), t.StringType()),
        t.ArrayType(t.NullType()),
        t.VarcharType(3),
    ):
        with pytest.raises(ConfigError, match="is no type for JSON; write the column as string"):
            converter(kind)
