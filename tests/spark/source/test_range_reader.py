"""sparrowmq.spark.source.row_reader: pulled rows as batches, filtered exactly."""

import gc
import zlib

import pyarrow as pa
import pytest

from sparrowmq.core.process import freeze_loaded_objects
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from sparrowmq.spark.source.partition_ranges import Range, RowsLost
from sparrowmq.spark.source.pulls import PullAnswer
from sparrowmq.spark.source.row_reader import BATCH_BYTES, INFLATED_BYTES, BadRecord, Rows, merge_answers, read
from tests.spark.peer import BROKER

SCHEMA = pa.schema([("queueOffset", pa.int64()), ("tags", pa.string())])


def span(start, end, queue_id=0, broker=BROKER):
    return Range(MessageQueue("T", broker, queue_id), start, end)


@pytest.fixture
def table(peer, connect):
    """The rows that reading gives, and how many batches they came in."""

    def table(*ranges, **given):
        options = peer.source(topic="T", **given)
        batches = list(read(connect(), ranges, Rows(SCHEMA, options), options))
        assert all(batch.num_rows for batch in batches)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], len(batches)

    return table


def test_small_answers_are_put_together(peer, table):
    peer.store("T", 0, [b"x"] * 500)
    peer.store("T", 1, [b"x"] * 500)
    peer.per_pull = 32
    rows, batches = table(span(0, 500), span(0, 500, 1))
    assert rows == [(offset, None) for offset in [*range(500), *range(500)]]
    assert batches == 1


def test_a_worker_of_spark_looks_for_garbage_only_in_what_came_after_its_first_rows(peer, table):
    peer.store("T", 0, [b"x"])
    freeze_loaded_objects.cache_clear()
    loaded: list[list[int]] = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    table(span(0, 1))
    assert gc.get_freeze_count() >= before + len(loaded)


WHOLE = span(0, 9)


def pulled(size, queue=WHOLE, count=9, reaches_beyond=False):
    return PullAnswer(queue, b"x" * size, count, reaches_beyond)


def test_batches_end_at_their_size_at_another_broker_and_where_rows_must_be_cut():
    half, other = BATCH_BYTES // 2, span(0, 9, broker="broker-b")
    sizes = [(len(each.body), each.count) for each in merge_answers([pulled(half), pulled(half), pulled(5)])]
    assert sizes == [(2 * half, 18), (5, 9)]
    found = list(merge_answers([pulled(1), pulled(2, other), pulled(3, other)]))
    assert [(each.range, len(each.body)) for each in found] == [(span(0, 9), 1), (other, 5)]
    found = list(merge_answers([pulled(1), pulled(2, reaches_beyond=True), pulled(3)]))
    assert [(len(each.body), each.reaches_beyond) for each in found] == [(1, False), (2, True), (3, False)]
    assert [each.count for each in merge_answers([pulled(1), pulled(1, count=None)])] == [None]
    assert list(merge_answers([])) == []


# "Aa" and "BB" have the same hash in Java, so a broker lets both through.
def test_tags_are_compared_themselves_and_ranges_kept(peer, table):
    tags = [b"Aa", b"BB", b"Aa", b""]
    peer.store("T", 0, [b"x"] * 40, lambda offset: b"TAGS\x01%s\x02" % tags[offset % 4] if tags[offset % 4] else b"")
    assert table(span(4, 11), subExpression="Aa")[0] == [(4, "Aa"), (6, "Aa"), (8, "Aa"), (10, "Aa")]
    assert table(span(0, 4), subExpression="Aa || absent")[0] == [(0, "Aa"), (2, "Aa")]
    assert table(span(0, 40), subExpression="absent") == ([], 0)


def test_messages_missing_inside_an_answer_are_noticed(peer, table):
    peer.store("T", 0, [b"x"] * 10)
    peer.queues["T"][0][4] = b""
    with pytest.raises(RowsLost, match="1 messages of"):
        table(span(0, 10))
    assert len(table(span(0, 10), failOnDataLoss="false")[0]) == 9


BODIES = pa.schema([("queueOffset", pa.int64()), ("body", pa.binary())])


@pytest.fixture
def batches(peer, connect):
    def batches(count, schema=BODIES, **given):
        options = peer.source(topic="T", **given)
        return read(connect(), [span(0, count)], Rows(schema, options), options)

    return batches


def test_small_bodies_that_inflate_to_much_come_in_bounded_batches(peer, batches):
    body = bytes(3 << 20)
    peer.store("T", 0, [zlib.compress(body)] * 60, sys_flag=SysFlag.COMPRESSED)
    count = 0
    for batch in batches(60):
        assert batch.nbytes < INFLATED_BYTES + (1 << 20)
        assert batch.column("queueOffset").to_pylist() == list(range(count, count + len(batch)))
        assert all(found.as_py() == body for found in batch.column("body"))
        count += len(batch)
    assert count == 60
    (single,) = batches(60, pa.schema([("queueOffset", pa.int64())]))  # nothing is inflated that nobody wants
    assert len(single) == 60


def test_a_damaged_body_ends_the_query_or_is_null(peer, batches, caplog):
    good = zlib.compress(b"good")
    peer.store("T", 0, [good, b"bad", good], sys_flag=SysFlag.COMPRESSED)
    for given in ({}, {"badRecords": "fail", "failOnDataLoss": "false"}):
        with pytest.raises(BadRecord, match=r"offset 1 of T@broker-a\[0\]"):
            list(batches(3, **given))
    for given in ({"failOnDataLoss": "false"}, {"badRecords": "null"}):
        (batch,) = batches(3, **given)
        assert batch.column("body").to_pylist() == [b"good", None, b"good"]
        assert "offset 1 of T@broker-a[0]" in caplog.text
        caplog.clear()
    (batch,) = batches(3, decompress="false")
    assert batch.column("body").to_pylist() == [good, b"bad", good]


def test_a_reader_that_is_dropped_half_way_leaves_no_answers_behind(peer, connect):
    peer.store("T", 0, [b"x" * 30_000] * 400)
    peer.per_pull = 32
    options = peer.source(topic="T", pullBatchSize="32")
    network = connect()
    rows = read(network, [span(0, 400)], Rows(SCHEMA, options), options)
    assert next(rows).num_rows < 400
    del rows
    gc.collect()
    assert network.link(MessageQueue("T", BROKER, 0)).is_idle
