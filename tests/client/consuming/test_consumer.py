import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.errors import ClientClosed, ConfigError, SendFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import OffsetReply, UpdateConsumerOffset
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, rec
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
    async with mq.subscribe("one", lambda message: got.append(message.topic), group="g", start="earliest") as consumer:
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
    async with mq.subscribe(topics, lambda message: got.add((message.topic, message.tag)), group="g", start="earliest"):
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
    others = asyncio.Event()
    asyncio.get_running_loop().call_soon(others.set)
    assert await consumer.take() == [] and others.is_set(), "a loop around it must not stop all else"


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
    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Reply(header=OffsetReply(5))
    peer.usual[RequestCode.PULL_MESSAGE] = lambda _: None
    peer.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Reply()
    async with connect(peer.address, client_id="me") as mq:
        for wrong in (0, 10_001):
            with pytest.raises(ConfigError, match="from 1 to 10000"):
                mq.subscribe("t", group="g", concurrency=wrong)
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
async def test_it_starts_without_brokers_and_recovers(tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.client.consuming.consumer.FIRST_ROUND_LIMIT_S", 0.5)
    ports = free_ports(2)
    got: list[bytes] = []
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        entering = asyncio.get_running_loop().time()
        async with mq.subscribe("t", lambda message: got.append(message.body), group="g", start="earliest"):
            assert asyncio.get_running_loop().time() - entering < 2
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


@pytest.mark.parametrize(("way", "count"), [("group", 8), ("broadcast", 2), ("pull", 8)])
async def test_messages_of_a_broker_that_comes_back_empty_are_not_passed_over(tmp_path, way, count):
    """With 8 new messages the queue is longer than before, so only the messages show that it is another one."""
    ports, queue = free_ports(2), MessageQueue("t", "broker-0", 0)
    got: list[bytes] = []
    new = [b"new %d" % number for number in range(count)]

    async def poll() -> None:
        async with mq.pull_consumer(group="g", start="earliest") as reader:
            reader.assign([queue])
            while len(got) < 5 + count:
                got.extend(each.body for each in await reader.poll())

    async def handle() -> None:
        options = {"broadcast": way == "broadcast", "offset_folder": tmp_path, "start": "earliest"}
        async with mq.subscribe("t", lambda each: got.append(each.body), group="g", **options):
            await until(lambda: len(got) == 5 + count, limit_s=20)

    async with connect(f"127.0.0.1:{ports[0]}") as mq, asyncio.TaskGroup() as tasks:
        async with cluster_on(tmp_path / "before", *ports):
            for number in range(5):
                await mq.send("t", b"%d" % number, queue=queue)
            consuming = tasks.create_task(poll() if way == "pull" else handle())
            await until(lambda: len(got) == 5)
        async with cluster_on(tmp_path / "after", *ports):
            async with connect(f"127.0.0.1:{ports[0]}") as other:
                for body in new:
                    await other.send("t", body, queue=queue)
            await consuming
    assert sorted(got[5:]) == new


async def test_another_filter_counts_for_a_topic_that_is_being_consumed(mq):
    got: list[str | None] = []
    async with mq.subscribe(
        "t", lambda message: got.append(message.tag), group="g", tag="a", start="earliest"
    ) as consumer:
        await consumer.subscribe("t", tag="b")
        await mq.send("t", b"x", tag="a")
        await mq.send("t", b"x", tag="b")
        await until(lambda: got == ["b"], limit_s=5)
        await consumer.unsubscribe("t")
        await consumer.subscribe("t", tag="a || c")
        await mq.send("t", b"x", tag="b")
        await mq.send("t", b"x", tag="c")
        await until(lambda: got == ["b", "c"], limit_s=5)


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_member_that_joins_gets_what_nobody_has_taken(cluster, concurrency):
    """Two members share the queues of one, in whose inbox most messages are."""
    got: Counter[bytes] = Counter()
    slow = asyncio.Event()

    def shares() -> list[int]:
        return [sum(queue.topic == "t" for queue in each.queues) for each in (first, second)]

    async def handle(message) -> None:
        got[message.body] += 1
        if not slow.is_set():
            await asyncio.sleep(0.002)

    async with connect(cluster.namesrv) as one, connect(cluster.namesrv) as two:
        await numbers(one, "t", 2000)
        options = {"group": "g", "start": "earliest", "concurrency": concurrency}
        async with one.subscribe("t", handle, **options) as first:
            await until(lambda: len(got) > 100)
            async with two.subscribe("t", handle, **options) as second:
                await until(lambda: shares() == [2, 2])
                slow.set()
                await until(lambda: len(got) == 2000, limit_s=30)
    # Only what was being handled just then, or was handled after the newcomer had asked where the group stands.
    assert got.total() - 2000 < 50


async def test_what_failed_is_given_back_before_the_last_commit(peer):
    held: list[Command] = []
    peer.has("t", queues=1)
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Reply(),
        RequestCode.CONSUMER_SEND_MSG_BACK: lambda command: held.append(command),
    }
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    async with connect(peer.address, client_id="me") as mq:
        consumer = await mq.subscribe("t", group="g", start="earliest").__aenter__()
        (await anext(consumer)).retry()
        leaving = asyncio.ensure_future(consumer.__aexit__(None, None, None))
        await until(lambda: held)
        (session,) = peer.sessions
        session.reply(held[0], 0, None, None, b"")
        await leaving
    commits = [each.header(UpdateConsumerOffset) for each in peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert {commit.commit_offset for commit in commits} == {1}


async def test_a_message_that_runs_out_of_time_does_not_stop_its_queue(mq):
    await mq.send("t", b"x", queue=MessageQueue("t", "broker-0", 0))
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        message = await anext(consumer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), message.process():
                await asyncio.Event().wait()
        await until(lambda: consumer.position(message.queue) == 1)


async def test_a_task_that_is_cancelled_hands_its_message_back(mq):
    await mq.send("t", b"x", queue=MessageQueue("t", "broker-0", 0))
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        taken: list = []

        async def work() -> None:
            async for message in consumer:
                async with message.process():
                    taken.append(message)
                    await asyncio.Event().wait()

        working = asyncio.ensure_future(work())
        await until(lambda: taken)
        working.cancel()
        await until(lambda: consumer.position(taken[0].queue) == 1)


async def test_who_leaves_by_cancellation_commits_nothing_of_what_it_handles(mq):
    await mq.send("t", b"x")
    taken = asyncio.Event()

    async def work() -> None:
        async with mq.subscribe("t", group="g", start="earliest") as consumer:
            async for message in consumer:
                async with message.process():
                    taken.set()
                    await asyncio.Event().wait()

    working = asyncio.ensure_future(work())
    await taken.wait()
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    async with mq.subscribe("t", group="g") as consumer:
        again = await asyncio.wait_for(anext(consumer), 5)
        assert again.queue.topic == "t" and again.reconsume_times == 0


async def test_a_consumer_that_was_not_entered_says_so(mq):
    consumer = mq.subscribe("t", group="g")
    for ask in (lambda: anext(consumer), consumer.take, consumer.closed):
        with pytest.raises(ClientClosed, match="group g was not entered"):
            await asyncio.wait_for(ask(), 1)


async def test_a_topic_that_does_not_exist_is_told_of_once_with_its_neighbours(mq, caplog):
    await mq.send("orders", b"x")
    async with mq.subscribe("orders", group="g", start="earliest") as consumer:
        await anext(consumer)  # Now the name server knows the topic.
    async with mq.subscribe("ordres", group="g", start="earliest") as consumer:
        for _ in range(3):
            consumer._on_members_changed()
            await asyncio.sleep(0.1)
        assert caplog.text.count("waits for topic ordres, which does not exist; did you mean orders?") == 1
        await mq.send("ordres", b"y")
        assert (await asyncio.wait_for(anext(consumer), 5)).body == b"y"


async def test_only_what_is_sent_from_now_on_is_new(mq):
    await numbers(mq, "t", 8)  # in one queue; the others are empty
    got: list[bytes] = []
    async with mq.subscribe("t", lambda message: got.append(message.body), group="g", start="new"):
        await mq.send("t", b"new")
        await until(lambda: got)
    await mq.send("t", b"while away")
    async with mq.subscribe("t", lambda message: got.append(message.body), group="g", start="new"):
        await until(lambda: len(got) == 2)
    assert got == [b"new", b"while away"]


async def test_the_program_hears_which_queues_it_has(cluster):
    events: list[tuple[str, int]] = []

    async def revoked(queues) -> None:
        events.append(("revoked", len(queues)))
        assert set(queues) <= set(first.queues)

    def assigned(queues) -> None:
        if queues[0].topic == "t":
            events.append(("assigned", len(queues)))

    async with connect(cluster.namesrv) as one, connect(cluster.namesrv) as two:
        await one.send("t", b"x")
        async with one.subscribe("t", group="g", start="earliest", on_assigned=assigned, on_revoked=revoked) as first:
            assert events == [("assigned", 4)]
            async with two.subscribe("t", group="g"):
                await until(lambda: len(events) == 2)
            await until(lambda: len(events) == 3)
    assert events == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 5)]


