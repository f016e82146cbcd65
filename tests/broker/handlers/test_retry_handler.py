import asyncio
from dataclasses import replace

import pytest

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.retry_handler import RetryHandler
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.requests.admin_headers import DeleteTopic, UpdateAndCreateTopic
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.requests.group_settings import ExponentialRetryPolicy, GroupRetryPolicy
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.remoting.handler import ReplyWhenDurable
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop
from tests.peers import Asker

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LONGEST_MS = 40 * 86_400_000


@pytest.mark.covers("S-RETRY-05", "S-CONS-19")
async def test_a_message_sent_back_waits_for_its_next_try(desk, client):
    desk.groups.ensure("g")
    offset = desk.send(b"one", UNIQ_KEY="AB", TAGS="paid")
    await client.call(ConsumerSendMsgBack(offset, "g", 0))
    (parked,) = desk.stored(SCHEDULE, 2)
    assert (parked.body, parked.reconsume_times) == (b"one", 1)
    assert parked.properties["REAL_TOPIC"] == "%RETRY%g"
    assert parked.properties["RETRY_TOPIC"] == "Orders"
    assert parked.properties["UNIQ_KEY"] == "AB"
    assert parked.properties["ORIGIN_MESSAGE_ID"] == desk.stored()[0].offset_id
    assert (parked.born_timestamp_ms, parked.born_host) == (desk.clock.now_ms(), "127.0.0.1:5000")


@pytest.mark.covers("S-RETRY-01", "S-RETRY-05", "S-RETRY-06", "S-CONS-20")
async def test_a_message_goes_through_its_tries_to_the_dead_letters(desk, client):
    desk.groups.put(GroupConfig("g", retry_max_times=2))
    offset = desk.send(b"one")
    for times, wait_s in ((1, 10), (2, 30)):
        await client.call(ConsumerSendMsgBack(offset, "g", 0))
        await desk.clock.advance(wait_s - 1)
        desk.delayed._deliver_levels()
        assert len(desk.stored("%RETRY%g")) == times - 1
        await desk.clock.advance(1)
        desk.delayed._deliver_levels()
        message = desk.stored("%RETRY%g")[-1]
        assert message.reconsume_times == times
        offset = message.physical_offset
    await client.call(ConsumerSendMsgBack(offset, "g", 0))
    (dead,) = desk.stored("%DLQ%g")
    assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (b"one", 3, "Orders")
    assert dead.properties["ORIGIN_MESSAGE_ID"] == desk.stored()[0].offset_id
    assert desk.topics.get("%DLQ%g").perm == 6


async def test_a_group_s_own_policy_decides_when_a_message_comes_again(desk, client):
    policy = GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy(1500, 10_000_000_000, 3))
    desk.groups.put(GroupConfig("g", group_retry_policy=policy))
    offset = desk.send(b"one")
    await client.call(ConsumerSendMsgBack(offset, "g", 0))
    (parked,) = desk.stored(TIMER_TOPIC)
    assert parked.properties["REAL_TOPIC"] == "%RETRY%g"
    assert int(parked.properties["TIMER_OUT_MS"]) == desk.clock.now_ms() + 1500
    await client.call(ConsumerSendMsgBack(desk.send(b"two", reconsume_times=2), "g", 0))
    assert int(desk.stored(TIMER_TOPIC)[-1].properties["TIMER_OUT_MS"]) == desk.clock.now_ms() + 13_500
    tired = desk.send(b"three", reconsume_times=15)
    await client.call(ConsumerSendMsgBack(tired, "g", 0))
    assert (
        int(desk.stored(TIMER_TOPIC)[-1].properties["TIMER_OUT_MS"]) == desk.clock.now_ms() + LONGEST_MS
    )  # timerMaxDelaySec
    assert desk.stored(SCHEDULE, 2) == []
    await client.call(ConsumerSendMsgBack(desk.send(b"four"), "g", 3))  # the client's level counts
    assert len(desk.stored(SCHEDULE, 2)) == 1


async def test_a_policy_without_pauses_and_a_broker_without_timers_use_levels(desk, client):
    desk.groups.put(GroupConfig("g", group_retry_policy=GroupRetryPolicy("CUSTOMIZED")))
    await client.call(ConsumerSendMsgBack(desk.send(b"one"), "g", 0))
    assert len(desk.stored(SCHEDULE, 2)) == 1
    desk.groups.put(GroupConfig("g", group_retry_policy=GroupRetryPolicy("EXPONENTIAL", ExponentialRetryPolicy())))
    handler = RetryHandler(desk.shared, desk.pops)
    handler.send_back(ConsumerSendMsgBack(desk.send(b"two"), "g", 0), b"", Asker(version=409))
    assert len(desk.stored(SCHEDULE, 2)) == 2


