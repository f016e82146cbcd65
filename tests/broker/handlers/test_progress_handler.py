import pytest

from sparrowmq.broker.offsets import Offsets
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    GetConsumeStats,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
)
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.offset_bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueProgress,
)


def queue(queue_id, topic="Orders"):
    return MessageQueue(topic, "broker-a", queue_id)


async def test_progress_shows_the_lag_of_every_queue(desk, client):
    desk.create("Orders", 2)
    desk.send(b"x")
    first_ms = desk.clock.now_ms()
    await desk.clock.advance(1)
    desk.send(b"y")
    desk.offsets.commit("g", "Orders", 0, 1)
    desk.offsets.commit("g", "Gone", 0, 1)
    for request in (GetConsumeStats("g"), GetConsumeStats("g", "Orders")):
        stats = ConsumeStats.decode((await client.call(request)).body)
        assert stats.offset_table == {
            queue(0): QueueProgress(2, 1, last_timestamp=first_ms),
            queue(1): QueueProgress(0, 0),
        }


async def test_progress_shows_how_fast_a_group_goes_on(desk, client):
    for topic in ("Orders", "Bills", "Other"):
        desk.create(topic)
    for topic in ("Orders", "Bills"):
        desk.offsets.commit("g", topic, 0, 1)
    for group, topic, count in (("g", "Orders", 60), ("g", "Bills", 30), ("other", "Orders", 9)):
        desk.consumption.count_received(group, topic, count)
    await desk.clock.advance(30)
    paces = {
        topic: ConsumeStats.decode((await client.call(GetConsumeStats("g", topic))).body).consume_tps
        for topic in ("", "Orders", "Other")
    }
    assert paces == {"": 3, "Orders": 2, "Other": 0}


async def test_topics_that_the_group_no_longer_subscribes_are_no_lag(desk, client):
    desk.create("Orders")
    desk.create("Payments", 1)
    desk.offsets.commit("g", "Orders", 0, 1)
    desk.offsets.commit("g", "Payments", 0, 1)
    await client.beat("one", "Payments")
    stats = ConsumeStats.decode((await client.call(GetConsumeStats("g"))).body)
    assert list(stats.offset_table) == [queue(0, "Payments")]


async def test_the_progress_of_all_groups_is_told_at_once(desk, client):
    desk.groups.ensure("idle")
    for number in range(5):
        desk.send(b"%d" % number)
        desk.send(b"%d" % number, topic="Bills")
    for name in ("a", "b"):
        desk.groups.ensure(name)
        desk.offsets.commit(name, "Orders", 0, 2)
    desk.offsets.commit("a", "Bills", 0, 4)
    stats = BrokerConsumeStats.decode((await client.call(GetBrokerConsumeStats())).body)
    groups = {group: topics for row in stats.consume_stats_list for group, topics in row.items()}
    assert {group: len(topics) for group, topics in groups.items()} == {"a": 2, "b": 1, "idle": 0}
    row = groups["b"][0].offset_table[queue(0)]
    assert (row.broker_offset, row.consumer_offset) == (5, 2)
    assert (stats.total_diff, stats.broker_addr) == (3 + 3 + 1, "127.0.0.1:10911")


async def test_of_ordered_topics_alone_if_asked(desk, client):
    desk.topics.put(TopicConfig("InOrder", 1, 1, order=True))
    desk.create()
    desk.groups.ensure("g")
    for topic in ("InOrder", "Orders"):
        desk.offsets.commit("g", topic, 0, 0)
    stats = BrokerConsumeStats.decode((await client.call(GetBrokerConsumeStats(is_order=True))).body)
    (row,) = stats.consume_stats_list
    assert [list(topic.offset_table) for topic in row["g"]] == [[queue(0, "InOrder")]]


async def test_a_lag_is_told_as_time(desk, client):
    begin = desk.clock.now_ms()
    for number in range(3):
        desk.send(b"%d" % number)
        await desk.clock.advance(10)
    desk.offsets.commit("g", "Orders", 0, 2)
    spans = ConsumeTimeSpans.decode((await client.call(QueryConsumeTimeSpan("Orders", "g"))).body)
    first, second = spans.consume_time_span_set[:2]
    assert (first.min_time_stamp, first.max_time_stamp) == (begin, begin + 20_000)
    assert (first.consume_time_stamp, first.delay_time) == (begin + 10_000, 10_000)
    assert (second.min_time_stamp, second.max_time_stamp, second.delay_time) == (-1, -1, 0)
    assert (await client.refusal(QueryConsumeTimeSpan("None", "g"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_slowest_group_of_each_queue_is_found_without_those_left_out(desk, client):
    desk.create()
    for group, offset in (("slow", 1), ("quick", 9), ("ignored", 0)):
        desk.offsets.commit(group, "Orders", 0, offset)
    request = QueryCorrectionOffset("Orders", filter_groups="ignored,other", compare_group="quick")
    found = CorrectionOffsets.decode((await client.call(request)).body)
    assert found.correction_offsets == {0: 1}
    assert desk.offsets.query("ignored", "Orders", 0) == 0, "Java deletes it"
    request = QueryCorrectionOffset("Orders", filter_groups="ignored,slow", compare_group="slow")
    found = CorrectionOffsets.decode((await client.call(request)).body)
    assert found.correction_offsets == {0: (1 << 63) - 1}


@pytest.mark.parametrize("topic", ["Orders", None])
async def test_a_group_goes_on_where_another_is(desk, client, topic):
    desk.create()
    desk.offsets.commit("from", "Orders", 0, 7)
    desk.offsets.commit("from", "Gone", 0, 7)
    await client.call(CloneGroupOffset("from", "to", topic))
    saved = Offsets(desk.offsets.file.path)
    assert (saved.query("to", "Orders", 0), saved.query("to", "Gone", 0)) == (7, None)


async def test_what_members_no_longer_subscribe_is_cloned_only_as_of_a_group_that_is_away(desk, client):
    desk.create()
    desk.offsets.commit("g", "Orders", 0, 7)
    await client.beat("one", "Bills")
    await client.call(CloneGroupOffset("g", "to", "Orders"))
    assert desk.offsets.query("to", "Orders", 0) is None
    await client.call(CloneGroupOffset("g", "to", "Orders", offline=True))
    assert desk.offsets.query("to", "Orders", 0) == 7
