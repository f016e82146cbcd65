"""Pops, asked of a whole broker."""

import asyncio

import pytest

from sparrowmq.broker.pop import popper
from sparrowmq.broker.pop.popper import MAX_MESSAGES, MAX_SINGLE_READS
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import QueryConsumerOffset
from sparrowmq.protocol.requests.pop_headers import (
    AFTER_NEWEST,
    FROM_NEWEST,
    FROM_OLDEST,
    Notification,
    PeekMessage,
    Polling,
)
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, change, messages, pop, pop_all, pop_request
from tests.store.stores import HOST


async def committed(live, queue_id=0, topic="orders"):
    answer = await live.session.call(QueryConsumerOffset("poppers", topic, queue_id))
    return answer.header.offset


async def test_a_popped_message_is_hidden_until_its_time_is_over(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        await broker.send(b"two", queue_id=1)
        first = await pop_all(broker)
        assert sorted((each.body, each.reconsume_times) for each in first) == [(b"one", 0), (b"two", 0)]
        assert await pop(broker) == []
        assert await pop(broker, consumer_group="others") != []
        await clock.advance(29.9)
        assert await pop(broker) == []
        await clock.advance(0.2)
        again = await pop_all(broker)
        assert sorted((each.body, each.reconsume_times) for each in again) == [(b"one", 1), (b"two", 1)]


async def test_an_acknowledged_message_never_comes_again_and_moves_the_offset(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for body in (b"a", b"b", b"c"):
            await broker.send(body)
        result = await pop(broker, queue_id=0)
        await broker.session.call(ack(result[1]))
        assert await committed(broker) == 0
        await broker.session.call(ack(result[0]))
        assert await committed(broker) == 2
        await clock.advance(31)
        assert [each.body for each in await pop(broker)] == [b"c"]


async def test_a_change_moves_the_time_and_only_the_new_handle_counts(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"slow")
        (slow,) = await pop(broker)
        changed = (await broker.session.call(change(slow, 100_000))).header
        with pytest.raises(RemoteError, match="not valid") as refused:
            await broker.session.call(ack(slow))
        assert refused.value.code == ResponseCode.NO_MESSAGE
        await clock.advance(99)
        assert await pop(broker) == []
        await broker.session.call(ack(slow, changed.extra_info))
        assert await committed(broker) == 1
        await broker.session.call(ack(slow, changed.extra_info))  # again, after a lost answer


async def test_a_pop_waits_for_a_message_of_any_queue(tmp_path):
    async with live_broker(tmp_path) as broker:
        await broker.send(b"first")
        assert len(await pop(broker)) == 1
        waiting = asyncio.ensure_future(pop(broker, poll_time=20_000))
        noticing = asyncio.ensure_future(
            broker.session.call(Notification("poppers", "orders", -1, 20_000, 0), timeout_s=30)
        )
        while (await broker.session.call(Polling("poppers", "orders", 0))).header.polling_num < 1:
            await asyncio.sleep(0.01)
        await broker.send(b"second", queue_id=3)
        assert [each.body for each in await waiting] == [b"second"]
        noticing.cancel()


async def test_a_waiting_pop_gets_a_message_that_is_visible_again(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"again")
        (first,) = await pop(broker, invisible_time=5000)
        waiting = asyncio.ensure_future(pop(broker, poll_time=20_000))
        await asyncio.sleep(0.1)
        await clock.advance(5.2)
        assert [(each.body, each.reconsume_times) for each in await waiting] == [(b"again", 1)]
        with pytest.raises(RemoteError, match="not valid"):
            await broker.session.call(ack(first))


async def test_a_wait_ends_with_its_time(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        await pop(broker)
        waiting = asyncio.ensure_future(broker.session.call(pop_request(poll_time=3000), accept={210}, timeout_s=30))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await clock.advance(3.2)
        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert messages(answer) == []


async def test_a_filter_skips_messages_for_good(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock, property_filter=True) as broker:
        for tag in ("a", "b", "a"):
            await broker.send(tag.encode(), properties={"TAGS": tag, "n": "1" if tag == "a" else "2"})
        assert [each.body for each in await pop(broker, exp="b", exp_type="TAG")] == [b"b"]
        assert await committed(broker) == 1  # the first was skipped; the second is with its consumer
        found = await pop(broker, consumer_group="others", exp="n = 2", exp_type="SQL92")
        assert [each.body for each in found] == [b"b"]
        assert await pop(broker) == []


@pytest.mark.parametrize(
    ("memory_percent", "init_mode", "bodies"),
    [
        (40, FROM_NEWEST, [b"old", b"last"]),  # as a group that pulls, in a young queue
        (0, FROM_NEWEST, [b"last"]),  # as in Java
        (40, FROM_OLDEST, [b"old", b"last"]),
        (0, FROM_OLDEST, [b"old", b"last"]),
        (40, AFTER_NEWEST, []),
    ],
)
@pytest.mark.parametrize("order", [False, True])
async def test_new_group_begins_where_its_mode_says(tmp_path, clock, memory_percent, init_mode, bodies, order):
    async with live_broker(tmp_path, clock=clock, memory_percent=memory_percent) as broker:
        for body in (b"old", b"last"):
            await broker.send(body)
        first = await pop(broker, queue_id=0, init_mode=init_mode, order=order)
        assert [each.body for each in first] == bodies
        for message in first:
            await broker.session.call(ack(message))
        await broker.send(b"new")
        again = await pop(broker, queue_id=0, init_mode=init_mode, order=order)
        assert [each.body for each in again] == [b"new"]


async def test_an_answer_says_how_many_messages_a_pop_may_ask_for(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for _ in range(40):
            await broker.send(b"one")
        answer = await broker.session.call(pop_request(max_msg_nums=MAX_MESSAGES))
        assert answer.header.most_msg_nums == MAX_MESSAGES
        assert len(messages(answer)) == 40


async def test_an_answer_counts_the_messages_of_each_queue_for_a_client_that_wants_no_list(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for queue_id in (0, 0, 1):
            await broker.send(b"one", queue_id=queue_id)
        header = (await broker.session.call(pop_request(wants_counts=True))).header
        start = header.start_offset_info
        both = [("0 0 0;0 1 0", "2,1"), ("0 1 0;0 0 0", "1,2")]
        one = [("0 0 0", "2"), ("0 1 0", "1")]  # on a busy machine the time of a pop may end behind one queue
        assert (start, header.queue_counts) in [*both, *one]
        assert header.msg_offset_info is None


async def test_a_pop_gives_only_so_many_messages_again_as_it_can_read_one_by_one(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for _ in range(MAX_SINGLE_READS + 2):
            await broker.send(b"one")
        await pop_all(broker, max_msg_nums=MAX_MESSAGES)
        await clock.advance(31)
        counts = [len(await pop(broker, max_msg_nums=MAX_MESSAGES)) for _ in range(2)]
        assert counts == [MAX_SINGLE_READS, 2]


async def test_an_orderly_pop_gives_only_so_many_messages(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for _ in range(MAX_SINGLE_READS + 2):
            await broker.send(b"one")
        assert len(await pop(broker, queue_id=0, max_msg_nums=MAX_MESSAGES, order=True)) == MAX_SINGLE_READS


async def test_a_peek_hides_nothing(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        for _ in range(2):
            answer = await broker.session.call(PeekMessage("orders", 0, 32, "poppers"))
            assert [each.body for each in messages(answer)] == [b"one"]
        assert [each.body for each in await pop(broker)] == [b"one"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -2}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": MAX_MESSAGES + 1}, ResponseCode.INVALID_PARAMETER),
        ({"invisible_time": -1}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a = ", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_pop_that_cannot_be_is_refused(tmp_path, clock, fields, code):
    async with live_broker(tmp_path, clock=clock, property_filter=True) as broker:
        await broker.send(b"one")
        with pytest.raises(RemoteError) as refused:
            await broker.session.call(pop_request(**fields))
        assert refused.value.code == code


@pytest.mark.parametrize(("kind", "name"), [(1, "%RETRY%poppers_orders"), (2, "%RETRY%poppers+orders")])
async def test_messages_that_apache_left_in_retry_topics_are_popped_too(tmp_path, clock, kind, name):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"new")
        broker.broker.store.append(Entry(name, 0, b"left", Properties(""), 7, HOST, reconsume_times=4))
        broker.broker.store.publish()
    async with live_broker(tmp_path, clock=clock) as broker:
        found = {each.body: each for each in await pop_all(broker)}
        left = found[b"left"]
        assert (left.topic, left.reconsume_times) == ("orders", 4)
        handle = ReceiptHandle.parse(left.properties["POP_CK"])
        assert (handle.kind, handle.queue_id, handle.queue_offset) == (kind, 0, 0)
        assert await pop_all(broker) == []
        await clock.advance(31)
        again = {each.body: each for each in await pop_all(broker)}
        assert again[b"left"].reconsume_times == 5
        await broker.session.call(ack(again[b"left"], topic=name))
        await clock.advance(31)
        assert [each.body for each in await pop_all(broker)] == [b"new"]


async def test_a_topic_of_another_group_is_no_retry_topic(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"new")
        name = "%RETRY%poppers_orders"
        await broker.session.call(UpdateAndCreateTopic(name, 1, 1, perm=6))
        await pop(broker, consumer_group="poppers_orders")
        await broker.send(b"theirs", topic=name)
        assert [each.body for each in await pop_all(broker)] == [b"new"]


async def widest(broker):
    await broker.session.call(UpdateAndCreateTopic("wide", 65_535, 65_535, 6, "TBW102", "SINGLE_TAG", 0))


async def test_a_pop_of_a_topic_with_very_many_queues_looks_only_at_those_with_messages(tmp_path):
    async with live_broker(tmp_path) as broker:
        await widest(broker)
        waiting = asyncio.ensure_future(pop(broker, topic="wide", poll_time=20_000))
        while (await broker.session.call(Polling("poppers", "wide", 0))).header.polling_num < 1:
            await asyncio.sleep(0.01)
        assert broker.broker.store.queues.ids("wide") == []
        await broker.send(b"far", topic="wide", queue_id=65_000)
        assert [each.body for each in await waiting] == [b"far"]


async def test_a_pop_that_has_no_time_goes_on_with_the_next_queues_until_it_has_looked_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(popper, "_TIME_LIMIT_S", 0.0)
    looks: list[int] = []
    pop_some = popper.Popper.pop

    def counted(*asked):
        looks.append(1)
        return pop_some(*asked)

    monkeypatch.setattr(popper.Popper, "pop", counted)
    async with live_broker(tmp_path) as broker:
        await widest(broker)
        for queue_id in range(5):
            await broker.send(b"%d" % queue_id, topic="wide", queue_id=queue_id)
        bodies: set[bytes] = set()
        while len(bodies) < 5:
            bodies |= {each.body for each in await pop(broker, topic="wide", poll_time=5_000)}
        looks.clear()
        waiting = asyncio.ensure_future(pop(broker, topic="wide", poll_time=20_000))
        noticing = asyncio.ensure_future(
            broker.session.call(Notification("poppers", "wide", -1, 20_000, 0), timeout_s=30)
        )
        await asyncio.sleep(0.3)
        assert len(looks) < 50  # it does not look for ever
        await broker.send(b"late", topic="wide", queue_id=4)
        assert (await noticing).header.has_msg
        assert [each.body for each in await waiting] == [b"late"]
