"""sparrowmq.spark.pipelines.archive: what a topic had, in files, from brokers and from stored logs."""

from __future__ import annotations

import shutil
import sys

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import archive, archived, table
from sparrowmq.spark.source.partition_ranges import RowsLost
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.killing import forget_last_commit

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def namesrv(folder):
    """Of a broker with log files so small that a test fills some."""
    with BackgroundCluster(folder, commit_log_file_bytes=256 << 10) as cluster:
        yield cluster.namesrv


@pytest.fixture
def where(topic):
    return {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}


def numbers(rows):
    return sorted(int(row.body) for row in rows.select("body").collect())


@pytest.mark.slow
def test_one_reader_has_the_archive_and_what_came_since_each_message_once(topic, where, tmp_path):
    topic.send(0, 100, TAGS="paid")
    assert archive(topic.name, tmp_path / "a", **where).written == 100
    topic.send(100, 50)
    assert numbers(archived(topic.spark, tmp_path / "a")) == list(range(100))
    both = archived(topic.spark, tmp_path / "a", name_server=topic.options["nameServer"])
    assert numbers(both) == list(range(150))
    assert both.columns == topic.read().columns
    forget_last_commit(tmp_path / "a.state")
    assert archive(topic.name, tmp_path / "a", **where).written == 50
    assert numbers(both) == list(range(150))
    assert [tuple(row) for row in both.orderBy("queueId", "queueOffset").collect()] == [
        tuple(row) for row in topic.read().orderBy("queueId", "queueOffset").collect()
    ]


@pytest.mark.slow
def test_a_batch_that_is_archived_while_the_reader_begins_is_read_once(topic, where, tmp_path, monkeypatch):
    topic.send(0, 100)
    archive(topic.name, tmp_path / "a", **where)
    topic.send(100, 50)
    module = sys.modules[archive.__module__]
    read_rows = module.read_rows

    def behind_one_batch_more(spark, root):
        archive(topic.name, tmp_path / "a", **where)
        return read_rows(spark, root)

    monkeypatch.setattr(module, "read_rows", behind_one_batch_more)
    both = archived(topic.spark, tmp_path / "a", name_server=topic.options["nameServer"])
    assert numbers(both) == list(range(150))


@pytest.mark.slow
def test_the_reader_has_no_message_from_before_an_archive_that_began_at_the_latest(topic, where, tmp_path):
    topic.send(0, 40)
    assert archive(topic.name, tmp_path / "a", options={"startingOffsets": "latest"}, **where).written == 0
    topic.send(40, 1)  # one queue has a row of the archive, and three have none
    assert archive(topic.name, tmp_path / "a", **where).written == 1
    topic.send(41, 8)
    both = archived(topic.spark, tmp_path / "a", name_server=topic.options["nameServer"])
    assert numbers(both) == list(range(40, 49))


@pytest.mark.slow
def test_full_files_of_a_stored_log_are_archived_once_and_the_reader_goes_on_behind_them(
    topic, where, folder, tmp_path
):
    topic.send(0, 3000)
    given = {"spark": topic.spark, "say": lambda _: None, "store": folder / "broker-0", "broker": "broker-0"}
    first = archive(topic.name, tmp_path / "a", **given)
    assert 0 < first.written < 3000
    assert archive(topic.name, tmp_path / "a", **given).written == 0
    both = archived(topic.spark, tmp_path / "a", name_server=topic.options["nameServer"])
    assert numbers(both) == list(range(3000))


@pytest.mark.slow
def test_the_file_that_is_being_written_is_left_though_the_next_one_was_made_in_advance(topic, where, folder, tmp_path):
    topic.send(0, 100)
    copy = shutil.copytree(folder / "broker-0", tmp_path / "copy")
    *_, last = [file for file in sorted((copy / "commitlog").iterdir()) if any(file.read_bytes())]
    size = last.stat().st_size
    (copy / "commitlog" / f"{int(last.name) + size:020}").write_bytes(bytes(size))
    given = {"spark": topic.spark, "say": lambda _: None, "broker": "broker-0"}
    archive(topic.name, tmp_path / "a", store=copy, **given)
    topic.send(100, 5000)
    archive(topic.name, tmp_path / "a", store=folder / "broker-0", **given)
    both = archived(topic.spark, tmp_path / "a", name_server=topic.options["nameServer"])
    assert numbers(both) == list(range(5100))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.nightly)])
def test_the_reader_of_a_topic_that_was_made_again_misses_none_of_it(topic, where, tmp_path, kind):
    server, losing = topic.options["nameServer"], {"failOnDataLoss": "false"}
    topic.send(0, 80)
    archive(topic.name, tmp_path / "a", format=kind, **where)
    with sync.connect(server) as mq:
        mq.admin.delete_topic(topic.name)
        mq.admin.create_topic(topic.name, queues=4)
    topic.send_bodies([b"%d" % number for number in range(80, 180)])
    with pytest.raises(RowsLost, match="was deleted and made again"):
        archived(topic.spark, tmp_path / "a", name_server=server)
    assert numbers(archived(topic.spark, tmp_path / "a", name_server=server, options=losing)) == list(range(180))
    with sync.connect(server) as mq:
        mq.admin.delete_topic(topic.name)
        mq.admin.create_topic(topic.name, queues=4)
    topic.send_bodies([b"%d" % number for number in range(180, 188)])
    assert archive(topic.name, tmp_path / "a", format=kind, options=losing, **where).written == 8
    topic.send_bodies([b"%d" % number for number in range(188, 288)])
    assert numbers(archived(topic.spark, tmp_path / "a", name_server=server)) == [
        *range(80),
        *range(180, 288),
    ]


@pytest.mark.slow
def test_what_does_not_fit_is_told(topic, where, folder, tmp_path):
    topic.send(0, 10)
    table(topic.name, tmp_path / "t", once=True, **where)
    with pytest.raises(ConfigError, match="is no archive"):
        archived(topic.spark, tmp_path / "t")
    with pytest.raises(ConfigError, match="name the broker of the store"):
        archive(topic.name, tmp_path / "a", store=folder / "broker-0", spark=topic.spark)
    with pytest.raises(ConfigError, match="either name_server"):
        archive(topic.name, tmp_path / "a")
