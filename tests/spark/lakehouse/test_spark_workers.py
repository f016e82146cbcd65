"""sparrowmq.spark.lakehouse.batch_parts: one job for all topics; a worker's death is its topic's failure alone."""

from __future__ import annotations

from operator import attrgetter

import pytest

pytest.importorskip("pyspark")

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.lakehouse import batch_parts
from sparrowmq.spark.lakehouse.batch_parts import ArrowRows, BatchPart, PartResult, SparkWorkers
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.source.partition_ranges import Range, pack

timeout = pytest.mark.timeout(300)


def part(topic, rows):
    return BatchPart(
        topic,
        {},
        (Range(MessageQueue(topic, "b", 0), 0, rows),),
        {},
        ArrowRows("raw"),
        "",
        Layout(BY_DAY, False),
    )


def test_parts_are_shared_by_tasks_of_similar_size():
    parts = [part(f"t{at}", rows) for at, rows in enumerate([10_000, 100, 9_000, 200, 300, 1])]
    rows = attrgetter("rows")
    tasks = pack(parts, 2, rows)
    assert sorted(each.topic for task in tasks for each in task) == [f"t{at}" for at in range(6)]
    sizes = [sum(each.rows for each in task) for task in tasks]
    assert max(sizes) - min(sizes) <= 1_500
    assert pack([], 4, rows) == [] and len(pack(parts, 50, rows)) == 6


def refusing(parts):
    """In Spark's worker: parts of one topic end it."""
    for each in parts:
        if each.topic == "bad":
            raise RuntimeError("out of memory")
        yield PartResult(each.topic, read=each.rows)


@pytest.mark.slow
@timeout
def test_a_job_that_fails_is_done_again_topic_by_topic(spark, monkeypatch):
    monkeypatch.setattr(batch_parts, "run_parts", refusing)
    found = SparkWorkers(spark)([part("a", 5), part("bad", 1), part("b", 7), part("a", 2)])
    by_topic = {written.topic: written.error for written in found}
    assert "out of memory" in by_topic["bad"] and not by_topic["a"] and not by_topic["b"]
    assert sum(written.read for written in found if written.topic == "a") == 7
