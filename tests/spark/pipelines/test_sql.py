"""sparrowmq.spark.pipelines.sql: questions to topics."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("pyspark")


from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError, NoRoute
from sparrowmq.spark.pipelines import sql
from sparrowmq.spark.pipelines.sql import count_scans
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def ask(topic):
    def ask(query, **given):
        where = {} if "store" in given else {"name_server": topic.options["nameServer"]}
        return sql(query.format(topic=f"`{topic.name}`"), spark=topic.spark, **where, **given)

    return ask


def fill(topic):
    """Send until queue 0 has some of the messages and others have some; returns how many there are."""
    count = 0
    while not (count and 0 < topic.ends()["0"] < count):
        topic.send(count, 10)  # to a queue by chance
        count += 10
    return count


def test_the_tables_of_a_query_are_topics(topic, ask):
    topic.send_bodies([b'{"city":"Ulm","n":%d}' % number for number in range(9)])
    answer = ask("select sum(get_json_object(body, '$.n')) as n, count(*) as all from {topic}")
    assert [tuple(row) for row in answer.each()] == [(36.0, 9)]
    report = answer.report
    assert (report.read, report.written, report.errors) == (9, 1, 0)
    assert sum(report.offsets[topic.name]["broker-0"].values()) == 9


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "select body from {topic}",
        "select a.body from {topic} a join {topic} b on a.msgId = b.msgId",
    ],
)
def test_a_topic_that_grows_meanwhile_is_seen_as_it_was_by_every_part_of_the_query(topic, ask, query):
    topic.send(0, 50)
    answer = ask(query)
    topic.send(50, 50)
    for rows in (answer.each(), answer.rows.collect()):
        assert sorted(int(row.body) for row in rows) == list(range(50))


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "select count(*) n from {topic} where queueId = 0 union all select count(*) from {topic}",
        pytest.param(
            "select explode(array((select count(*) from {topic} where queueId = 0), (select count(*) from {topic})))",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "with t as (select * from {topic}) "
            "select count(*) n from t where queueId = 0 union all select count(*) from t",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_condition_on_one_part_of_a_query_takes_no_rows_from_the_others(topic, ask, query):
    count = fill(topic)
    answer = ask(query)
    counts = [topic.ends()["0"], count]
    assert [row[0] for row in answer.each()] == [row[0] for row in answer.rows.collect()] == counts


@pytest.mark.slow
def test_rows_can_be_gone_on_with_in_any_way(topic, ask):
    count = fill(topic)
    rows = ask("select queueId, body from {topic}").rows
    counts = [rows.where("queueId = 0").count(), rows.count(), rows.where("queueId = 0").union(rows).count()]
    assert counts == [topic.ends()["0"], count, count + topic.ends()["0"]]


def test_only_what_a_query_asks_for_is_read(topic, ask):
    topic.send(0, 40)
    asked = "select body from {topic} where queueId = 0 and queueOffset < 2"
    answer = ask(asked)
    assert answer.chosen.rdd.getNumPartitions() == 1
    assert len(list(answer.each())) <= 2


@pytest.mark.slow
def test_messages_that_a_condition_leaves_unread_are_not_reported_as_read(topic, ask):
    topic.send(0, 40)
    for condition, read in (("queueId = 0", None), ("queueId = 0 and keys = 'k'", None), ("keys = 'k'", 40)):
        answer = ask("select body from {topic} where " + condition)
        assert answer.report.read == read
        at_most = "" if read else "at most "
        assert answer.views[topic.name].startswith(f"{at_most}40 messages of {topic.name}")
    joined = ask("select a.body from {topic} a join {topic} b on a.msgId = b.msgId where a.queueId = 0")
    assert joined.report.read == 40


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select tags from {topic} where queueId < 9", ["queueId", "tags"]),
        ("select count(keys) n from {topic}", ["keys"]),
        ("select count(*) n from {topic} where queueId < 9", ["queueId"]),
    ],
)
def test_only_the_columns_that_a_query_needs_are_made(topic, ask, query, columns):
    topic.send(0, 9, TAGS="paid", KEYS="k")
    answer = ask(query)
    plan = answer.chosen._jdf.queryExecution().optimizedPlan().toString()
    assert [each.partition("#")[0].split("[")[-1] for each in plan.split("RelationV2")[1].split(", ")] == columns
    assert [tuple(row) for row in answer.each()] == [tuple(row) for row in answer.rows.collect()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options", "reads"),
    [
        ("select count(*) n from {topic}", {}, False),
        ("select count(*) + (select count(1) from {topic}) - 9 n from {topic}", {}, False),
        ("select sum(n) from (select 1 n from {topic})", {}, False),
        ("select count(*) n from {topic}", {"kafkaCompat": "true"}, False),
        ("select count(*) n from {topic}", {"tags": "paid"}, True),
        ("select count(*) n from {topic}", {"failOnDataLoss": "false"}, True),
        ("select count(*) n from {topic} where flag = 0", {}, True),
        ("select count(*) from (select struct(*) s from {topic}) where s is not null", {}, True),
    ],
)
def test_messages_that_need_only_be_counted_are_not_read(topic, ask, query, options, reads):
    topic.send(0, 9, TAGS="paid")
    answer = ask(query, options=options)
    assert [row[0] for row in answer.each()] == [9]
    assert (count_scans(answer.chosen) > 0) is reads


def test_topics_that_differ_in_case_are_two(topic, ask):
    other = Topic(topic.spark, topic.options["nameServer"])
    other.name = other.options["topic"] = topic.name.upper()
    topic.send(0, 3)
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.create_topic(other.name, queues=4)
    other.send(0, 5)
    query = "select (select count(*) from {topic}) a, count(*) b, max(queueId) from `" + other.name + "`"
    assert [tuple(row)[:2] for row in ask(query).each()] == [(3, 5)]
    assert ask("select STORETIMESTAMP from {topic}").rows.count() == 3


def test_a_view_of_the_caller_goes_before_a_topic_of_its_name(topic, ask):
    topic.send(0, 3)
    topic.spark.sql("select 7 as n").createOrReplaceTempView("mine")
    topic.spark.sql("select 8 as n").createOrReplaceTempView(f"`{topic.name}`")
    try:
        assert ask("select n from mine").rows.first().n == 7
        assert ask("select n from {topic}").rows.first().n == 8
    finally:
        topic.spark.catalog.dropTempView("mine")
        topic.spark.catalog.dropTempView(topic.name)
    answer = ask("select count(*) n from {topic}")
    assert answer.rows.first().n == 3
    assert not topic.spark.catalog.tableExists(f"`{topic.name}`"), "the caller's session gets no view"


@pytest.mark.slow
def test_messages_are_asked_as_of_a_time(topic, ask):
    topic.send(0, 10)
    (last,) = ask("select max(unix_millis(storeTimestamp)) t from {topic}").rows.first()
    while (now_ms := time.time_ns() // 1_000_000) <= last:
        pass
    topic.send(10, 5)
    assert ask("select count(*) n from {topic}", at=str(now_ms)).rows.first().n == 10
    assert ask("select count(*) n from {topic}", since=str(now_ms)).rows.first().n == 5


def test_a_stored_log_is_asked_without_a_broker(topic, ask, folder):
    topic.send(0, 30)
    answer = ask("select count(distinct body) n from {topic}", store=folder / "broker-0")
    assert [row.n for row in answer.each()] == [30]
    assert json.loads(answer.report.line())["read"] is None


def test_what_cannot_be_asked_is_told(topic, ask):
    topic.send(0, 1)
    with pytest.raises(NoRoute, match="no-such-topic"):
        ask("select * from `no-such-topic`")
    with pytest.raises(ConfigError, match="bodi"):
        ask("select bodi from {topic}")
    with pytest.raises(ConfigError, match="the query cannot run"):
        ask("selekt")
    with pytest.raises(ConfigError, match="either name_server"):
        sql("select 1")
