"""sparrowmq.spark.source.row_reader: rows are made of records."""

from datetime import UTC, datetime

import pyarrow as pa

from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.columns import RecordColumns
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.schema import COLUMNS, KAFKA_COLUMNS
from sparrowmq.spark.source.partition_ranges import Range
from sparrowmq.spark.source.row_reader import Rows
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


def records(count=2, body=b"hi", topic="T", queue_id=3):
    host = hosts.pack("10.0.0.1:10911")
    return b"".join(
        encoded(
            topic=topic,
            queue_id=queue_id,
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


def rows(kinds, wanted=None, body=b"hi", **given):
    schema = pa.schema([(name, ARROW[kind]) for name, kind in kinds.items()])
    batch = Rows(schema, options(**given)).batch(RecordColumns(records(body=body)), "broker-a", wanted)
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


def test_partitions_have_their_own_numbers_also_if_an_answer_has_several_queues():
    queues = [MessageQueue(topic, "broker-a", queue_id) for topic in ("T", "U") for queue_id in (3, 4)]
    ranges = [Range(queue, 0, 9, None, number) for queue, number in zip(queues, (7, 1, 0, 5), strict=True)]
    mixed = records(topic="U") + records(queue_id=4) + records() + records(queue_id=4, topic="U")
    schema = pa.schema([("partition", pa.int32()), ("topic", pa.string())])
    made = Rows(schema, options(kafkaCompat="true"), ranges).batch(RecordColumns(mixed), "broker-a")
    assert made["partition"].to_pylist() == [0, 0, 1, 1, 7, 7, 5, 5]
    elsewhere = Rows(schema, options(kafkaCompat="true"), ranges).batch(RecordColumns(mixed), "broker-b")
    assert elsewhere["partition"].to_pylist() == [3, 3, 4, 4, 3, 3, 4, 4]


def test_a_body_is_shown_as_text_when_the_schema_says_so():
    assert rows({"BODY": "string"}, body="naïve".encode()) == [{"BODY": "naïve"}] * 2
    assert rows({"body": "string"}, body=b"\xff") == [{"body": "�"}] * 2
    assert rows({"key": "string"}, kafkaCompat="true") == [{"key": "k1"}] * 2


def test_only_the_wanted_rows_are_made():
    assert rows({"queueOffset": "bigint"}, pa.array([False, True])) == [{"queueOffset": 1}]
