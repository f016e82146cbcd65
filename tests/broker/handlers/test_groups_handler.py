import json
from inspect import isawaitable

import msgspec
import pytest

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.groups_handler import GroupHandler
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    GetAllProducers,
    GetAllSubscriptionGroup,
    GetConsumerConnectionList,
    GetGroupConfig,
    GetProducerConnectionList,
    QuerySubscriptionByConsumer,
    QueryTopicConsumeByWho,
    QueryTopicsByConsumer,
    ResetOffset,
    UpdateAndCreateGroupList,
    UpdateAndCreateSubscriptionGroup,
)
from sparrowmq.protocol.requests.bodies import (
    GroupConfig,
    GroupConfigList,
    GroupConfigTable,
    GroupList,
    GroupTopicSubscription,
    TopicList,
)
from sparrowmq.protocol.requests.client_bodies import (
    ConsumerBeat,
    ConsumerConnections,
    ProducerConnections,
    ProducerTable,
)
from sparrowmq.protocol.requests.headers import ResetConsumerClientOffset
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets
from tests.broker.conftest import until
from tests.peers import Asker


def queue(queue_id, topic="Orders"):
    return MessageQueue(topic, "broker-a", queue_id)


async def test_a_group_is_on_disk_when_the_answer_comes(desk, client):
    body = b'{"groupName":"billing","retryMaxTimes":3,"consumeEnable":false,"retryQueueNums":2}'
    await client.call(UpdateAndCreateSubscriptionGroup(), body)
    saved = Groups(desk.groups.file.path, False, desk.clock).ensure("billing")
    assert (saved.retry_max_times, saved.consume_enable, saved.retry_queue_nums) == (3, False, 2)
    table = GroupConfigTable.decode((await client.call(GetAllSubscriptionGroup())).body)
    assert table.subscription_group_table == {"billing": saved}


async def test_settings_of_5x_are_kept_by_a_request_of_4x(desk, client):
    policy = b'{"exponentialRetryPolicy":{"initial":1000,"max":9000,"multiplier":3},"type":"EXPONENTIAL"}'
    await client.call(
        UpdateAndCreateSubscriptionGroup(),
        b'{"groupName":"g","consumeMessageOrderly":true,"consumeTimeoutMinute":30,"groupRetryPolicy":' + policy + b","
        b'"attributes":{"+priority.factor":"50"},"subscriptionDataSet":[{"topic":"T","expression":"*"}]}',
    )
    before = desk.groups.get("g")
    assert before.attributes == {"priority.factor": "50"}
    await client.call(UpdateAndCreateSubscriptionGroup(), b'{"groupName":"g","retryMaxTimes":3}')
    after = Groups(desk.groups.file.path, False, desk.clock).get("g")
    assert after is not None
    assert after.group_retry_policy is not None
    assert after == msgspec.structs.replace(before, retry_max_times=3)
    assert (after.consume_message_orderly, after.group_retry_policy.pause_ms(2)) == (True, 9000)
    body = b'{"groupName":"g","consumeMessageOrderly":false,"attributes":{"-priority.factor":""}}'
    await client.call(UpdateAndCreateSubscriptionGroup(), body)
    last = desk.groups.get("g")
    assert (last.consume_message_orderly, last.attributes) == (False, None)


async def test_many_groups_are_set_at_once_or_none(desk, client):
    first, second = GroupConfig("first", retry_max_times=3), GroupConfig("second")
    await client.call(UpdateAndCreateGroupList(), GroupConfigList([first, second]).encode())
    assert [each.group_name for each in desk.groups.all()] == ["first", "second"]
    assert Groups(desk.groups.file.path, False, desk.clock).get("first") == first
    for wrong in (GroupConfig("a@b"), GroupConfig("g", retry_queue_nums=-1)):
        await client.refusal(UpdateAndCreateGroupList(), GroupConfigList([GroupConfig("third"), wrong]).encode())
        assert desk.groups.get("third") is None
    many = GroupConfigList([GroupConfig(f"group{number}") for number in range(1500)]).encode()
    await client.call(UpdateAndCreateGroupList(), many)
    assert len(desk.groups.all()) == 1502


async def test_tools_ask_what_a_group_consumes(desk, client):
    assert TopicList.decode((await client.call(QueryTopicsByConsumer("g"))).body).topic_list == []
    desk.create("Orders")
    desk.create("Other")
    for topic in ("Other", "Orders"):
        desk.offsets.commit("g", topic, 0, 1)
    found = TopicList.decode((await client.call(QueryTopicsByConsumer("g"))).body)
    assert found.topic_list == ["Other", "Orders"]
    nothing = (await client.call(QuerySubscriptionByConsumer("g", "Orders"))).body
    assert nothing == b'{"group":"g","topic":"Orders"}'  # word for word as Apache's 5.4.0
    await client.beat("one", "Orders")
    answer = (await client.call(QuerySubscriptionByConsumer("g", "Orders"))).body
    told = GroupTopicSubscription.decode(answer).subscription_data
    assert told is not None
    assert (told.topic, told.expression) == ("Orders", "*")


