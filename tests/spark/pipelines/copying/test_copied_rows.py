"""sparrowmq.spark.pipelines.message_copies: rows of Spark as messages to copy."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.message_copies import read_originals


def batch(**changed):
    row = {
        "topic": "t",
        "brokerName": "b",
        "queueId": 2,
        "queueOffset": 9,
        "bornTimestamp": datetime(2026, 1, 31, tzinfo=UTC),
        "flag": 4,
        "sysFlag": 1,
        "properties": [("TAGS", "paid")],
        "body": b"x",
    }
    kinds = {"properties": pa.map_(pa.string(), pa.string()), "bornTimestamp": pa.timestamp("us", "UTC")}
    return pa.RecordBatch.from_pydict(
        {name: pa.array([value], kinds.get(name)) for name, value in (row | changed).items()}
    )


def test_a_row_is_the_message_that_it_was_read_from():
    (found,) = read_originals(batch())
    assert found.queue == MessageQueue("t", "b", 2)
    assert (found.offset, found.flag, found.sys_flag, found.body) == (9, 4, 1, b"x")
    assert found.properties == {"TAGS": "paid"}
    assert found.born_ms == 1_769_817_600_000


def test_what_a_row_lacks_is_nothing_or_now():
    (found,) = read_originals(batch(bornTimestamp=None, properties=None, body=None, flag=None))
    assert (found.flag, found.body, found.properties) == (0, b"", {})
    assert found.born_ms > 1_769_817_600_000
