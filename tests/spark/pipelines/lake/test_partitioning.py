"""sparrowmq.spark.pipelines.lake.partitioning: the fields and transforms by which tables are divided."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, NULL, Layout, Partitioning, escape_text

STORED_AT = datetime(2026, 1, 31, 5, 59, tzinfo=UTC)


def rows(**columns):
    count = len(next(iter(columns.values()))) if columns else 1
    stored = pa.array([STORED_AT] * count, pa.timestamp("us", "UTC"))
    arrays = {name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in columns.items()}
    own = {
        "_mq": pa.StructArray.from_arrays([stored], ["storeTimestamp"]),
        "_day": pa.array([STORED_AT.date()] * count, pa.date32()),
    }
    return pa.RecordBatch.from_pydict(own | arrays)


def paths(text, *, empty_is_null=False, **columns):
    return Partitioning.parse(text).paths(rows(**columns), empty_is_null=empty_is_null).to_pylist()


@pytest.mark.parametrize(
    ("given", "said", "names", "derived"),
    [
        ("day", "day", ("_day",), ()),
        (" _day ", "day", ("_day",), ()),
        ("HOUR", "hour", ("_hour",), ("_hour",)),
        ("none", "none", (), ()),
        ("country, bucket(16, id)", "country, bucket(16, id)", ("country", "id_bucket"), ("id_bucket",)),
        ("bucket(id,16)", "bucket(16, id)", ("id_bucket",), ("id_bucket",)),
        ("Truncate( 4 , name )", "truncate(4, name)", ("name_trunc",), ("name_trunc",)),
        ("days(paid),identity(country)", "day(paid), country", ("paid_day", "country"), ("paid_day",)),
        (
            "`day`, `16`, bucket(4, `7`)",
            "`day`, `16`, bucket(4, `7`)",
            ("day", "16", "7_bucket"),
            ("7_bucket",),
        ),
    ],
)
def test_a_partition_is_written_as_iceberg_and_its_sinks_write_it(given, said, names, derived):
    found = Partitioning.parse(given)
    assert (str(found), found.names, found.derived_names) == (said, names, derived)
    assert Partitioning.parse(said) == found


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "cannot be read from '' on"),
        (",", "cannot be read from ',' on"),
        ("a,,b", "cannot be read from ',b' on"),
        ("a(b", "cannot be read"),
        ("bucket(0, id)", "bucket of 0; write 1 to 10,000"),
        (f"bucket({'9' * 5000}, id)", f"bucket of {'9' * 20}; write 1 to 10,000"),
        ("truncate(2147483648, id)", "write 1 to 2,147,483,647"),
        ("bucket(id)", "bucket without a number and a field; write bucket(16, id)"),
        ("bucket(1, 2)", "bucket without a number and a field"),
        ("bucket(a, b)", "bucket without a number and a field"),
        ("bucket", "lacks the field of bucket"),
        ("hash(id)", "has hash, which is none of identity, bucket, truncate, year, month, day, hour"),
        ("day()", "day without one field"),
        ("order.country", "has the nested field order.country"),
        ("bucket(16, order.id)", "has the nested field order.id"),
        ("_mq", "a column that each table has itself"),
        ("month(_day)", "write month for the store time"),
        ("a b", "no name of a field"),
        ("16", "no name of a field"),
        ("none, day", "write none alone"),
        ("country, country", "two fields of the name country"),
        ("day, hour", "two fields of the time of storing"),
        ("year(paid), month(paid)", "two fields of the time paid"),
        ("a, b, c, d, e", "has 5 fields; write at most 4"),
    ],
)
def test_a_partition_that_cannot_be_is_refused_with_what_to_write(given, why):
    with pytest.raises(ConfigError) as caught:
        Partitioning.parse(given)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 250 + min(len(given), 5001)


@pytest.mark.parametrize(
    ("text", "columns", "found"),
    [
        ("day", {}, ["_day=2026-01-31"]),
        ("hour", {}, ["_hour=2026-01-31-05"]),
        ("month", {}, ["_month=2026-01"]),
        ("year", {}, ["_year=2026"]),
        ("none", {}, [""]),
        ("country", {"country": ["DE", None]}, ["country=DE", f"country={NULL}"]),
        ("country", {}, [f"country={NULL}"]),
        ("country, day", {"country": ["DE"]}, ["country=DE/_day=2026-01-31"]),
        ("paid", {"paid": [True, False, None]}, ["paid=true", "paid=false", f"paid={NULL}"]),
        ("price", {"price": [Decimal("1.50")]}, ["price=1.50"]),
        ("truncate(10, n)", {"n": [-1, 0, 19]}, ["n_trunc=-10", "n_trunc=0", "n_trunc=10"]),
        ("truncate(50, price)", {"price": [Decimal("10.65")]}, ["price_trunc=10.50"]),
        ("truncate(2, name)", {"name": ["ünal", "u"]}, ["name_trunc=ün", "name_trunc=u"]),
        ("day(due)", {"due": [date(1, 2, 3)]}, ["due_day=0001-02-03"]),
        (
            "hour(at)",
            {"at": pa.array([-1, None], pa.timestamp("us", "UTC"))},
            ["at_hour=1969-12-31-23", f"at_hour={NULL}"],
        ),
    ],
)
def test_each_row_has_the_path_of_its_partition(text, columns, found):
    assert paths(text, **columns) == found


@pytest.mark.parametrize(
    ("values", "hashed"),
    [
        (pa.array([34], pa.int64()), 2017239379),
        (pa.array([34], pa.int32()), 2017239379),
        (pa.array(["iceberg"]), 1210000089),
        (pa.array([Decimal("14.20")]), -500754589),
        (pa.array([date(2017, 11, 16)]), -653330422),
        (pa.array([datetime(2017, 11, 16, 22, 31, 8)], pa.timestamp("us")), -2047944441),
    ],
)
def test_buckets_are_those_of_the_appendix_of_icebergs_specification(values, hashed):
    assert paths("bucket(1000, id)", id=values) == [f"id_bucket={(hashed & 0x7FFFFFFF) % 1000}"]


@pytest.mark.parametrize("text", ["a b", "a/b", "a=b", "50%", "%2F", "#?", "..", NULL, "é", "\0\n", "", "null"])
def test_a_text_comes_back_from_its_path(text):
    partitioning = Partitioning.parse("country, tag")
    (path,) = paths("country, tag", country=[text], tag=["x"])
    assert partitioning.values(path) == {"country": text, "tag": "x"}
    assert partitioning.path_for(partitioning.values(path)) == path
    assert partitioning.partition_of_file(f"/lake/a=b/{path}/f.parquet") == path
    assert path.count("/") == 1 and "\0" not in path


def test_an_empty_text_is_a_null_where_folders_are_the_values():
    assert paths("country", country=["", "a"], empty_is_null=True) == [f"country={NULL}", "country=a"]


def test_what_spark_leaves_as_it_is_stays():
    assert escape_text("Übersee & a-b_c.d~e,f;g") == "Übersee & a-b_c.d~e,f;g"


@pytest.mark.parametrize("keeps", [True, False])
def test_rows_are_divided_by_partition_in_their_order(keeps):
    layout = Layout(Partitioning.parse("country, bucket(2, n)"), keeps)
    given = rows(country=["b", "a", "b", None], n=[1, 1, 1, 1])
    found = [(path, some.column("n").to_pylist(), some.schema.names) for path, some in layout.split_rows(given)]
    names = ["_mq", "_day", "country", "n"] if keeps else ["_mq", "_day", "n"]
    assert sorted(path for path, _, _ in found) == [path for path, _, _ in found]
    assert {path.split("/")[0]: (ns, has) for path, ns, has in found} == {
        f"country={NULL}": ([1], names),
        "country=a": ([1], names),
        "country=b": ([1, 1], names),
    }
    assert layout.file_schema(given.schema).names == names
    assert list(layout.split_rows(given.slice(0, 0))) == []


def test_rows_keep_their_order_within_a_partition():
    layout = Layout(Partitioning.parse("country"), False)
    given = rows(country=["b", "a"] * 500, n=list(range(1000)))
    found = {path: some.column("n").to_pylist() for path, some in layout.split_rows(given)}
    assert found == {"country=a": list(range(1, 1000, 2)), "country=b": list(range(0, 1000, 2))}


def test_the_columns_that_only_paths_have_come_back():
    layout = Layout(Partitioning.parse("country, day"), False)
    schema = rows(country=["x"], n=[1]).schema
    table = pa.table({"n": [1, 2]})
    whole = layout.add_path_columns(table, "country=a%2Fb/_day=2026-01-31", schema)
    assert whole.to_pylist()[1] == {"n": 2, "country": "a/b", "_day": date(2026, 1, 31)}


def test_derived_columns_have_a_type():
    found = Partitioning.parse("hour, bucket(4, id), truncate(2, name), day(due)").columns(
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("due", pa.date32())])
    )
    assert [(field.name, str(field.type)) for field in found][3:] == [
        ("_hour", "string"), ("id_bucket", "int32"), ("name_trunc", "string"), ("due_day", "date32[day]"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path", "first", "limit", "sql"),
    [
        ("day", "_day=2026-01-31", date(2026, 1, 31), date(2026, 3, 5), "_day < CAST('2026-03-05' AS DATE)"),
        ("hour", "_hour=2026-01-31-23", date(2026, 1, 31), date(2026, 3, 5), "_hour < '2026-03-05-00'"),
        ("month", "_month=2026-01", date(2026, 1, 1), date(2026, 3, 1), "_month < '2026-03'"),
        ("a, year", "a=x/_year=2026", date(2026, 1, 1), date(2026, 1, 1), "_year < 2026"),
    ],
)
def test_old_partitions_are_known_by_the_store_time(text, path, first, limit, sql):
    found = Partitioning.parse(text)
    assert found.first_day(path) == first
    assert found.period_start(date(2026, 3, 5)) == limit
    assert found.sql_before(limit) == sql
    assert found.starts_before(path, first) is False


def test_a_table_without_days_has_no_old_ones():
    found = Partitioning.parse("country, day(paid)")
    assert found.starts_before(f"country={NULL}/paid_day=2026-01-01", date.min)
    with pytest.raises(ConfigError, match=r"leave keep_days out, or begin .* country, day\(paid\), day"):
        found.period_start(date.max)


def test_the_default_is_the_day():
    assert str(BY_DAY) == "day" and BY_DAY.pattern == "_day=*/*.parquet"
