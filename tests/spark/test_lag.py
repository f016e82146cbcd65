"""sparrowmq.spark.lag: how far streams are behind, by Kafka's names."""

import json
import time

import pytest

pytest.importorskip("pyspark")


from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_page import page
from sparrowmq.metrics.series_limit import series_of
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.spark.lag import Lag, LagListener, Losses, bad_counted, count_missing, query_lag
from sparrowmq.spark.source.stream_source import HAS_LIMITS

DEADLINE_S = 30


def offset(**brokers):
    return json.dumps({"v": 1, "topics": {"T": {name: {"0": end} for name, end in brokers.items()}}})


def test_each_queue_is_as_far_behind_as_its_end_is():
    lag = query_lag([(offset(a=10, b=20, c=30), offset(a=10, b=25, c=45))])
    assert lag == Lag(0, 15, 20 / 3, 20)
    assert lag.metrics()["maxOffsetsBehindLatest"] == "15"


def test_queues_of_all_sources_count_and_what_is_behind_nothing_is_not_behind():
    assert query_lag([(offset(a=1), offset(a=3)), (offset(b=5), offset(b=4, new=100))]) == Lag(0, 2, 2 / 3, 2)


def test_what_spark_4_1_writes_as_python_does_is_understood():
    ended, latest = (str(json.loads(offset(a=each))) for each in (1, 3))
    assert ended.startswith("{'v'")
    assert query_lag([(ended, latest)]) == Lag(2, 2, 2.0, 2)
    assert count_missing(ended, latest, 1) == 1


@pytest.mark.parametrize(
    "source",
    [
        (None, None),
        (offset(a=1), None),
        ("5", "7"),
        ("no json", offset(a=1)),
        ('{"t":{"0":5}}', '{"t":{"0":9}}'),
    ],
)
def test_of_other_sources_nothing_is_said(source):
    assert query_lag([source]) is None


@pytest.mark.parametrize(
    ("started", "ended", "rows", "lost"),
    [
        (offset(a=0, b=5), offset(a=10, b=5), 8, 2),
        (offset(a=0), offset(a=10, new=7), 10, 0),  # a new queue is only noted by its first batch
        (None, offset(a=10), 3, 0),
        (offset(a=0), offset(a=10), 12, 0),  # foreachBatch has read it twice
        ("5", "9", 1, 0),
    ],
)
def test_offsets_of_a_batch_without_a_row_are_missing(started, ended, rows, lost):
    assert count_missing(started, ended, rows) == lost


def test_what_is_missing_of_a_topic_that_was_made_again_is_not_known():
    old, new = (
        json.dumps({**json.loads(offset(a=end)), "incarnations": {"T": {"a": number}}})
        for end, number in ((10, 7), (4, 8))
    )
    assert count_missing(old, new, 4) is None and count_missing(new, new, 0) == 0


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.1 does not say how far a source could go")
def test_a_listener_knows_how_far_a_query_is_behind_and_what_it_lost(spark, peer, tmp_path):
    peer.store("T", 0, [b"1"] * 100)
    told = []
    listener = LagListener(lambda name, lag: told.append((name, lag.total, listener.losses[name])))
    options = {"nameServer": peer.address, "topic": "T", "startingOffsets": "earliest"}
    options |= {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "60"}

    def run(expected):
        stream = bad_counted(spark.readStream.format("rocketmq").options(**options).load())
        writing = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writing.queryName("late").trigger(availableNow=True).start().awaitTermination(DEADLINE_S * 2)
        deadline = time.monotonic() + DEADLINE_S
        while len(told) < expected or listener.lags:
            assert time.monotonic() < deadline, told
            time.sleep(0.01)

    spark.streams.addListener(listener)
    try:
        run(expected=2)
        peer.store("T", 0, [b"no zlib"], sys_flag=SysFlag.COMPRESSED)
        peer.store("T", 0, [b"1"] * 20)
        peer.store("T", 0, [b"no zlib"], sys_flag=SysFlag.COMPRESSED)
        peer.delete("T", 0, 110)
        run(expected=3)
    finally:
        spark.streams.removeListener(listener)
    assert told == [("late", 40, Losses()), ("late", 0, Losses()), ("late", 0, Losses(lost=10, bad=1))]


def test_prometheus_gets_it_by_kafkas_names():
    listener = LagListener()
    listener.lags["q"], listener.losses["q"] = Lag(0, 15, 7.5, 20), Losses(3, 1)
    figures = Figures()
    listener.tell_metrics(figures)
    said = at_once(page(series_of(figures, {}, 200))).body.decode().splitlines()
    assert 'maxOffsetsBehindLatest{query="q"} 15.0' in said and 'avgOffsetsBehindLatest{query="q"} 7.5' in said
    assert 'sparrowmq_spark_rows_lost_total{query="q"} 3.0' in said
    assert 'sparrowmq_spark_rows_bad_total{query="q"} 1.0' in said
