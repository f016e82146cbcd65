"""sparrowmq.spark.pipelines.publish: how far `publish` has sent a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.publish import Reached, SentRows
from sparrowmq.spark.source.partition_ranges import Offsets

A, B = MessageQueue("orders", "near", 0), MessageQueue("orders", "near", 1)
FAR, FAR_TOO = MessageQueue("again", "far", 0), MessageQueue("again", "far", 1)


def reached(ends):
    """Rows of which each was stored in the ms of its offset."""
    return Reached(ends, {queue: end - 1 for queue, end in ends.items()})


def test_a_run_adds_to_the_notes_of_the_runs_before(tmp_path):
    SentRows.load(tmp_path).keep(tmp_path, reached({A: 10, B: 4}), Offsets({FAR: 14}))
    SentRows.load(tmp_path).keep(tmp_path, reached({A: 12}), Offsets({FAR: 16, FAR_TOO: 1}))
    found = SentRows.load(tmp_path)
    assert found.next == [("orders", "near", 0, 12), ("orders", "near", 1, 4)]
    assert found.times == [("orders", "near", 0, 11), ("orders", "near", 1, 3)]
    assert found.ends == [("again", "far", 0, 16), ("again", "far", 1, 1)]
    assert found.cleared() == SentRows(2)


@pytest.mark.parametrize(
    ("now", "is_before"),
    [
        ({FAR: 16, FAR_TOO: 1}, False),
        ({FAR: 20}, False),  # the broker of the other queue is away
        ({FAR: 16, FAR_TOO: 0}, True),
        ({}, False),
    ],
)
def test_an_end_before_the_noted_one_is_that_of_a_topic_made_again(tmp_path, now, is_before):
    SentRows().keep(tmp_path, reached({A: 1}), Offsets({FAR: 16, FAR_TOO: 1}))
    assert SentRows.load(tmp_path).is_before(Offsets(now)) is is_before


def test_another_incarnation_is_that_of_a_topic_made_again(tmp_path):
    SentRows().keep(tmp_path, reached({A: 1}), Offsets({FAR: 16}, {("again", "far"): 7}))
    SentRows.load(tmp_path).keep(tmp_path, reached({A: 2}), Offsets({}))  # the broker is away
    kept = SentRows.load(tmp_path)
    assert [kept.is_before(Offsets({FAR: 20}, {("again", "far"): now})) for now in (7, 8)] == [False, True]
    assert not kept.is_before(Offsets({FAR: 20}))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_only_rows_from_the_noted_offset_on_are_left(spark, tmp_path):
    rows = spark.createDataFrame(
        [("orders", "near", queue, offset, None) for queue in range(3) for offset in range(5)],
        "topic string, brokerName string, queueId int, queueOffset bigint, storeTimestamp timestamp",
    )
    assert SentRows().without(rows).count() == 15
    SentRows().keep(tmp_path, reached({A: 3, B: 5}), Offsets())
    left = SentRows.load(tmp_path).without(rows).collect()
    assert sorted((row.queueId, row.queueOffset) for row in left) == [
        (0, 3),
        (0, 4),
        *[(2, offset) for offset in range(5)],
    ]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_rows_of_a_topic_that_was_made_again_are_refused(spark, tmp_path):
    def rows(*places):
        return spark.createDataFrame(
            [("orders", "near", 0, offset, datetime.fromtimestamp(at / 1000, UTC)) for offset, at in places],
            "topic string, brokerName string, queueId int, queueOffset bigint, storeTimestamp timestamp",
        )

    first = [(offset, 1000 + offset) for offset in range(5)]
    found = SentRows().reached(rows(*first))
    assert found == ({A: 5}, {A: 1004})
    SentRows().keep(tmp_path, found, Offsets())
    known = SentRows.load(tmp_path)
    assert known.reached(rows(*first)) == ({}, {})
    found = known.reached(rows(*first[2:], (5, 1002), (6, 1001)))
    assert found == ({A: 7}, {A: 1002})
    known.keep(tmp_path, found, Offsets())
    known = SentRows.load(tmp_path)
    assert known.reached(rows(*first)) == ({}, {}), "though a clock has gone back"
    with pytest.raises(ConfigError, match=r"since its rows were sent.* > timestamp_millis\(1004\)"):
        known.reached(rows(*first, (0, 2000)))
    with pytest.raises(ConfigError, match="while the table was filled"):
        SentRows().reached(rows(*first, (0, 2000)))
