import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.client.consuming.process_queue import FlowLimits
from sparrowmq.clock import SystemClock
from sparrowmq.errors import ConfigError, SendFailed
from sparrowmq.namesrv.config import NamesrvSettings
from sparrowmq.namesrv.server import Namesrv
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.bodies import Heartbeat
from sparrowmq.protocol.requests.headers import OffsetReply
from sparrowmq.remoting.dispatch import Answer
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.interop.apache import free_ports


async def numbers(mq, topic: str, count: int) -> None:
    await asyncio.gather(*[mq.send_soon(topic, b"%d" % number) for number in range(count)])


@pytest.mark.covers("S-CONS-01")
async def test_iterating_gives_each_message_once(mq):
    await numbers(mq, "t", 50)
    bodies: Counter[bytes] = Counter()
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        async for message in consumer:
            async with message.process():
                bodies[message.body] += 1
            if bodies.total() == 50:
                break
    assert set(bodies) == {b"%d" % number for number in range(50)} and set(bodies.values()) == {1}


async def test_several_tasks_may_iterate(mq):
    await numbers(mq, "t", 30)
    bodies: Counter[bytes] = Counter()
    async with mq.subscribe("t", group="g", start="earliest") as consumer:

        async def work() -> None:
            async for message in consumer:
                async with message.process():
                    bodies[message.body] += 1
                await asyncio.sleep(0)

        workers = [asyncio.ensure_future(work()) for _ in range(3)]
        await until(lambda: bodies.total() == 30)
    await asyncio.gather(*workers)  # leaving ends the iterations
    assert set(bodies.values()) == {1}


@pytest.mark.covers("S-CONS-04")
async def test_handlers_run_at_once_up_to_a_limit(mq):
    running, most, done = 0, 0, 0

    async def handle(message) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1

    await numbers(mq, "t", 20)
    async with mq.subscribe("t", handle, group="g", start="earliest", concurrency=4):
        await until(lambda: done == 20)
    assert most == 4


async def test_batches_hold_what_is_there(mq):
    await mq.send_many([Message("t", b"%d" % number) for number in range(10)])
    async with mq.subscribe("t", group="g", start="earliest", batch=4) as consumer:
        sizes = []
        async for batch in consumer.batches():
            sizes.append(len(batch))
            for message in batch:
                message.ack()
            if sum(sizes) == 10:
                break
    assert sizes == [4, 4, 2]


@pytest.mark.covers("S-CONS-21")
async def test_topics_come_and_go_while_it_consumes(mq, cluster):
    got: list[str] = []
    await mq.send("one", b"x")
    await mq.send("two", b"x")
    async with mq.subscribe(
        "one", lambda message: got.append(message.topic), group="g", start="earliest"
    ) as consumer:
        await until(lambda: got == ["one"])
        await consumer.subscribe("two")
        await until(lambda: sorted(got) == ["one", "two"])
        await consumer.unsubscribe("one")
        await until(lambda: {queue.topic for queue in consumer.queues} == {"two", "%RETRY%g"})


async def test_one_consumer_takes_several_topics_with_their_own_tags(mq):
    for topic in ("one", "two"):
        for tag in ("a", "b"):
            await mq.send(topic, b"x", tag=tag)
    got: set[tuple[str, str]] = set()
    topics = {"one": "a", "two": "b"}
    async with mq.subscribe(
        topics, lambda message: got.add((message.topic, message.tag)), group="g", start="earliest"
    ):
        await until(lambda: len(got) == 2)
    assert got == {("one", "a"), ("two", "b")}


async def test_what_was_not_acknowledged_comes_again(mq):
    await numbers(mq, "t", 3)
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        messages = [message for _ in range(3) for message in await consumer.take()]
        unsettled = messages[0]
        for message in messages[1:]:
            message.ack()
    async with mq.subscribe("t", group="g") as consumer:
        (again,) = await consumer.take()
        assert again.msg_id == unsettled.msg_id


async def test_offsets_are_committed_when_asked(mq):
    await mq.send("t", b"x", queue=MessageQueue("t", "broker-0", 0))
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        (message,) = await consumer.take()
        message.ack()
        await consumer.commit()
        assert await BrokerOffsets("g", mq._network.brokers).read(message.queue) == 1


async def test_a_slow_consumer_is_not_flooded(mq):
    await numbers(mq, "t", 100)
    flow = FlowLimits(messages=10)
    async with mq.subscribe("t", group="g", start="earliest", flow=flow, pull_batch=5) as consumer:
        first: list = []
        with suppress(TimeoutError):
            while True:
                first += await asyncio.wait_for(consumer.take(1000), 0.2)
        assert 4 <= len(first) <= 4 * (10 + 5)
        count = len(first)
        for message in first:
            message.ack()
        while count < 100:
            for message in await consumer.take(1000):
                message.ack()
                count += 1
    assert count == 100


