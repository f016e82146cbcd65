"""sparrowmq.spark.pipelines.publish: a table back to a topic."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines import backfill, publish, table
from sparrowmq.spark.pipelines.publish import SentRows
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.source.partition_ranges import Offsets
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.expiring import SMALL_FILES, expire
from tests.spark.test_with_spark import Topic

module = sys.modules[publish.__module__]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def where(topic):
    return {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}


def rows_of(source, **options):
    return sorted(source.read(**options).collect(), key=lambda row: (row.queueId, row.queueOffset))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("delta", "iceberg"))]
)
def test_a_topic_made_of_a_table_is_the_topic_that_the_table_was_made_of(topic, where, tmp_path, kind):
    topic.send(0, 120, TAGS="paid", KEYS="a b", region="eu")
    table(topic.name, tmp_path / "t", format=kind, once=True, **where)
    again = f"{topic.name}-again"
    assert publish(tmp_path / "t", again, **where).written == 120
    same = ("queueId", "msgId", "bornTimestamp", "tags", "keys", "body")
    originals, copies = rows_of(topic), rows_of(topic, topic=again)
    assert [[row[name] for name in same] for row in copies] == [[row[name] for name in same] for row in originals]
    topic.send(120, 30)
    table(topic.name, tmp_path / "t", format=kind, once=True, **where)
    more = publish(tmp_path / "t", again, **where)
    assert (more.read, more.written) == (30, 30)
    assert publish(tmp_path / "t", again, **where).read == 0


@pytest.fixture
def far(tmp_path):
    with BackgroundCluster(tmp_path / "far", **SMALL_FILES) as cluster:
        yield cluster


@pytest.mark.slow
def test_rows_are_not_sent_again_when_the_targets_retention_has_removed_them(topic, where, far, tmp_path):
    topic.send(0, 120)
    table(topic.name, tmp_path / "t", once=True, **where)
    sent = {**where, "name_server": far.namesrv}
    assert publish(tmp_path / "t", topic.name, **sent).written == 120
    copy = Topic(topic.spark, far.namesrv)
    copy.name = copy.options["topic"] = topic.name
    expire(far, copy)
    assert publish(tmp_path / "t", topic.name, **sent).written == 0
    topic.send(120, 30)
    table(topic.name, tmp_path / "t", once=True, **where)
    assert publish(tmp_path / "t", topic.name, **sent).written == 30
    assert sorted(int(row.body) for row in copy.read().collect()) == list(range(120, 150))


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 20], ids="messages of others={}".format)
def test_all_rows_are_sent_again_to_a_target_that_was_made_again(topic, where, tmp_path, others):
    topic.send(0, 40)
    table(topic.name, tmp_path / "t", once=True, **where)
    again = f"{topic.name}-again"
    assert publish(tmp_path / "t", again, **where).written == 40
    with sync.connect(where["name_server"]) as mq:
        mq.admin.delete_topic(again)
        if others:
            mq.admin.create_topic(again, queues=4)
            for _ in range(4 * others):
                mq.send(again, b"of others")
    said: list[str] = []
    assert publish(tmp_path / "t", again, **{**where, "say": said.append}).written == 40
    assert f"topic {again} was made again since rows were sent, so all rows are sent again" in said


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_note_sends_no_row_again(topic, where, tmp_path):
    topic.send(0, 40)
    table(topic.name, tmp_path / "t", once=True, **where)
    again = f"{topic.name}-again"
    assert publish(tmp_path / "t", again, **where).written == 40
    (tmp_path / "t.state" / f"publish-{again}" / "sent.json").unlink()
    repeated = publish(tmp_path / "t", again, **where)
    assert (repeated.read, repeated.written) == (40, 0)


@pytest.mark.parametrize(("runs", "is_refused"), [(0, True), (1, True), (2, False), (3, False)])
def test_only_the_progress_of_the_last_run_or_of_one_that_was_killed_is_the_newest(tmp_path, runs, is_refused):
    state = State(tmp_path, {"topic": "t"})
    state.keep_targets({})
    for number in range(3):
        state.keep_targets({MessageQueue("a", "b", number): MessageQueue("t", "b", 0)})
        state.floors(number, lambda _: Offsets())
    refused = pytest.raises(BadStore, match=r"sent.json is gone, or an older copy")
    with refused if is_refused else nullcontext():
        module._check_not_restored(State(tmp_path, {"topic": "t"}), SentRows(runs))


def test_a_note_about_stored_logs_that_is_gone_lets_no_row_count_as_sent(tmp_path):
    folder = tmp_path / "t.state" / "publish-t"
    snapshot.save(folder / "sent.json", SentRows(1))
    assert module._check_stored_parts(folder, tmp_path / "t") == {}
    snapshot.save(tmp_path / "t.state" / "stored-broker-0.json", {"last_batch": 0})
    with pytest.raises(ConfigError, match="`backfill` or `redrive` has added rows"):
        module._check_stored_parts(folder, tmp_path / "t")


@pytest.mark.slow
def test_rows_of_json_tables_become_objects_again(topic, where, tmp_path):
    topic.send_bodies([b'{"id":1,"name":"a"}', b'{"id":2}'])
    table(topic.name, tmp_path / "t", mode="json", once=True, **where)
    publish(tmp_path / "t", f"{topic.name}-again", **where)
    found = [json.loads(row.body) for row in topic.read(topic=f"{topic.name}-again").collect()]
    assert sorted(found, key=lambda each: each["id"]) == [{"id": 1, "name": "a"}, {"id": 2}]


@pytest.mark.slow
def test_rows_with_the_fields_properties_and_body_become_objects_again(topic, where, tmp_path):
    sent = {"body": "b", "properties": "p", "c`d": 1}
    topic.send_bodies([json.dumps(sent).encode()])
    table(topic.name, tmp_path / "t", mode="json", once=True, **where)
    publish(tmp_path / "t", f"{topic.name}-again", **where)
    [row] = topic.read(topic=f"{topic.name}-again").collect()
    assert json.loads(row.body) == sent


@pytest.mark.slow
def test_each_condition_sends_its_own_rows(topic, where, tmp_path):
    topic.send_bodies([b'{"id":1}', b'{"id":2}'])
    table(topic.name, tmp_path / "t", mode="json", once=True, **where)
    again = f"{topic.name}-again"
    assert publish(tmp_path / "t", again, where="id = 2", **where).written == 1
    assert publish(tmp_path / "t", again, where="id = 1", **where).written == 1
    assert len(rows_of(topic, topic=again)) == 2


@pytest.mark.slow
def test_rows_that_a_backfill_added_since_are_not_taken_to_be_sent(topic, where, folder, tmp_path):
    topic.send(0, 40)
    begin = {queue: end // 2 for queue, end in topic.ends().items()}
    late = {"startingOffsets": json.dumps({topic.name: {"broker-0": begin}})}
    given = {"spark": topic.spark, "say": lambda _: None}
    again, table_of = f"{topic.name}-again", tmp_path / "t"
    sent = table(topic.name, table_of, once=True, options=late, **where).written
    assert publish(table_of, again, **where).written == sent
    assert backfill(table_of, folder / "broker-0", **given).written == 40 - sent > 0
    with pytest.raises(ConfigError, match=r"`backfill` or `redrive` has added rows .* publish it to another topic, or"):
        publish(table_of, again, **where)
    before = " or ".join(f"_mq.queueId = {queue} and _mq.queueOffset < {end}" for queue, end in begin.items())
    assert publish(table_of, again, where=before, **where).written == 40 - sent
    assert backfill(table_of, folder / "broker-0", **given).written == 0
    assert publish(table_of, again, where=before, **where).written == 0


def test_only_tables_that_say_where_rows_come_from_are_sent(topic, where, tmp_path):
    topic.spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="does not say where its rows come from"):
        publish(tmp_path / "other", "t", **where)


def test_a_condition_with_another_result_each_time_is_refused(topic, where, tmp_path):
    topic.spark.sql("select struct('t' as topic) as _mq").write.parquet(str(tmp_path / "t"))
    with pytest.raises(ConfigError, match=r"where='rand\(\) < 0.5' selects different rows each time"):
        publish(tmp_path / "t", "t", where="rand() < 0.5", **where)
