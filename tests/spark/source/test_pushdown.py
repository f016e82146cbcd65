"""sparrowmq.spark.source.batch_source: filters spare reading, and never a row that is wanted."""

import pickle
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from sparrowmq.spark.source.batch_source import FilteringReader

SCHEMA = pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64())])
BASE_MS = 1_700_000_000_000


@pytest.fixture
def read(peer, connect):
    """The rows that are read for some filters, before Spark applies these itself."""
    for queue_id in (0, 1):
        peer.store(
            "T",
            queue_id,
            [b"x"] * 50,
            lambda offset: b"TAGS\x01%s\x02" % (b"paid" if offset % 2 else b"open"),
            lambda offset: BASE_MS + offset,
        )

    def read(*filters, schema=SCHEMA, **given):
        reader = FilteringReader(peer.source(**{"topic": "T"} | given), schema)
        assert list(reader.pushFilters(list(filters))) == list(filters)  # Spark applies all of them again
        reader = pickle.loads(pickle.dumps(reader))
        rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
        return sorted(tuple(row.values()) for row in rows)

    return read


def test_a_partition_is_looked_for_by_its_number(peer, read):
    columns = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])
    given = {"schema": columns, "kafkaCompat": "true", "assign": '{"T":{"broker-a":[1]}}', "topic": None}
    assert read(In(("partition",), (1, 7)), **given) == expected(0, 50, 1)
    assert read(EqualTo(("partition",), 0), **given) == []


def expected(first, end, *queues):
    return [(queue_id, offset) for queue_id in queues or (0, 1) for offset in range(first, end)]


def at(offset, micros=0):
    """When the message of an offset was stored, and some microseconds."""
    return datetime.fromtimestamp((BASE_MS + offset) // 1000, UTC).replace(
        microsecond=(BASE_MS + offset) % 1000 * 1000 + micros
    )


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (EqualTo(("queueId",), 1), expected(0, 50, 1)),
        (EqualNullSafe(("QUEUEID",), 1), expected(0, 50, 1)),
        (LessThan(("queueId",), 1), expected(0, 50, 0)),
        (EqualTo(("topic",), "U"), []),
        (EqualTo(("brokerName",), "broker-a"), expected(0, 50)),
        (EqualTo(("queueOffset",), 7), expected(7, 8)),
        (In(("queueOffset",), (7, 9)), expected(7, 10)),
        (GreaterThan(("offset",), 40), expected(41, 50)),
        (GreaterThanOrEqual(("queueOffset",), 40), expected(40, 50)),
        (LessThan(("queueOffset",), 3), expected(0, 3)),
        (LessThanOrEqual(("queueOffset",), 3), expected(0, 4)),
        (GreaterThanOrEqual(("storeTimestamp",), at(40)), expected(40, 50)),
        (LessThan(("storeTimestamp",), at(5, 1)), expected(0, 6)),
        (LessThanOrEqual(("storeTimestamp",), at(5)), expected(0, 6)),
        (EqualTo(("timestamp",), at(5)), expected(5, 6)),
        (EqualTo(("tags",), "paid"), expected(0, 50)[1::2]),
        (In(("tags",), ("paid", "open")), expected(0, 50)),
        (Not(EqualTo(("queueId",), 1)), expected(0, 50)),
        (IsNotNull(("queueId",)), expected(0, 50)),
        (EqualTo(("properties", "queueId"), 1), expected(0, 50)),
        (In(("queueId",), (1, None)), expected(0, 50)),
        (EqualTo(("tags",), "a || b"), expected(0, 50)),
    ],
)
def test_a_filter_reads_what_it_wants(read, wanted, rows):
    assert read(wanted) == rows


def test_later_than_a_time_has_no_less_than_it_wants(read):
    assert set(expected(41, 50)) <= set(read(GreaterThan(("storeTimestamp",), at(40)))) <= set(expected(40, 50))
    assert set(expected(41, 50)) <= set(read(GreaterThan(("storeTimestamp",), at(40, 999))))


def test_filters_hold_together(read, peer):
    wanted = [
        EqualTo(("queueId",), 0),
        GreaterThan(("queueOffset",), 9),
        LessThan(("storeTimestamp",), at(15)),
        EqualTo(("tags",), "paid"),
    ]
    assert read(*wanted) == [(0, 11), (0, 13), (0, 15)]  # the last by its millisecond
    assert read(EqualTo(("tags",), "paid"), EqualTo(("tags",), "open")) == []
    assert read(GreaterThan(("queueOffset",), 9), LessThan(("queueOffset",), 5)) == []
    assert read(EqualTo(("queueId",), 0), startingOffsets='{"T":{"broker-a":{"0":48,"1":-2}}}') == expected(48, 50, 0)


def test_what_a_filter_does_not_want_is_not_asked_for(read, peer):
    read(EqualTo(("queueId",), 0), GreaterThan(("queueOffset",), 44))
    pulls = [fields for code, fields in peer.asked if code == 11]
    assert {(fields["queueId"], fields["queueOffset"]) for fields in pulls} == {("0", "45")}
    peer.asked.clear()
    read(EqualTo(("tags",), "paid"))
    assert {fields["subscription"] for code, fields in peer.asked if code == 11} == {"paid"}
    peer.asked.clear()
    read(EqualTo(("tags",), "paid"), subExpression="open")
    assert {fields["subscription"] for code, fields in peer.asked if code == 11} == {"open"}


def test_without_filters_everything_is_read(read):
    assert read() == expected(0, 50)
