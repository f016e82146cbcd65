"""sparrowmq.spark.lag: how far streams are behind, by Kafka's names."""

import json
import time

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.lag import Lag, LagListener, lag_of
from sparrowmq.spark.limits import HAS_LIMITS

DEADLINE_S = 30


def offset(**brokers):
    return json.dumps({"v": 1, "topics": {"T": {name: {"0": end} for name, end in brokers.items()}}})


def test_each_queue_is_as_far_behind_as_its_end_is():
    lag = lag_of([(offset(a=10, b=20, c=30), offset(a=10, b=25, c=45))])
    assert lag == Lag(0, 15, 20 / 3, 20)
    assert lag.metrics()["maxOffsetsBehindLatest"] == "15"


def test_queues_of_all_sources_count_and_what_is_behind_nothing_is_not_behind():
    assert lag_of([(offset(a=1), offset(a=3)), (offset(b=5), offset(b=4, new=100))]) == Lag(0, 2, 2 / 3, 2)


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
    assert lag_of([source]) is None


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.1 does not say how far a source could go")
def test_a_listener_knows_how_far_a_query_is_behind(spark, peer, tmp_path):
    peer.store("T", 0, [b"1"] * 100)
    told = []
    listener = LagListener(lambda name, lag: told.append((name, lag.total)))
    spark.streams.addListener(listener)
    try:
        options = {"nameServer": peer.address, "topic": "T", "startingOffsets": "earliest"}
        stream = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="60").load()
        writing = (
            stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).queryName("late")
        )
        writing.trigger(availableNow=True).start().awaitTermination(DEADLINE_S * 2)
        deadline = time.monotonic() + DEADLINE_S
        while len(told) < 2 or listener.lags:
            assert time.monotonic() < deadline, told
            time.sleep(0.01)
    finally:
        spark.streams.removeListener(listener)
    assert told[:2] == [("late", 40), ("late", 0)]