@pytest.mark.parametrize(
    ("request_", "dead"),
    [
        (ConsumerSendMsgBack(0, "g", -1), True),
        (ConsumerSendMsgBack(0, "g", 0, max_reconsume_times=0), True),
        (
            ConsumerSendMsgBack(0, "g", 0, max_reconsume_times=-1),
            True,
        ),  # As Apache's 4.9.7, though -1 is Java's word for 16 elsewhere.
        (ConsumerSendMsgBack(0, "g", 4, "0A", "Orders", False, 16), False),
    ],
)
async def test_the_consumer_may_decide(desk, client, request_, dead):
    desk.groups.ensure("g")
    desk.send(b"one")
    await client.call(request_)
    assert len(desk.stored("%DLQ%g")) == dead


async def test_clients_before_3_4_9_do_not_decide_how_often(desk, client):
    desk.groups.ensure("g")
    desk.send(b"one")
    handler = RetryHandler(desk.shared, desk.pops)
    header = ConsumerSendMsgBack(0, "g", 0, max_reconsume_times=0)
    handler.send_back(header, b"", Asker(version=63))
    assert desk.stored("%DLQ%g") == []


async def test_the_answer_waits_until_the_message_is_on_disk(desk, client):
    desk.groups.ensure("g")
    desk.send(b"one")
    handler = RetryHandler(desk.shared, desk.pops)
    header = ConsumerSendMsgBack(0, "g", 0)
    answer = handler.send_back(header, b"", Asker(version=409))
    assert isinstance(answer, ReplyWhenDurable)
    assert (answer.durability, answer.end, answer.reply) == (desk.store.durability(True), desk.store.end, None)


async def test_a_group_may_want_no_retries(desk, client):
    desk.groups.put(GroupConfig("g", retry_queue_nums=0))
    offset = desk.send(b"one")
    await client.call(ConsumerSendMsgBack(offset, "g", 0))
    assert desk.topics.get("%RETRY%g") is None


async def test_an_unknown_group_is_made_as_by_a_heartbeat(desk, client):
    await client.call(ConsumerSendMsgBack(desk.send(b"one"), "g", 0))
    assert desk.groups.get("g") is not None
    assert len(desk.stored(SCHEDULE, 2)) == 1


async def test_an_unknown_group_is_an_error_where_operators_make_the_groups(desk, client, clock, tmp_path):
    groups = Groups(tmp_path / "none.json", False, clock)
    handler = RetryHandler(replace(desk.shared, groups=groups), desk.pops)
    header = ConsumerSendMsgBack(desk.send(b"one"), "nobody", 0)
    with pytest.raises(RemoteError, match="subscription group not exist, nobody") as refused:
        handler.send_back(header, b"", Asker())
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_place_without_a_message_is_an_error(desk, client):
    desk.groups.ensure("g")
    error = await client.refusal(ConsumerSendMsgBack(12345, "g", 0))
    assert (error.code, error.remark) == (ResponseCode.SYSTEM_ERROR, "look message by offset failed, 12345")


async def test_a_retry_topic_that_may_not_be_written_is_an_error(desk, client):
    desk.groups.ensure("g")
    desk.topics.put(TopicConfig("%RETRY%g", 1, 1, 4))
    error = await client.refusal(ConsumerSendMsgBack(desk.send(b"one"), "g", 0))
    assert error.code == ResponseCode.NO_PERMISSION


def burial(message):
    return ConsumerSendMsgBack(message.physical_offset, "poppers", -1, max_reconsume_times=0)


async def dead_letters(broker):
    return [(each.body, each.reconsume_times) for each in await broker.messages("%DLQ%poppers")]


async def test_two_requests_for_one_popped_message_make_one_dead_letter(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (first,) = await pop(broker)
        await clock.advance(31)
        (again,) = await pop(broker)
        calls = (broker.session.call(burial(each)) for each in (first, again, again))
        await asyncio.gather(*calls)
        assert await dead_letters(broker) == [(b"one", 2)]
        await broker.session.call(ack(again))  # the client's own acknowledgement
        await clock.advance(31)
        assert await pop(broker) == []


async def test_burial_of_a_deleted_topic_s_message_leaves_the_new_one_in_its_place(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"old")
        (old,) = await pop(broker)
        await broker.session.call(DeleteTopic("orders"))
        await broker.session.call(UpdateAndCreateTopic("orders", 1, 1, perm=6))
        await broker.send(b"new")
        (new,) = await pop(broker)
        assert (old.queue_offset, new.queue_offset) == (0, 0)
        await broker.session.call(burial(old))
        await clock.advance(60)
        (again,) = await pop(broker)
        assert again.body == b"new"


async def test_an_acknowledged_message_is_no_dead_letter(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for body in (b"one", b"two"):
            await broker.send(body)
        one, two = await pop(broker)
        await broker.session.call(ack(one))
        for message in (one, two):
            await broker.session.call(burial(message))
        assert await dead_letters(broker) == [(b"two", 1)]
        # For another group the messages are not done.
        await broker.session.call(ConsumerSendMsgBack(one.physical_offset, "pullers", -1))
        assert len(await broker.messages("%DLQ%pullers")) == 1


async def test_a_burial_outlives_a_restart(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (one,) = await pop(broker)
        await broker.session.call(burial(one))
        await broker.session.call(ack(one))
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.session.call(burial(one))
        await clock.advance(31)
        assert await pop(broker) == [] and len(await dead_letters(broker)) == 1
