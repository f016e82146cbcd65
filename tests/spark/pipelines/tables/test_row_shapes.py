"""sparrowmq.spark.pipelines.tables.row_shapes: messages become rows, or errors with a reason."""

from datetime import UTC, date, datetime

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.row_shapes import Objects, Raw, declared_fields

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

STORED = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, bornTimestamp timestamp, "
    "storeTimestamp timestamp, keys string, tags string, properties map<string,string>, body binary"
)


def messages(spark, *bodies):
    rows = [
        ("T", "b", 0, at, f"id-{at}", STORED, STORED, "k", "t", {"p": "v"}, body)
        for at, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def split(spark, fields, *bodies):
    good, bad = Objects(fields).split(messages(spark, *bodies))
    return [row.asDict() for row in good.collect()], {row._mq.queueOffset: row for row in bad.collect()}


def test_raw_rows_have_all_of_a_message(spark):
    good, bad = Raw().split(messages(spark, b"\x00\xff"))
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
    fields = {"id": "bigint", "a b": "string", "within": "string", "ok": "boolean"}
    good, bad = split(
        spark, fields, b'{"id":1,"a b":"x","within":{"a":[1]},"ok":true,"more":1}', b"{}", b'{"ID":2}'
    )
    assert not bad
    values = [tuple(row[name] for name in fields) for row in good]
    assert values == [(1, "x", '{"a":[1]}', True), (None, None, None, None), (None, None, None, None)]
    assert [row["_mq"].queueOffset for row in good] == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (None, "the body is empty"),
        (b"no json", "the body is not JSON"),
        (b'{"id":1', "the body is not JSON"),
        (b'{"id":"\xff"}', "the body is not UTF-8"),
        (b"[1,2]", "the body is JSON, but no object"),
        (b"7", "the body is JSON, but no object"),
        (b'{"id":"x"}', "id is no bigint"),
        (b'{"id":1.5,"it\'s":"x"}', "id is no bigint, it's is no double"),
        (b'{"id":99999999999999999999}', "id is no bigint"),
    ],
)
def test_what_is_no_row_becomes_an_error_with_place_reason_and_bytes(spark, body, reason):
    good, bad = split(spark, {"id": "bigint", "it's": "double"}, b'{"id":1}', body, b'{"id":3}')
    assert [row["id"] for row in good] == [1, 3]
    assert list(bad) == [1]
    assert bad[1].reason == reason
    assert bad[1].body == (bytearray(body) if body is not None else None)
    assert bad[1]._day == date(2026, 1, 31)


def test_a_schema_names_columns_and_may_nest(spark):
    fields = declared_fields("id BIGINT, name string, within struct<a: array<int>>")
    assert fields == {"id": "bigint", "name": "string", "within": "struct<a:array<int>>"}
    good, bad = split(spark, fields, b'{"id":1,"within":{"a":[1,2]}}', b'{"id":1,"within":5}')
    assert good[0]["within"].a == [1, 2]
    assert bad[1].reason.startswith("within is no struct")


@pytest.mark.parametrize("ddl", ["", "id", "id nothing", "int", "a int,"])
def test_what_is_no_schema_is_told(spark, ddl):
    with pytest.raises(ConfigError, match="write it as `id bigint, name string`"):
        declared_fields(ddl)


@pytest.mark.parametrize("names", [["_mq"], ["_day"], ["_DAY"], ["id", "Id"]])
def test_names_that_a_table_cannot_have_are_refused(names):
    with pytest.raises(ConfigError, match=r"the bodies have (a field|fields)"):
        Objects(dict.fromkeys(names, "string"))