async def test_leaving_lets_running_handlers_finish(mq):
    started, finished = asyncio.Event(), asyncio.Event()

    async def handle(message) -> None:
        started.set()
        await asyncio.sleep(0.05)
        finished.set()

    await mq.send("t", b"x")
    async with mq.subscribe("t", handle, group="g", start="earliest"):
        await started.wait()
    assert finished.is_set()


async def test_a_handler_that_takes_too_long_is_cut_short(mq, caplog):
    started = asyncio.Event()

    async def handle(message) -> None:
        started.set()
        await asyncio.Event().wait()

    await mq.send("t", b"x")
    async with mq.subscribe("t", handle, group="g", start="earliest", grace_s=0.05):
        await started.wait()
    assert "cut short" in caplog.text
    async with mq.subscribe("t", group="g") as consumer:
        assert len(await consumer.take()) == 1


async def test_leaving_by_an_error_does_not_wait(mq):
    started = asyncio.Event()

    async def handle(message) -> None:
        started.set()
        await asyncio.Event().wait()

    await mq.send("t", b"x")
    with pytest.raises(LookupError):
        async with mq.subscribe("t", handle, group="g", start="earliest", grace_s=60):
            await started.wait()
            raise LookupError


async def test_closed_returns_when_it_was_left(mq):
    await mq.send("t", b"x")
    async with mq.subscribe("t", lambda message: None, group="g") as consumer:
        waiting = asyncio.ensure_future(consumer.closed())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)
    assert await consumer.take() == []


async def test_a_client_has_one_consumer_of_a_group(mq):
    async with mq.subscribe("t", group="g"):
        with pytest.raises(ConfigError, match="consumes in group g already"):
            async with mq.subscribe("u", group="g"):
                pass


def cluster_on(path, namesrv_port: int, broker_port: int) -> Cluster:
    """A cluster on known ports, so that another can take its place."""
    made = Cluster(path, port=broker_port)
    made._namesrv = Namesrv(NamesrvSettings(port=namesrv_port, kv_path=path / "kv.json"), SystemClock())
    return made


@pytest.mark.covers("S-START-10")
async def test_it_starts_in_order_subscriptions_heartbeat_rebalance_offsets_pulls(peer):
    peer.has("t", queues=1)
    peer.has("%RETRY%g", queues=1)
    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Answer(header=OffsetReply(5))
    peer.usual[RequestCode.PULL_MESSAGE] = lambda _: None
    peer.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Answer()
    async with connect(peer.address, client_id="me") as mq:
        with pytest.raises(ConfigError):
            mq.subscribe("t", group="g", concurrency=0)
        assert not peer.received
        async with mq.subscribe("t", group="g"):
            await until(lambda: len(peer.requests(RequestCode.PULL_MESSAGE)) == 2)
    first: dict[int, int] = {}
    for place, command in enumerate(peer.received):
        first.setdefault(command.code, place)
    order = (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.HEART_BEAT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.PULL_MESSAGE,
    )
    assert [first[code] for code in order] == sorted(first[code] for code in order)
    beat = Heartbeat.decode(peer.requests(RequestCode.HEART_BEAT)[0].body)
    assert {each.topic for each in beat.consumer_data_set[0].subscription_data_set} == {"t", "%RETRY%g"}
    offsets = {command.ext_fields()["queueOffset"] for command in peer.requests(RequestCode.PULL_MESSAGE)}
    assert offsets == {"5"}


@pytest.mark.covers("S-START-09")
async def test_it_starts_without_brokers_and_recovers(tmp_path):
    ports = free_ports(2)
    got: list[bytes] = []
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        entering = asyncio.get_running_loop().time()
        async with mq.subscribe("t", lambda message: got.append(message.body), group="g", start="earliest"):
            assert asyncio.get_running_loop().time() - entering < 6
            async with cluster_on(tmp_path, *ports) as cluster, connect(cluster.namesrv) as sender:
                await sender.send("t", b"x")
                await until(lambda: got == [b"x"], limit_s=20)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_cluster_that_restarts_is_found_again_and_nothing_is_lost(tmp_path, ordered):
    ports = free_ports(2)
    got: list[bytes] = []
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        async with cluster_on(tmp_path, *ports):
            await mq.send("t", b"1")
            consumer = mq.subscribe(
                "t", lambda message: got.append(message.body), group="g", start="earliest", ordered=ordered
            )
            await consumer.__aenter__()
            await until(lambda: got == [b"1"])
        with pytest.raises(SendFailed):
            await mq.send("t", b"lost", timeout_s=0.2)
        async with cluster_on(tmp_path, *ports):
            for _ in range(50):
                try:
                    await mq.send("t", b"2")
                    break
                except SendFailed:
                    await asyncio.sleep(0.1)
            await until(lambda: b"2" in got, limit_s=20)
            await consumer.__aexit__(None, None, None)
    assert set(got) == {b"1", b"2"} and got.count(b"2") == 1
