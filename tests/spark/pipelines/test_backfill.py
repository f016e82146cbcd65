"""sparrowmq.spark.pipelines.table: what a topic had before its table, from stored logs."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import backfill, table
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.lake import tables
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def where(topic):
    return {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}


@pytest.mark.parametrize(
    "kind",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.slow),
        pytest.param("iceberg", marks=pytest.mark.nightly),
    ],
)
def test_a_backup_fills_a_table_up_to_where_it_began(topic, where, folder, tmp_path, kind):
    topic.send(0, 300)
    shutil.copytree(folder / "broker-0", tmp_path / "backup")
    before = {queue: end // 2 for queue, end in topic.ends().items()}
    late = {"startingOffsets": json.dumps({topic.name: {"broker-0": before}})}
    begun = table(topic.name, tmp_path / "t", format=kind, once=True, options=late, **where)
    assert begun.written == 300 - sum(before.values())
    topic.send(300, 20)
    given = {"spark": topic.spark, "say": lambda _: None}
    assert backfill(tmp_path / "t", tmp_path / "backup", **given).written == sum(before.values())
    assert backfill(tmp_path / "t", tmp_path / "backup", **given).written == 0
    assert table(topic.name, tmp_path / "t", format=kind, once=True, options=late, **where).written == 20
    shutil.rmtree(tmp_path / "t.state")
    assert backfill(tmp_path / "t", tmp_path / "backup", **given).written == 0
    rows = tables.rows_of(kind, tmp_path / "t", tmp_path / "t.state")
    assert sorted(int(row["body"]) for row in rows) == list(range(320))


@pytest.mark.slow
def test_rows_of_a_topic_that_was_made_again_come_from_brokers_alone(topic, where, folder, tmp_path):
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.create_topic(topic.name, queues=1)
    topic.send(0, 20)
    begin = {"startingOffsets": json.dumps({topic.name: {"broker-0": dict(topic.ends())}})}
    assert table(topic.name, tmp_path / "t", once=True, options=begin, **where).written == 0
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.delete_topic(topic.name)
        mq.admin.create_topic(topic.name, queues=1)
    topic.send_bodies([b"%d" % number for number in range(20, 28)])
    lenient = {"failOnDataLoss": "false"}
    assert table(topic.name, tmp_path / "t", once=True, options=lenient, **where).written == 8
    assert backfill(tmp_path / "t", folder / "broker-0", spark=topic.spark).written == 20
    assert numbers(tmp_path / "t") == list(range(28))


@pytest.mark.slow
def test_what_does_not_fit_is_told(topic, where, folder, tmp_path):
    topic.send(0, 10)
    with pytest.raises(ConfigError, match="was not begun by the pipeline `table`"):
        backfill(tmp_path / "t", folder / "broker-0", spark=topic.spark)
    table(topic.name, tmp_path / "t", once=True, **where)
    with pytest.raises(ConfigError, match="has no queues at broker other; there are broker-0"):
        backfill(tmp_path / "t", folder / "broker-0", broker="other", spark=topic.spark)


def copied(log, to, *names):
    to.mkdir()
    for name in names:
        shutil.copy(log / name, to)
    return to


def numbers(path):
    return sorted(int(row["body"]) for row in tables.rows_of("parquet", path, path.with_name("t.state")))


@pytest.mark.slow
def test_each_part_of_a_log_is_added_once_in_whichever_order_backups_come(spark, tmp_path):
    with BackgroundCluster(tmp_path / "broker", commit_log_file_bytes=64 << 10) as cluster:
        topic, log = Topic(spark, cluster.namesrv), tmp_path / "broker" / "broker-0" / "commitlog"
        given = {"spark": spark, "say": lambda _: None}
        for number in range(0, 1300, 100):
            topic.send(number, 100)
        first, *more = sorted(each.name for each in log.iterdir() if any(each.read_bytes()))
        newer = copied(log, tmp_path / "newer", *more)
        topic.send(1300, 200)
        latest = copied(log, tmp_path / "latest", more[-1])
        late = {"startingOffsets": "latest"}
        table(topic.name, tmp_path / "t", name_server=cluster.namesrv, once=True, options=late, **given)
        added = [backfill(tmp_path / "t", store, **given).written for store in (newer, newer, latest)]
        assert added[0] > 0 and added[1] == 0 and 0 < added[2] <= 200
        copied(log, tmp_path / "older", first)
        assert backfill(tmp_path / "t", tmp_path / "older", **given).written > 0
        backfill(tmp_path / "t", tmp_path / "broker" / "broker-0", **given)
        assert numbers(tmp_path / "t") == list(range(1500))


@pytest.mark.slow
def test_the_logs_of_all_brokers_are_added(spark, tmp_path):
    with BackgroundCluster(tmp_path / "brokers", brokers=2) as cluster:
        topic, given = Topic(spark, cluster.namesrv), {"spark": spark, "say": lambda _: None}
        with sync.connect(cluster.namesrv) as mq:
            mq.admin.create_topic(topic.name, queues=2)
            for number in range(40):
                mq.send(topic.name, b"%d" % number)
        late = {"startingOffsets": "latest"}
        table(topic.name, tmp_path / "t", name_server=cluster.namesrv, once=True, options=late, **given)
        for broker in ("broker-0", "broker-1"):
            assert backfill(tmp_path / "t", tmp_path / "brokers" / broker, broker=broker, **given).written > 0
        assert numbers(tmp_path / "t") == list(range(40))
