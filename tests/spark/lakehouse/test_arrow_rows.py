"""sparrowmq.spark.lakehouse.batch_parts: messages as rows, and bodies that are none as rejects with the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType

from sparrowmq.spark.lakehouse.batch_parts import ArrowRows

LATE = datetime(2026, 1, 31, 23, 59, 59, 999_999, UTC)


def messages(shape, bodies):
    values = {
        "topic": "orders", "brokerName": "a", "queueId": 1, "msgId": "m", "bornTimestamp": LATE, "storeTimestamp": LATE,
        "keys": "k", "tags": "t", "properties": [("x", "y")],
    }  # fmt: skip
    rows = [{**values, "queueOffset": at, "body": body} for at, body in enumerate(bodies)]
    return pa.RecordBatch.from_pylist(
        [{name: row[name] for name in shape.columns} for row in rows], schema=shape.source_schema
    )


def test_raw_messages_are_rows_as_they_are_on_the_day_they_were_stored():
    shape = ArrowRows("raw")
    split = shape.split(messages(shape, [b"a", None]))
    assert split.errors.num_rows == 0 and split.rows.schema == shape.schema
    first, second = split.rows.to_pylist()
    assert (first["_day"], first["body"], second["body"]) == (date(2026, 1, 31), b"a", None)
    assert first["_mq"]["storeTimestamp"] == LATE and second["_mq"]["queueOffset"] == 1
    assert (first["keys"], first["tags"], first["properties"]) == ("k", "t", [("x", "y")])


def test_bodies_that_fit_are_rows_and_the_others_are_rejects_with_the_reason():
    shape = ArrowRows("json", {"id": LongType(), "name": StringType()})
    bodies = [b'{"id":1,"name":"x"}', b"-", b'{"id":"x"}', b'{"id":2,"new":1}', b'{"id":3}']
    split = shape.split(messages(shape, bodies))
    assert [(row["id"], row["name"]) for row in split.rows.to_pylist()] == [(1, "x"), (3, None)]
    assert [row["_mq"]["queueOffset"] for row in split.rows.to_pylist()] == [0, 4]
    errors = split.errors.to_pylist()
    assert [(row["_mq"]["queueOffset"], row["body"]) for row in errors] == [(at, bodies[at]) for at in (1, 2, 3)]
    assert [row["reason"] for row in errors][:2] == ["the body is not JSON", "id is no bigint"]
    assert split.rows.schema == shape.schema and split.errors.schema == shape.error_schema


def test_a_schema_leaves_out_what_it_has_no_column_for():
    shape = ArrowRows("schema", {"id": LongType()})
    split = shape.split(messages(shape, [b'{"id":2,"new":1}']))
    assert [row["id"] for row in split.rows.to_pylist()] == [2] and split.errors.num_rows == 0


def test_no_messages_are_no_rows():
    for shape in (ArrowRows("raw"), ArrowRows("json", {"id": LongType()})):
        split = shape.split(messages(shape, []))
        assert (split.rows.num_rows, split.errors.num_rows) == (0, 0)