async def test_a_listener_that_awaits_what_was_cancelled_ends_the_consumer_loudly(mq):
    async def assigned(queues) -> None:
        raise asyncio.CancelledError

    await mq.send("t", b"x")
    with pytest.raises(RuntimeError, match=r"the listener .* raised a CancelledError"):
        async with mq.subscribe("t", group="g", start="earliest", on_assigned=assigned) as consumer:
            await consumer.closed()


async def test_a_queue_can_be_sought_when_it_is_assigned(mq):
    queue = MessageQueue("t", "broker-0", 0)
    await mq.send_many([Message("t", b"%d" % number) for number in range(5)], queue=queue)

    def assigned(queues) -> None:
        if queue in queues:
            consumer.seek(queue, 3)

    consumer = mq.subscribe("t", group="g", start="earliest", on_assigned=assigned)
    async with consumer:
        assert [(await anext(consumer)).body for _ in range(2)] == [b"3", b"4"]
        assert consumer.position(queue) == 3 and (await consumer.lag())[queue] == 2


async def test_a_paused_consumer_gives_nothing_and_loses_nothing(mq):
    await numbers(mq, "t", 8)
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        (await anext(consumer)).ack()
        consumer.pause()
        await mq.send("t", b"8")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.2)
        consumer.resume()
        assert len({(await anext(consumer)).body for _ in range(8)}) == 8