async def test_tools_get_one_group_and_a_question_creates_none(desk, client):
    desk.groups.put(GroupConfig("billing", retry_max_times=3))
    body = json.loads((await client.call(GetGroupConfig("billing"))).body)
    assert body == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "billing",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }  # word for word as Apache's 5.4.0
    later = GroupConfig.decode((await client.call(GetGroupConfig("later"))).body)
    assert (later.group_name, later.retry_max_times) == ("later", 16)
    assert [each.group_name for each in desk.groups.all()] == ["billing"]
    desk.groups.allow_auto_create(is_allowed=False)
    error = await client.refusal(GetGroupConfig("later"))
    assert error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "later" in error.remark


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"{}", "blank"),
        (b'{"groupName":"a@b"}', "illegal"),
        (b'{"groupName":"g","retryQueueNums":-1}', "retryQueueNums is -1"),
        (b'{"groupName":"g","retryMaxTimes":"many"}', "GroupConfig"),
        (b'{"groupName":"g","groupRetryPolicy":{"type":"LINEAR"}}', "type 'LINEAR'"),
        (b'{"groupName":"g","attributes":{"priority.factor":"1"}}', "format is wrong"),
        (b'{"groupName":"g","attributes":{"+a":"1"}}', "unsupported key: a"),
    ],
)
async def test_what_cannot_be_a_group_is_refused_with_the_reason(desk, client, body, words):
    error = await client.refusal(UpdateAndCreateSubscriptionGroup(), body)
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert words in error.remark
    assert desk.groups.all() == []


@pytest.mark.parametrize(
    ("request_", "kept"),
    [
        (DeleteSubscriptionGroup("g"), 1),
        (DeleteSubscriptionGroup("g", remove_offset=True), None),
        (DeleteSubscriptionGroup("g", clean_offset=True), None),
    ],
)
async def test_deleting_a_group_takes_its_offsets_along_if_asked(desk, client, request_, kept):
    desk.groups.ensure("g")
    desk.offsets.commit("g", "Orders", 0, 1)
    await client.call(request_)
    assert Groups(desk.groups.file.path, True, desk.clock).get("g") is None
    assert desk.offsets.query("g", "Orders", 0) == kept
    await client.call(request_)  # An absent one is no error.


async def test_a_groups_name_cannot_write_lines_of_its_own_into_the_log(client, caplog):
    caplog.set_level("INFO")
    for name in ("g\nINFO all is well", "x" * 100_000):
        await client.call(DeleteSubscriptionGroup(name))
    lines = [record.getMessage() for record in caplog.records if "is deleted by" in record.getMessage()]
    assert len(lines) == 2 and not [line[:80] for line in lines if "\n" in line or len(line) > 600]


async def test_who_consumes_a_topic_are_those_on_line_and_those_who_did(desk, client):
    desk.offsets.commit("old", "Orders", 0, 1)
    await client.beat("one", "Orders", group="living")
    found = GroupList.decode((await client.call(QueryTopicConsumeByWho("Orders"))).body)
    assert found.group_list == ["living", "old"]


