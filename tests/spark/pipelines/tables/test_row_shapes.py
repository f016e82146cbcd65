"""sparrowmq.spark.pipelines.tables.row_shapes: messages become rows, or errors with a reason."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, RawMessages, parse_fields, rows_after

pytestmark = pytest.mark.timeout(240)

STORED = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, bornTimestamp timestamp, "
    "storeTimestamp timestamp, keys string, tags string, properties map<string,string>, body binary"
)


def messages(spark, *bodies):
    rows = [("T", "b", 0, at, f"id-{at}", STORED, STORED, "k", "t", {"p": "v"}, body) for at, body in enumerate(bodies)]
    return spark.createDataFrame(rows, COLUMNS)


def split(spark, fields, *bodies, is_closed=False):
    good, bad = Objects(fields, is_closed=is_closed).split(messages(spark, *bodies))
    return [row.asDict() for row in good.collect()], {row._mq.queueOffset: row for row in bad.collect()}


def test_raw_rows_have_all_of_a_message(spark):
    good, bad = RawMessages().split(messages(spark, b"\x00\xff"))
    assert bad is None
    (row,) = good.collect()
    assert (row._mq.topic, row._mq.queueOffset, row._mq.msgId, row._day) == (
        "T",
        0,
        "id-0",
        date(2026, 1, 31),
    )
    assert (row["keys"], row.tags, row.properties, bytes(row.body)) == ("k", "t", {"p": "v"}, b"\x00\xff")


def test_objects_become_columns(spark):
    fields = {"id": "bigint", "a b": "string", "within": "string", "ok": "boolean", "a.b`c": "decimal(38,0)"}
    body = b'{"id":1,"a b":"x","within":{"a":[1.50]},"ok":true,"a.b`c":18446744073709551615}'
    good, bad = split(spark, fields, body, b"{}")
    assert not bad
    values = [tuple(row[name] for name in fields) for row in good]
    assert values == [(1, "x", '{"a":[1.50]}', True, Decimal(18446744073709551615)), (None,) * 5]
    assert [row["_mq"].queueOffset for row in good] == [0, 1]
    assert good[0]["_mq"].storeTimestamp.timestamp() == STORED.timestamp()


def test_rows_behind_a_place_are_found_by_the_messages_and_not_by_their_bodies(spark):
    fields = {"queueOffset": "bigint", "topic": "string"}
    rows, _ = Objects(fields, is_closed=True).split(messages(spark, *[b'{"queueOffset":0,"topic":"T"}'] * 3))
    found = rows_after({MessageQueue("T", "b", 0): 2}, rows).collect()
    assert [row["_mq"].queueOffset for row in found] == [2]


def test_what_is_no_row_becomes_an_error_with_place_reason_and_bytes(spark):
    bodies = [b"", None, b"no json", b'{"id":"x"}', b'{"id":1,"ID":2}']
    good, bad = split(spark, {"id": "bigint"}, *bodies, b'{"id":3}')
    assert [row["id"] for row in good] == [3]
    assert sorted(bad) == list(range(len(bodies))) and all(row.reason for row in bad.values())
    assert [bad[place].body for place in sorted(bad)] == bodies
    assert {row._day for row in bad.values()} == {date(2026, 1, 31)}


def test_a_schema_names_columns_and_may_nest(spark):
    fields = parse_fields("id BIGINT, name string, within struct<a: array<int>>", spark)
    assert fields == {"id": "bigint", "name": "string", "within": "struct<a:array<int>>"}
    bodies = [
        b'{"id":1,"within":{"a":[1,2]},"more":1}',
        b'{"id":1,"within":5}',
        b'{"id":1,"within":{"a":[1,"x"]}}',
    ]
    good, bad = split(spark, fields, *bodies, is_closed=True)
    assert good[0]["within"].a == [1, 2]
    assert bad[1].reason == "within is no struct<a:array<int>>"
    assert bad[2].reason == "within.a[1] is no int"


@pytest.mark.parametrize("ddl", ["", "id", "id nothing", "int", "a int,"])
def test_what_is_no_schema_is_told(spark, ddl):
    with pytest.raises(ConfigError, match="write it as `id bigint, name string`"):
        parse_fields(ddl, spark)


@pytest.mark.parametrize(
    ("ddl", "complaint"),
    [
        ("_mq int", "beside _mq, which the table has itself"),
        ("_DAY date", "beside _day, which the table has itself"),
        ("id int, Id int", "names the column Id beside id"),
        ("id interval", "is no type for JSON"),
    ],
)
def test_columns_that_a_table_cannot_have_are_refused(spark, ddl, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse_fields(ddl, spark)
