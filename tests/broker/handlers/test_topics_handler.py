import asyncio
import json

import pytest

from sparrowmq.broker.topics import Topics
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStats,
    UpdateAndCreateTopic,
    UpdateAndCreateTopicList,
)
from sparrowmq.protocol.requests.bodies import TopicConfig, TopicConfigList, TopicConfigTable, TopicList
from sparrowmq.protocol.requests.offset_bodies import TopicOffset, TopicStats


@pytest.mark.covers("S-ROUTE-08", "S-ROUTE-09")
@pytest.mark.covers("S-ROUTE-07")
async def test_a_created_topic_is_on_disk_and_announced_when_the_answer_comes(desk, client):
    await client.call(UpdateAndCreateTopic("Orders", 8, 4, 6, order=True, topic_filter_type="SINGLE_TAG"))
    assert desk.topics.get("Orders") == TopicConfig("Orders", 8, 4, 6, order=True)
    assert desk.announcements == [desk.topics.version.counter]
    assert Topics(desk.topics.file.path, desk.settings, desk.clock).get("Orders") is not None


async def test_updating_a_topic_replaces_it(desk, client):
    desk.create("Orders", 4)
    await client.call(UpdateAndCreateTopic("Orders", 2, 2, 4))
    assert desk.topics.get("Orders") == TopicConfig("Orders", 2, 2, 4)


async def test_attributes_stay_until_a_request_names_them(desk, client):
    await client.call(UpdateAndCreateTopic("Orders", 4, 4, 6, attributes="+message.type=FIFO,+reserve.time=60"))
    await client.call(UpdateAndCreateTopic("Orders", 8, 8, 6))  # as a tool of 4.x
    assert desk.topics.get("Orders").attributes == {"message.type": "FIFO", "reserve.time": "60"}
    await client.call(UpdateAndCreateTopic("Orders", 8, 8, 6, attributes="-reserve.time,+message.type=DELAY"))
    assert desk.topics.get("Orders").attributes == {"message.type": "DELAY"}
    saved = json.loads(desk.topics.file.path.read_bytes())
    assert saved["topicConfigTable"]["Orders"]["attributes"] == {"message.type": "DELAY"}
    again = Topics(desk.topics.file.path, desk.settings, desk.clock).get("Orders")
    assert again is not None
    assert again.attributes == {"message.type": "DELAY"}
    await client.call(UpdateAndCreateTopic("Orders", 8, 8, 6, attributes="-message.type"))
    assert desk.topics.get("Orders") == TopicConfig("Orders", 8, 8, 6)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("+message.type=fifo", "not in set"),
        ("-message.type", "nonexistent key"),
        ("+a=b", "unsupported key: a"),
    ],
)
async def test_a_wrong_attribute_changes_no_topic(desk, client, attributes, words):
    known = desk.topics.put(TopicConfig("Orders", 4, 4))
    error = await client.refusal(UpdateAndCreateTopic("Orders", 8, 8, 6, attributes=attributes))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert words in error.remark
    assert desk.topics.get("Orders") is known


async def test_many_topics_are_set_at_once_or_none(desk, client):
    first = TopicConfig("First", 2, 2, attributes={"+message.type": "FIFO"})
    second = TopicConfig("Second", 4, 4)
    await client.call(UpdateAndCreateTopicList(), TopicConfigList([first, second]).encode())
    assert desk.topics.get("First") == TopicConfig("First", 2, 2, attributes={"message.type": "FIFO"})
    assert Topics(desk.topics.file.path, desk.settings, desk.clock).get("Second") == second
    assert desk.announcements == [desk.topics.version.counter]
    for wrong in (
        TopicConfig("a/b"),
        TopicConfig("T", 0),
        TopicConfig("T", attributes={"message.type": "FIFO"}),
    ):
        await client.refusal(UpdateAndCreateTopicList(), TopicConfigList([TopicConfig("Third"), wrong]).encode())
        assert desk.topics.get("Third") is None
    many = TopicConfigList([TopicConfig(f"Topic{number}") for number in range(1500)]).encode()
    await client.call(UpdateAndCreateTopicList(), many)
    assert desk.topics.get("Topic0") is not None and desk.topics.get("Topic1499") is not None
    await client.call(UpdateAndCreateTopicList(), TopicConfigList().encode())


