"""sparrowmq.spark.source.row_batches: rows are made of records."""

from datetime import UTC, datetime

import pyarrow as pa

from sparrowmq.protocol import hosts
from sparrowmq.spark.columns.records import RecordColumns
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.schema import COLUMNS, KAFKA_COLUMNS
from sparrowmq.spark.source.row_batches import Rows
from tests.records import encoded

ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "array<struct<key:string,value:binary>>": pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}
PROPERTIES = b"KEYS\x01k1\x02TAGS\x01paid\x02"


def options(**given):
    return parse(SourceOptions, {"nameServer": "a:1", "topic": "T"} | given)


def records(count=2, body=b"hi"):
    host = hosts.pack("10.0.0.1:10911")
    return RecordColumns(
        b"".join(
            encoded(
                topic="T",
                queue_id=3,
                flag=0,
                queue_offset=offset,
                physical_offset=0,
                sys_flag=0,
                born_timestamp_ms=0,
                born_host=host,
                store_timestamp_ms=1,
                store_host=host,
                reconsume_times=0,
                prepared_offset=0,
                body=body,
                properties=PROPERTIES,
            )
            for offset in range(count)
        )
    )


def rows(kinds, wanted=None, body=b"hi", **given):
    schema = pa.schema([(name, ARROW[kind]) for name, kind in kinds.items()])
    batch = Rows(schema, options(**given)).batch(records(body=body), "broker-a", wanted)
    batch.validate(full=True)
    assert batch.schema == schema
    return batch.to_pylist()


def test_rows_have_what_the_table_promises():
    first, second = rows(COLUMNS)
    assert first == second | {"queueOffset": 0}
    assert first["brokerName"] == "broker-a"
    assert first["topic"] == "T"
    assert first["properties"] == [("KEYS", "k1"), ("TAGS", "paid")]


def test_kafkas_columns_are_filled_from_ours():
    assert rows(KAFKA_COLUMNS, kafkaCompat="true")[1] == {
        "key": b"k1",
        "value": b"hi",
        "topic": "T",
        "partition": 3,
        "offset": 1,
        "timestamp": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        "timestampType": 1,
        "headers": [{"key": "KEYS", "value": b"k1"}, {"key": "TAGS", "value": b"paid"}],
    }


def test_a_body_is_shown_as_text_when_the_schema_says_so():
    assert rows({"BODY": "string"}, body="naïve".encode()) == [{"BODY": "naïve"}] * 2
    assert rows({"body": "string"}, body=b"\xff") == [{"body": "�"}] * 2
    assert rows({"key": "string"}, kafkaCompat="true") == [{"key": "k1"}] * 2


def test_only_the_wanted_rows_are_made():
    assert rows({"queueOffset": "bigint"}, pa.array([False, True])) == [{"queueOffset": 1}]
