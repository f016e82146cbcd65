"""sparrowmq.spark.source.batch_source: a task knows its rows and where their brokers are."""

import pickle

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.batch_source import parallel_tasks, plan_tasks, ranges_in
from sparrowmq.spark.source.partition_ranges import Range
from tests.spark.peer import BROKER


def test_a_task_brings_its_rows_and_the_addresses_of_their_brokers(peer, connect):
    peer.store("T", 0, [b"x"] * 10)
    driver, worker = connect(), connect()
    driver.route("T")
    away = Range(MessageQueue("T", "broker-b", 0), 0, 5)
    ranges = [Range(MessageQueue("T", BROKER, 0), 2, 10), away]
    (task,) = pickle.loads(pickle.dumps(plan_tasks(driver, ranges, peer.source(topic="T"))))
    assert task.value.brokers.keys() == {BROKER}
    asked = len(peer.asked)
    assert ranges_in(worker, task) == tuple(ranges)
    assert worker.link(ranges[0].queue).address == peer.address
    assert len(peer.asked) == asked


def test_a_query_without_rows_reads_nothing(connect):
    assert ranges_in(connect(), InputPartition(None)) == ranges_in(connect(), None) == ()


def test_tasks_follow_the_cores_of_the_session(peer, connect):
    ranges = [Range(MessageQueue("T", BROKER, number), 0, 50_000) for number in range(20)]
    peer.store("T", 0, [])
    counts = [len(plan_tasks(connect(), ranges, peer.source(topic="T", parallelTasks=cores))) for cores in ("2", "16")]
    assert counts == [4, 16]
    source = peer.source(topic="T")
    assert (parallel_tasks(source, {}), parallel_tasks(source, {"SPARROWMQ_SPARK_CORES": "3"})) == (8, 3)
    assert parallel_tasks(peer.source(topic="T", parallelTasks="5"), {"SPARROWMQ_SPARK_CORES": "3"}) == 5