async def test_tools_get_one_topic(desk, client):
    desk.topics.put(TopicConfig("Plain", 4, 4))
    desk.topics.put(TopicConfig("Orders", 4, 2, attributes={"message.type": "FIFO"}))
    body = (await client.call(GetTopicConfig("Orders", lo=True))).body
    assert TopicConfig.decode(body) == desk.topics.get("Orders")
    assert json.loads((await client.call(GetTopicConfig("Plain"))).body)["attributes"] == {}
    error = await client.refusal(GetTopicConfig("Missing"))
    assert error.code == ResponseCode.TOPIC_NOT_EXIST
    assert "Missing" in error.remark


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (UpdateAndCreateTopic("Orders", 0, 4, 6), "readQueueNums is 0"),
        (UpdateAndCreateTopic("Orders", 4, 70_000, 6), "writeQueueNums is 70000"),
        (UpdateAndCreateTopic("Orders", 4, 4, 9), "invalid perm 9"),
        (UpdateAndCreateTopic("Orders", 4, 4, -1), "invalid perm -1"),
        (
            UpdateAndCreateTopic("Orders", 4, 4, 6, topic_filter_type="NONSENSE"),
            "topicFilterType = [NONSENSE]",
        ),
        (UpdateAndCreateTopic("a/b", 4, 4, 6), "illegal characters"),
        (UpdateAndCreateTopic("", 4, 4, 6), "blank"),
        (UpdateAndCreateTopic("x" * 128, 4, 4, 6), "128 characters"),
        (UpdateAndCreateTopic("SCHEDULE_TOPIC_XXXX", 4, 4, 6), "is conflict with system topic"),
        (UpdateAndCreateTopic("DefaultCluster", 4, 4, 6), "is conflict with system topic"),
        (DeleteTopic("TBW102"), "is conflict with system topic"),
        (DeleteTopic("../../etc"), "illegal characters"),
    ],
)
async def test_what_cannot_be_a_topic_is_refused_with_the_reason(desk, client, request_, words):
    before = desk.topics.version
    error = await client.refusal(request_)
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert words in error.remark
    assert desk.topics.version is before


async def test_a_deleted_topic_takes_its_queues_and_offsets_along(desk, client):
    desk.send(b"x")
    desk.offsets.commit("g", "Orders", 0, 1)
    await client.call(DeleteTopic("Orders"))
    assert desk.topics.get("Orders") is None
    assert desk.store.queues.get("Orders", 0) is None
    assert desk.offsets.query("g", "Orders", 0) is None
    assert Topics(desk.topics.file.path, desk.settings, desk.clock).get("Orders") is None
    await client.call(DeleteTopic("Orders"))  # An absent one is no error.


async def test_a_large_topic_is_gone_at_once_and_its_files_go_in_slices(desk, client):
    desk.create("Orders", 20_000)
    for queue_id in range(20_000):
        desk.store.queues.obtain("Orders", queue_id)
    for group in ("g", "h"):
        desk.offsets.commit(group, "Orders", 0, 1)
    seen, left = [], set()

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            topic, queues = desk.topics.get("Orders"), len(desk.store.queues.ids("Orders"))
            seen.append((topic is not None, queues, len(at_once(desk.offsets.groups_of("Orders")))))
            left.add(len(desk.store.queues._detached.get("Orders", ())))

    beside = asyncio.create_task(others())
    await client.call(DeleteTopic("Orders"), timeout_s=60)
    beside.cancel()
    assert set(seen) <= {(True, 20_000, 2), (False, 0, 0)}
    assert len(left) > 5  # the folders of 20,000 queues take 40 ms or more


async def test_a_topic_goes_though_nobody_sent_to_a_queue_that_somebody_waits_for(desk, client):
    desk.create("Orders", 2)
    desk.store.queues.obtain("Orders", 0).end.when(1, lambda error: None)
    await client.call(DeleteTopic("Orders"))
    assert desk.store.queues.get("Orders", 0) is None


async def test_statistics_list_every_queue_even_of_an_empty_topic(desk, client):
    desk.topics.put(TopicConfig("Orders", 1, 3))
    desk.send(b"x", queue_id=1)
    desk.send(b"y", queue_id=1)
    stats = TopicStats.decode((await client.call(GetTopicStats("Orders"))).body)
    assert stats.offset_table == {
        MessageQueue("Orders", "broker-a", 0): TopicOffset(0, 0, 0),
        MessageQueue("Orders", "broker-a", 1): TopicOffset(0, 2, desk.clock.now_ms()),
        MessageQueue("Orders", "broker-a", 2): TopicOffset(0, 0, 0),
    }


async def test_statistics_of_an_unknown_topic_are_an_error(client):
    error = await client.refusal(GetTopicStats("Nothing"))
    assert (error.code, error.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[Nothing] not exist")


async def test_tools_get_all_topics(desk, client):
    desk.create("Orders")
    response = await client.call(GetAllTopicConfig())
    table = TopicConfigTable.decode(response.body)
    assert table.topic_config_table["Orders"] == desk.topics.get("Orders")
    assert table.data_version == desk.topics.version
    assert response.header.total_topic_num == len(table.topic_config_table)
    assert json.loads(response.body)["topicConfigTable"]["TBW102"]["perm"] == 7


async def test_tools_get_the_system_topics(desk, client):
    found = TopicList.decode((await client.call(GetSystemTopicListFromBroker())).body).topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(found)
    assert "Orders" not in found


async def test_the_queues_of_a_large_topic_are_shown_in_slices(desk, client):
    desk.create("Orders", 20_000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(others())
    found = TopicStats.decode((await client.call(GetTopicStats("Orders"), timeout_s=60)).body)
    beside.cancel()
    assert len(found.offset_table) == 20_000
    assert turns > 10  # 20,000 queues take 100 ms or more