async def test_the_members_of_a_group_are_shown_with_their_addresses(client):
    await client.beat("one", "Orders")
    body = (await client.call(GetConsumerConnectionList("g"))).body
    shown = ConsumerConnections.decode(body)
    (member,) = shown.connection_set
    assert (member.client_id, member.client_addr, member.language) == ("one", client.session.local_address, "PYTHON")
    assert (shown.consume_type, shown.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert shown.subscription_table["Orders"].expression == "*"


async def test_group_that_pops_is_shown_with_a_type_that_tools_of_4_know(client):
    await client.beat("one", "Orders", consume_type="CONSUME_POP")
    shown = ConsumerConnections.decode((await client.call(GetConsumerConnectionList("g"))).body)
    assert shown.consume_type == "CONSUME_PASSIVELY"


async def test_producers_are_shown_likewise(client):
    await client.produce("one", "p")
    shown = ProducerConnections.decode((await client.call(GetProducerConnectionList("p"))).body)
    assert [member.client_id for member in shown.connection_set] == ["one"]


async def test_the_producers_of_all_groups_are_shown(desk, client):
    await client.produce("one", "senders")
    await desk.clock.advance(7)
    entry = ProducerTable.decode((await client.call(GetAllProducers())).body).data["senders"][0]
    (member,) = desk.clients.producers("senders")
    assert (entry.client_id, entry.remote_ip) == ("one", f"/{member.peer.address}")
    assert entry.last_update_timestamp == desk.clock.now_ms() - 7000


async def test_groups_without_members_are_errors(client):
    error = await client.refusal(GetConsumerConnectionList("g"))
    assert (error.code, error.remark) == (
        ResponseCode.CONSUMER_NOT_ONLINE,
        "the consumer group[g] not online",
    )
    error = await client.refusal(GetProducerConnectionList("p"))
    assert (error.code, error.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[p] not exist")


@pytest.fixture
async def consuming(desk, connect):
    """A member of group g, which has consumed 3 of 4 messages, each a second apart, in queue 0."""
    desk.create("Orders", 2)
    for _ in range(4):
        desk.send(b"x")
        await desk.clock.advance(1)
    desk.offsets.commit("g", "Orders", 0, 3)
    member = await connect()
    await member.beat("one", "Orders")
    return member


@pytest.mark.parametrize(
    ("after_ms", "force", "expected"),
    [
        (0, False, 0),
        (1000, False, 1),
        (3000, False, 3),
        (9000, False, 3),
        (9000, True, 4),
        (None, False, 3),
        (None, True, 4),
    ],
)
async def test_a_reset_goes_back_to_a_time_and_forward_only_by_force(
    desk, client, consuming, after_ms, force, expected
):
    start_ms = desk.clock.now_ms() - 4000
    time_ms = -1 if after_ms is None else start_ms + after_ms
    response = await client.call(ResetOffset("Orders", "g", time_ms, force))
    table = ResetOffsets.decode(response.body).offset_table
    assert table == {queue(0): expected, queue(1): 0}
    await until(lambda: len(consuming.pushed) == 2)
    push = consuming.pushed[1]
    assert (push.code, push.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
    fields = {"topic": "Orders", "group": "g", "timestamp": str(time_ms), "isForce": "false"}
    assert push.ext_fields() == fields, "as Java's, whatever the admin asked; C++ clients end without one"
    assert push.body == response.body
    assert desk.offsets.query("g", "Orders", 0) == 3, "the members commit themselves"


async def test_one_queue_may_be_set_to_an_offset(client, consuming):
    response = await client.call(ResetOffset("Orders", "g", 0, True, queue_id=0, offset=99))
    assert ResetOffsets.decode(response.body).offset_table == {queue(0): 4}


async def test_a_reset_of_a_group_that_does_not_exist_is_refused(desk, client):
    """A tool commits offsets for a group that is only offline, so it would report success for a mistyped name."""
    desk.create("Orders")
    desk.offsets.commit("typo", "Bills", 0, 1)
    error = await client.refusal(ResetOffset("Orders", "typo", -1, True))
    assert (error.code, error.remark) == (ResponseCode.SYSTEM_ERROR, "THe consumer group <typo> not exist")
    assert desk.groups.get("typo") is None


@pytest.mark.parametrize("known_by", ["settings", "offset"])
async def test_a_reset_of_a_group_without_members_says_so(desk, client, known_by):
    desk.create("Orders")
    if known_by == "settings":
        desk.groups.ensure("g")
    else:
        desk.offsets.commit("g", "Orders", 0, 1)
    error = await client.refusal(ResetOffset("Orders", "g", -1, True))
    assert error.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert error.remark.startswith("Consumer not online, so can not reset offset, Group: g Topic: Orders")


async def test_a_reset_of_an_unknown_topic_says_so(client):
    error = await client.refusal(ResetOffset("Nothing", "g", -1, True))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert error.remark.endswith("no topic in this broker. topic=Nothing")


async def test_each_member_is_told_of_a_reset_in_the_form_it_reads(desk, consuming):
    other = Asker(language="CPP")
    desk.clients.consume(other, "two", ConsumerBeat("g"))
    handler = GroupHandler(desk.shared, desk.pops)
    for language in ("JAVA", "CPP"):
        answer = handler.reset(ResetOffset("Orders", "g", -1, True), b"", Asker(language=language))
        if isawaitable(answer):  # It takes more than one slice on a busy machine.
            await answer
    rows = b'[{"brokerName":"broker-a","offset":4,"queueId":0,"topic":"Orders"},'
    resets = [body for request, body in other.told if isinstance(request, ResetConsumerClientOffset)]
    assert [body.startswith(b'{"offsetTable":' + rows) for body in resets] == [True, True]
    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    await until(lambda: [push.code for push in consuming.pushed].count(code) == 2)
    bodies = [push.body for push in consuming.pushed if push.code == code]
    assert [ResetOffsets.decode(body).offset_table[queue(0)] for body in bodies] == [4, 4]
    assert [body.startswith(b'{"offsetTable":{{') for body in bodies] == [True, True]


def test_the_form_for_cpp_is_written_in_slices(desk):
    desk.create("Orders", 2000)
    desk.clients.consume(Asker(language="CPP"), "two", ConsumerBeat("g"))
    handler = GroupHandler(desk.shared, desk.pops)
    steps = handler._reset_queues(ResetOffset("Orders", "g", -1, True), range(2000), Asker())
    # A queue takes a step each to be reset, written, written for C++, and freed.
    assert sum(1 for _ in steps) >= 4 * 2000


async def test_all_groups_are_counted_for_those_who_page(desk, client):
    desk.groups.put(GroupConfig("a"))
    assert (await client.call(GetAllSubscriptionGroup())).header.total_group_num == 1
