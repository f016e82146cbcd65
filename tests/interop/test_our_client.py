"""Our client against Apache's servers, and ours: whatever it can do, it does with all of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from datetime import datetime, timedelta

import pytest

import sparrowmq
from sparrowmq import Message, MessageQueue, ReceivedMessage
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.names import dlq_topic
from tests.interop.our_client import EVERY_BROKER, LIMIT_S, QUEUES, numbers, read, shown, until

pytestmark = EVERY_BROKER


# Sending ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("S-PROD-03", "S-PROD-17", "S-PROD-20")
@pytest.mark.cell("send")
async def test_a_message_arrives_as_it_was_sent(mq, topic):
    result = await mq.send(topic, b"hello", tag="paid", keys=["k1", "k2"], properties={"a": "1", "vip": "true"})
    assert result.status is SendStatus.OK and result.queue.topic == topic and result.offset == 0
    (message,) = await read(mq, topic, 1)
    assert (message.body, message.tag, message.keys) == (b"hello", "paid", ["k1", "k2"])
    assert message.properties["a"] == "1" and message.properties["vip"] == "true"
    assert (message.msg_id, message.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (message.queue, message.offset) == (result.queue, result.offset)


@pytest.mark.covers("S-PROD-14")
@pytest.mark.covers("S-PROD-05")
@pytest.mark.cell("async")
async def test_hundreds_of_sends_are_in_flight_at_once_and_spread_over_the_queues(mq, topic):
    results = await asyncio.gather(*[mq.send_soon(topic, b"%d" % number) for number in range(500)])
    spread = Counter(result.queue.queue_id for result in results)
    assert abs(spread[0] - spread[1]) < 50  # a busy broker has some sent again, to the next queue
    assert len({result.msg_id for result in results}) == 500
    assert {message.body for message in await read(mq, topic, 500)} == {b"%d" % number for number in range(500)}


async def test_sends_of_one_turn_arrive_as_single_ones_do(mq, topic):
    """They travel as batches, and keep ids, places, keys, tags and properties."""
    sends = [
        mq.send_soon(topic, b"%d" % number, tag="t", keys=f"k{number}", properties={"own": "1"})
        for number in range(200)
    ]
    results = {result.msg_id: result for result in await asyncio.gather(*sends)}
    messages = await read(mq, topic, 200)
    assert {message.msg_id for message in messages} == results.keys()
    for message in messages:
        result = results[message.msg_id]
        assert (message.queue, message.offset) == (result.queue, result.offset)
        assert message.offset_msg_id == result.offset_msg_id
        assert (message.tag, message.keys) == ("t", [f"k{int(message.body)}"])
    assert len({frozenset(message.properties) for message in messages}) == 1
    assert {message.properties["own"] for message in messages} == {"1"}


@pytest.mark.covers("S-PROD-07")
@pytest.mark.cell("oneway")
async def test_a_one_way_message_is_stored(mq, topic):
    msg_id = mq.send_nowait(topic, b"one way")
    (message,) = await read(mq, topic, 1)
    assert (message.body, message.msg_id) == (b"one way", msg_id)


@pytest.mark.covers("S-PROD-18")
@pytest.mark.cell("batch")
async def test_a_batch_is_stored_together_and_each_message_has_its_own_id(mq, topic):
    results = await mq.send_many([Message(topic, b"%d" % number, tag="t", keys=[f"k{number}"]) for number in range(10)])
    assert {result.queue for result in results} == {results[0].queue}
    assert [result.offset for result in results] == list(range(10))
    messages = await read(mq, topic, 10)
    assert [message.msg_id for message in messages] == [result.msg_id for result in results]
    assert [message.offset_msg_id for message in messages] == [result.offset_msg_id for result in results]
    assert [message.keys for message in messages] == [[f"k{number}"] for number in range(10)]


@pytest.mark.covers("S-PROD-10", "S-PROD-11")
@pytest.mark.cell("compressed")
async def test_a_large_body_travels_compressed(mq, topic):
    body = b"all work and no play " * 5000
    await mq.send(topic, body)
    (message,) = await read(mq, topic, 1)
    assert len(message.stored.body) < 5000 and message.body == body


@pytest.mark.covers("S-PROD-16")
@pytest.mark.cell("ordered")
async def test_messages_of_one_key_stay_in_one_queue_in_order(mq, topic):
    futures = [mq.send_soon(topic, b"%d" % number, fifo=f"user-{number % 5}") for number in range(50)]
    await asyncio.gather(*futures)
    by_user: defaultdict[int, list[tuple[MessageQueue, int]]] = defaultdict(list)
    for message in await read(mq, topic, 50):
        by_user[int(message.body) % 5].append((message.queue, int(message.body)))
    for user, seen in by_user.items():
        assert len({queue for queue, _ in seen}) == 1
        assert [number for _, number in seen] == list(range(user, 50, 5))


@pytest.mark.covers("S-ROUTE-02", "S-ROUTE-03", "S-PROD-08", "S-PROD-09")
async def test_a_topic_is_made_by_the_first_send(mq):
    topic = f"made-{next(numbers)}"
    results = [await mq.send(topic, b"1") for _ in range(4)]
    assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
    assert len(await read(mq, topic, 4)) == 4


@pytest.mark.cell("namespace")
async def test_a_namespace_keeps_topics_and_groups_apart(target, mq, topic):
    target.create_topic(f"room%{topic}", queues=QUEUES)
    async with sparrowmq.connect(target.namesrv, namespace="room") as room:
        await room.send(topic, b"in the room")
        await mq.send(topic, b"outside")
        async with room.subscribe(topic, group=f"g-{topic}", start="earliest") as consumer:
            received = await asyncio.wait_for(anext(aiter(consumer)), LIMIT_S)
            received.ack()
            assert (received.body, received.topic) == (b"in the room", topic)
            assert len(target.members(f"room%g-{topic}")) == 1 and target.members(f"g-{topic}") == []
    assert sum(target.end_of(f"room%{topic}", queue) for queue in range(QUEUES)) == 1


# Consuming ----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("S-CONS-01", "S-CONS-03", "S-CONS-15")
@pytest.mark.cell("tags")
async def test_a_group_gets_the_tags_it_asked_for(mq, topic):
    # "Aa" and "BB" have the same hash, so the broker alone would let both through.
    for tag in ("Aa", "BB", "C", "D", "Aa"):
        await mq.send(topic, tag.encode(), tag=tag)
    tags: list[str | None] = []
    async with mq.subscribe(topic, group=f"g-{topic}", tag="Aa || C", start="earliest") as consumer:
        async for message in consumer:
            async with message.process():
                tags.append(message.tag)
            if len(tags) == 3:
                break
    assert sorted(map(str, tags)) == ["Aa", "Aa", "C"]


@pytest.mark.covers("S-CONS-16")
@pytest.mark.cell("sql")
async def test_a_group_gets_what_its_sql_filter_lets_through(mq, topic):
    group = f"g-{topic}"
    bodies: list[bytes] = []
    async with mq.subscribe(
        topic, lambda msg: bodies.append(msg.body), group=group, where="amount > 5", start="earliest"
    ):
        for amount in range(10):
            await mq.send(topic, b"%d" % amount, properties={"amount": str(amount)})
        await until(lambda: len(bodies) == 4)
    assert sorted(bodies) == [b"6", b"7", b"8", b"9"]


@pytest.mark.covers("S-CONS-04", "S-CONS-18", "S-CONS-19", "S-RETRY-03", "S-RETRY-05")
@pytest.mark.cell("retry")
async def test_a_failed_message_comes_again(mq, topic):
    deliveries: list[tuple[int, str, str]] = []

    async def fail_once(message: ReceivedMessage) -> None:
        deliveries.append((message.reconsume_times, message.msg_id, message.topic))
        if message.reconsume_times == 0:
            raise ValueError("not yet")

    async with mq.subscribe(topic, fail_once, group=f"g-{topic}"):
        sent = await mq.send(topic, b"try", tag="t")
        await until(lambda: len(deliveries) == 2)
    assert deliveries == [(0, sent.msg_id, topic), (1, sent.msg_id, topic)]


@pytest.mark.covers("S-CONS-20", "S-RETRY-06")
@pytest.mark.cell("dead")
async def test_a_message_that_fails_every_time_ends_in_the_dead_letters(mq, topic):
    deliveries: list[int] = []

    async def fail(message: ReceivedMessage) -> None:
        deliveries.append(message.reconsume_times)
        message.retry(delay="1s")

    async with mq.subscribe(topic, fail, group=f"g-{topic}", max_reconsume_times=2):
        await mq.send(topic, b"never")
        await until(lambda: len(deliveries) == 3)
        (dead,) = await _dead_letters(mq, f"g-{topic}")
    assert deliveries == [0, 1, 2] and dead.body == b"never" and dead.reconsume_times == 3


async def _dead_letters(mq: sparrowmq.Client, group: str) -> list[ReceivedMessage]:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return await read(mq, dlq_topic(group), 1)
        except sparrowmq.NoRoute:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.mark.covers("S-CONS-04", "S-CONS-17")
@pytest.mark.cell("orderly")
async def test_an_ordered_group_keeps_the_order_through_failures(mq, topic):
    seen: defaultdict[int, list[int]] = defaultdict(list)
    failed: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number % 7 == 3 and number not in failed:
            failed.add(number)
            raise ValueError("once")
        seen[message.queue.queue_id].append(number)

    await asyncio.gather(*[mq.send_soon(topic, b"%d" % number, fifo=str(number % 2)) for number in range(20)])
    async with mq.subscribe(topic, handle, group=f"g-{topic}", ordered=True, start="earliest"):
        await until(lambda: sum(map(len, seen.values())) == 20)
    assert failed == {3, 10, 17}
    assert all(numbers == sorted(numbers) for numbers in seen.values())


@pytest.mark.covers("S-CONS-20", "S-RETRY-06")
async def test_an_ordered_group_with_a_limit_sets_the_failing_message_aside(mq, topic):
    attempts: list[int] = []
    bodies: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            attempts.append(message.reconsume_times)
            raise ValueError("always")
        bodies.append(message.body)

    queue = MessageQueue(topic, "broker-a", 0)
    async with mq.subscribe(topic, handle, group=f"g-{topic}", ordered=True, max_reconsume_times=1):
        await mq.send(topic, b"bad", queue=queue)
        await mq.send(topic, b"good", queue=queue)
        await until(lambda: bodies)
        (dead,) = await _dead_letters(mq, f"g-{topic}")
    assert bodies == [b"good"] and attempts[:2] == [0, 1] and dead.body == b"bad"


@pytest.mark.covers("S-CONS-03", "S-CONS-05")
@pytest.mark.cell("broadcast")
async def test_each_member_of_a_broadcast_group_gets_everything_and_goes_on_where_it_was(target, topic, tmp_path):
    got: dict[str, list[bytes]] = {"one": [], "two": []}

    async def listen(name: str, wanted: int) -> None:
        async with sparrowmq.connect(target.namesrv, instance=name) as mq, mq.subscribe(
            topic, lambda msg: got[name].append(msg.body), group=f"g-{topic}", broadcast=True,
            start="earliest", offset_folder=tmp_path,
        ):  # fmt: skip
            await until(lambda: len(got[name]) == wanted)

    async with sparrowmq.connect(target.namesrv) as mq:
        await mq.send(topic, b"1")
        await asyncio.gather(listen("one", 1), listen("two", 1))
        await mq.send(topic, b"2")
        await asyncio.gather(listen("one", 2), listen("two", 2))
    assert got == {"one": [b"1", b"2"], "two": [b"1", b"2"]}
    assert len(list(tmp_path.glob(f"*/g-{topic}/offsets.json"))) == 2


@pytest.mark.covers("S-CONS-06", "S-CONS-08", "S-START-11")
@pytest.mark.cell("share")
async def test_members_share_the_queues_and_take_over_without_a_double(target, topic):
    got: Counter[bytes] = Counter()
    group = f"g-{topic}"

    def own(consumer: sparrowmq.Consumer) -> int:
        return sum(queue.topic == topic for queue in consumer.queues)

    async with (
        sparrowmq.connect(target.namesrv) as one,
        sparrowmq.connect(target.namesrv) as two,
        one.subscribe(topic, lambda msg: got.update([msg.body]), group=group) as first,
    ):
        async with two.subscribe(topic, lambda msg: got.update([msg.body]), group=group) as second:
            await until(lambda: (own(first), own(second)) == (1, 1))
            await asyncio.gather(*[one.send_soon(topic, b"a%d" % number) for number in range(100)])
            await until(lambda: len(got) == 100)
        await until(lambda: own(first) == QUEUES)
        await asyncio.gather(*[one.send_soon(topic, b"b%d" % number) for number in range(100)])
        await until(lambda: len(got) == 200)
    assert set(got.values()) == {1}
    assert sum(target.committed(group, topic, queue_id) or 0 for queue_id in range(QUEUES)) == 200
    assert target.members(group) == []


@pytest.mark.covers("S-CONS-02")
async def test_a_group_goes_on_where_it_stood(mq, topic):
    async def consume(wanted: int) -> list[bytes]:
        found: list[bytes] = []
        async with mq.subscribe(topic, group=f"g-{topic}", start="earliest") as consumer:
            async for message in consumer:
                async with message.process():
                    found.append(message.body)
                if len(found) == wanted:
                    return found
        return found

    await mq.send(topic, b"1")
    assert await consume(1) == [b"1"]
    await mq.send(topic, b"2")
    assert await consume(1) == [b"2"]


@pytest.mark.covers("S-CONS-09", "S-CONS-11")
async def test_a_batch_handler_gets_several_messages_and_all_come_again_when_it_fails(mq, target, topic):
    sizes: list[int] = []
    bodies: list[bytes] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        if any(message.reconsume_times == 0 for message in messages):
            sizes.append(len(messages))
            raise ValueError("all of them")
        bodies.extend(message.body for message in messages)

    await mq.send_many([Message(topic, b"%d" % number) for number in range(8)])
    await shown(target, topic, 8)
    async with mq.subscribe(topic, handle, group=f"g-{topic}", batch=8, start="earliest"):
        await until(lambda: len(bodies) == 8)
    assert sizes == [8] and sorted(bodies) == [b"%d" % number for number in range(8)]


def test_the_blocking_client_sends_and_consumes(target, topic):
    with sparrowmq.sync.connect(target.namesrv) as mq:
        sent = mq.send(topic, b"hello", tag="t")
        assert mq.send_soon(topic, b"hello").result(10).queue.topic == topic
        with mq.subscribe(topic, group=f"g-{topic}", start="earliest") as consumer:
            messages = []
            for message in consumer:
                with message.process():
                    messages.append(message)
                if len(messages) == 2:
                    break
        assert sent.msg_id in {message.msg_id for message in messages}


# Operating ----------------------------------------------------------------------------------------------------------


async def test_an_operator_creates_changes_and_deletes_a_topic(mq):
    name = f"admin-{next(numbers)}"
    assert await mq.admin.create_topic(name, queues=3) == ["broker-a"]
    await mq.admin.change_topic(name, write_queues=1)
    topic = await mq.admin.topic(name)
    assert [(each.read_queues, each.write_queues, each.perm) for each in topic.shares] == [(3, 1, "rw")]
    assert name in await mq.admin.topics()
    assert await mq.admin.delete_topic(name) == ["broker-a"]
    with pytest.raises(NoRoute):
        await mq.admin.topic(name)


async def test_an_operator_creates_changes_and_deletes_a_group(mq):
    name = f"admin-{next(numbers)}"
    assert await mq.admin.create_group(name, max_retries=3) == ["broker-a"]
    await mq.admin.change_group(name, retry_queues=2)
    assert name in await mq.admin.groups()
    assert await mq.admin.delete_group(name) == ["broker-a"]
    assert name not in await mq.admin.groups()


@pytest.mark.cell("reset")
async def test_an_operator_moves_a_group_that_is_away_and_one_that_is_there(mq, topic):
    group, seen = f"admin-{next(numbers)}", []
    await mq.admin.create_group(group)
    for queue in await mq.queues(topic):
        await mq.send(topic, b"x", queue=queue)
    deadline = time.monotonic() + LIMIT_S
    while (await mq.admin.topic(topic)).count < QUEUES:  # Apache's broker shows messages a moment after it has them
        assert time.monotonic() < deadline, "the messages were never shown"
    moved = await mq.admin.reset(group, topic, "latest")
    assert sorted(moved.values()) == [1, 1] and (await mq.admin.lag(group, topic)).lag == 0
    assert sorted((await mq.admin.reset(group, topic, 0)).values()) == [0, 0]
    assert (await mq.admin.lag(group, topic)).lag == QUEUES
    await mq.admin.reset(group, topic, "latest")
    async with mq.subscribe(topic, lambda message: seen.append(message.body), group=group) as consumer:
        await until(lambda: moved.keys() <= set(consumer.queues))
        await mq.admin.reset(group, topic, "earliest")
        await until(lambda: len(seen) == QUEUES)


async def test_an_operator_finds_messages_by_id_key_and_time(mq, topic):
    sent = await mq.send(topic, b"hello", keys=["o-1"])
    since = datetime.now() - timedelta(minutes=1)
    found = [await mq.admin.message(sent.offset_msg_id)]
    deadline = time.monotonic() + LIMIT_S
    while not (by_key := await mq.admin.find(topic, "o-1")):
        assert time.monotonic() < deadline, "the index never had it"
    found += [*by_key, await mq.admin.message(sent.msg_id, topic), *await mq.admin.find(topic, since=since)]
    assert [each.offset_msg_id for each in found] == [sent.offset_msg_id] * 4