@pytest.mark.covers("S-START-08")
async def test_the_number_of_handlers_is_changed_while_they_run(mq):
    running, most = 0, 0
    go_on = asyncio.Event()

    async def handle(message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    await numbers(mq, "t", 20)
    consumer = mq.subscribe("t", handle, group="g", start="earliest", concurrency=2)
    consumer.concurrency = 3
    async with consumer:
        await until(lambda: running == 3)
        consumer.concurrency = 8
        await until(lambda: running == 8)
        assert consumer.concurrency == 8
        assert consumer._running_info().properties["PROP_THREADPOOL_CORE_SIZE"] == "8"
        for wrong in (0, -1, 10_001, None, "4", 2.5, True):
            with pytest.raises(ConfigError, match="from 1 to 10000"):
                consumer.concurrency = wrong
        go_on.set()
        await until(lambda: not running)
    assert most == 8
    consumer.concurrency = 2
    with pytest.raises(ConfigError, match="no handler"):
        mq.subscribe("t", group="g").concurrency = 2


async def test_a_changed_route_shares_out_only_the_groups_of_its_topic(mq):
    async with mq.subscribe("t", group="g") as consumer:
        asked = consumer._rebalancer._round_due
        asked.clear()
        consumer._on_route_changed("other")
        assert not asked.is_set()
        consumer._on_route_changed("t")
        assert asked.is_set()
