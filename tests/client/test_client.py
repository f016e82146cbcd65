import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.sending.producer_settings import DEFAULT_GROUP, ProducerSettings
from sparrowmq.errors import ConfigError, InvalidName, RemoteError, SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import SendMessageV2, UpdateConsumerOffset
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, rec
from tests.loop.test_background import eager_tasks

UNREGISTER = RequestCode.UNREGISTER_CLIENT


async def test_hello(mq):
    result = await mq.send("orders", b"hello", tag="A", keys="o-1", properties={"vip": "1"})
    async with mq.subscribe("orders", group="billing", start="earliest") as orders:
        async for message in orders:
            async with message.process():
                assert (message.body, message.properties["vip"]) == (b"hello", "1")
            break
    assert message.msg_id == result.msg_id


async def test_a_loop_with_eager_tasks_sends_and_consumes(cluster):
    got: list[bytes] = []
    with eager_tasks():
        async with connect(cluster.namesrv) as mq:
            await mq.send("orders", b"hello")
            async with mq.subscribe("orders", lambda each: got.append(each.body), group="g", start="earliest"):
                await until(lambda: got)
    assert got == [b"hello"]


def test_an_address_is_needed_at_once(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError):
        connect()
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    assert isinstance(connect(), Client)


@pytest.mark.parametrize("client_id", ["", " "])
def test_a_blank_client_id_is_refused(client_id):
    with pytest.raises(ConfigError, match="is blank; give a text, or leave it out"):
        connect("127.0.0.1:1", client_id=client_id)


async def test_entering_needs_nobody_to_be_there():
    async with connect("127.0.0.1:1"):
        pass


@pytest.mark.covers("S-START-01")
async def test_it_starts_in_order_settings_address_network_and_what_repeats(peer):
    clock = ManualClock()
    peer.has("t")
    with pytest.raises(ConfigError):
        connect("no..host")
    with pytest.raises(InvalidName):
        connect(peer.address, group="DEFAULT_PRODUCER")
    mq = connect(peer.address, clock=clock)
    assert mq.client_id.startswith("127.0.0.1@"), "its address is known before it is connected"
    assert not peer.sessions
    async with mq:
        await mq.send("t", b"x")
        assert [command.code for command in peer.received] == [
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.HEART_BEAT,
            RequestCode.SEND_MESSAGE_V2,
        ]
        peer.received.clear()
        await clock.advance(seconds=30)
        await until(lambda: len(peer.received) >= 2)
        assert {command.code for command in peer.received} == {
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.HEART_BEAT,
        }


@pytest.mark.covers("S-PROD-02")
@pytest.mark.covers("S-START-11")
async def test_producers_have_groups_and_leave_them(peer):
    peer.has("t")
    async with connect(peer.address, client_id="me") as mq:
        mine = mq.producer("mine")
        await mq.send("t", b"1")
        await mine.send("t", b"2")
        with pytest.raises(ConfigError, match="has a producer of group mine already"):
            mq.producer("mine")
        with pytest.raises(InvalidName, match="reserved"):
            mq.producer("DEFAULT_PRODUCER")
    assert [command.header(SendMessageV2).producer_group for command in peer.sent] == [DEFAULT_GROUP, "mine"]
    beat = Heartbeat.decode(peer.requests(RequestCode.HEART_BEAT)[0].body)
    assert beat.client_id == "me"
    assert [each.group_name for each in beat.producer_data_set] == ["CLIENT_INNER_PRODUCER", "mine"]
    left = [command.ext_fields() for command in peer.requests(UNREGISTER)]
    assert {each["producerGroup"] for each in left} == {"CLIENT_INNER_PRODUCER", "mine"}


async def test_unanswered_counts_what_every_producer_sent_and_flush_waits_for_all_of_it(peer):
    peer.has("t")
    peer.script(RequestCode.SEND_MESSAGE_V2, None, None, None)
    settings = ProducerSettings(timeout_s=0.2, retries=0)
    async with connect(peer.address, settings=settings) as mq:
        other = mq.producer("other", settings)
        futures = [mq.send_soon("t", b"1"), other.send_soon("t", b"2"), other.send_soon("t", b"3")]
        assert (mq.unanswered, other.unanswered) == (3, 2)
        await mq.flush()
        assert mq.unanswered == 0 and all(future.exception() for future in futures)


async def test_the_queues_of_a_topic_can_be_chosen_from(peer):
    peer.has("t", queues=2)
    async with connect(peer.address) as mq:
        queues = await mq.queues("t")
        assert queues == [MessageQueue("t", "broker-a", number) for number in range(2)]
        await mq.send("t", b"x", queue=queues[1])
    assert peer.sent[0].header(SendMessageV2).queue_id == 1


@pytest.mark.covers("S-START-07")
@pytest.mark.covers("S-CFG-07")
async def test_offsets_are_committed_every_5_s(peer):
    clock, first_commit, handled = ManualClock(), asyncio.Event(), []

    async def handle(message):
        if message.offset:
            await first_commit.wait()
        handled.append(message.offset)

    peer.has("t", queues=1)
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Reply(),
    }
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), rec(1), next_offset=2))
    commits: list[int] = []
    async with (
        connect(peer.address, client_id="me", clock=clock) as mq,
        mq.subscribe("t", handle, group="g", start="earliest"),
    ):
        for expected in ([1], [1, 2]):
            await until(partial(handled.__contains__, len(expected) - 1))
            await clock.advance(4.9)
            assert commits == expected[:-1]
            await clock.advance(0.1)
            while commits != expected:
                requests = peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
                commits = [request.header(UpdateConsumerOffset).commit_offset for request in requests]
                await asyncio.sleep(0)
            first_commit.set()


async def test_the_applications_own_error_passes_as_it_is(peer):
    with pytest.raises(LookupError, match="mine"):
        async with connect(peer.address):
            raise LookupError("mine")


async def test_it_can_be_cancelled(peer):
    peer.has("t")

    async def use() -> None:
        async with connect(peer.address) as mq, mq.subscribe("t", group="g"):
            entered.set()
            await asyncio.Event().wait()

    peer.usual[RequestCode.PULL_MESSAGE] = lambda _: None
    entered = asyncio.Event()
    async with asyncio.timeout(10):
        task = asyncio.ensure_future(use())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "g" in [command.ext_fields().get("consumerGroup") for command in peer.requests(UNREGISTER)]


async def test_it_lives_in_a_task_group(cluster):
    async def produce() -> None:
        async with connect(cluster.namesrv) as mq:
            await asyncio.gather(*[mq.send_soon("t", b"x") for _ in range(100)])

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(produce())


@pytest.mark.covers("S-ROUTE-04")
async def test_a_topic_made_by_sending_lives_where_messages_came(tmp_path):
    async with Cluster(tmp_path, brokers=2) as cluster, connect(cluster.namesrv) as mq:
        results = [await mq.send("made", b"x") for _ in range(9)]
        assert len({result.queue for result in results}) == 8
        async with connect(cluster.namesrv) as other:
            assert len(await other.queues("made")) == 8


@pytest.mark.covers("S-ROUTE-04")
async def test_a_topic_made_by_one_send_lives_on_one_broker(tmp_path):
    async with Cluster(tmp_path, brokers=2) as cluster, connect(cluster.namesrv) as mq:
        result = await mq.send("made", b"x")
        await until(lambda: cluster._namesrv.routes.route("made"))  # The broker has announced it.
        async with connect(cluster.namesrv) as other:
            assert {queue.broker_name for queue in await other.queues("made")} == {result.queue.broker_name}


async def test_the_trap_of_topics_made_by_sends_is_explained_once(tmp_path, caplog):
    """Each of two brokers could have had it; one gets all messages, for ever."""
    async with Cluster(tmp_path, brokers=2) as cluster, connect(cluster.namesrv) as mq:
        there = (await mq.send("made", b"x")).queue.broker_name
        await until(lambda: cluster._namesrv.routes.route("made"))
        for _ in range(3):
            await mq._network.routes.refresh()
            results = [await mq.send("made", b"x") for _ in range(20)]
            assert {result.queue.broker_name for result in results} == {there}, "all traffic goes there"
        other = {"broker-0": "broker-1", "broker-1": "broker-0"}[there]
        told = f"topic made was made by a send and is on {there} alone, so {other} will never get its messages"
        assert caplog.text.count(told) == 1 and "mqadmin updateTopic -c CLUSTER" in caplog.text
        caplog.clear()
        await mq.admin.create_topic("everywhere", queues=4)
        await mq.send("everywhere", b"x")
        assert "was made by a send" not in caplog.text


async def test_a_namespace_stands_before_names_on_the_wire_and_nowhere_else(cluster):
    async with (
        connect(cluster.namesrv, namespace="shop") as shop,
        connect(cluster.namesrv, namespace="other") as other,
        connect(cluster.namesrv) as plain,
    ):
        sent = [await shop.send("orders", b"1"), *await shop.send_many([Message("orders", b"2")] * 2)]
        assert {result.queue.topic for result in sent} == {"orders"}
        queues = await shop.queues("orders")
        assert {queue.topic for queue in queues} == {"orders"}
        at = await shop.send("orders", b"3", queue=queues[0])
        assert at.queue == queues[0]
        await other.send("orders", b"of the other")
        async with shop.subscribe({"orders": "*"}, group="billing", start="earliest") as messages:
            got = [each for _ in range(4) for each in await messages.take(1)]
            assert sorted(each.body for each in got) == [b"1", b"2", b"2", b"3"]
            assert {each.topic for each in got} == {"orders"}
            got[0].retry(delay="1s")
            for each in got[1:]:
                each.ack()
            (again,) = await messages.take(1)
            assert (again.topic, again.body, again.reconsume_times) == ("orders", got[0].body, 1)
            again.ack()
        async with shop.pull_consumer(group="reading") as reader:
            reader.assign(await reader.queues("orders"))
            await reader.seek_to_beginning()
            assert {each.topic for each in await reader.poll()} == {"orders"}
        async with plain.subscribe("shop%orders", group="looking", start="earliest") as messages:
            (seen,) = await messages.take(1)
            assert seen.topic == "shop%orders"
        assert shop._network.membership.producers == {f"shop%{DEFAULT_GROUP}": "CLIENT_INNER_PRODUCER"}


@pytest.mark.parametrize("namespace", ["a%b", "a b", "a.b"])
def test_a_namespace_can_be_part_of_a_name(namespace):
    with pytest.raises(InvalidName, match="use only letters"):
        connect("a", namespace=namespace)


async def test_a_message_comes_at_the_time_it_asks_for_and_a_recalled_one_does_not(mq):
    at = datetime.now(UTC) + timedelta(seconds=0.4)
    recalled = await mq.send("t", b"recalled", deliver_at=at)
    await mq.send("t", b"at", deliver_at=at)
    await mq.send("t", b"after", delay=timedelta(seconds=0.6))
    await mq.recall(recalled)
    got = []
    async with mq.subscribe("t", group="g", start="earliest") as messages:
        async for message in messages:
            got.append(message.body)
            assert datetime.now(UTC) >= at
            message.ack()
            if len(got) == 2:
                break
    assert got == [b"at", b"after"]


async def test_what_was_due_already_cannot_be_recalled(mq):
    sent = await mq.send("t", b"1", delay=timedelta(seconds=0.1))
    await asyncio.sleep(0.15)
    with pytest.raises(RemoteError, match="due already"):
        await mq.recall(sent)


async def test_a_time_beyond_the_bound_is_refused_with_it(mq):
    with pytest.raises(SendFailed, match="timerMaxDelaySec allows 3456000 s"):
        await mq.send("t", b"1", delay="41d")


async def test_what_is_entered_twice_says_what_to_do_and_goes_on(mq, cluster):
    other = connect(cluster.namesrv)
    async with other:
        consumer, reader = mq.subscribe("t", group="g"), mq.pull_consumer(group="r")
        async with consumer, reader:
            for each in (other, consumer, reader):
                with pytest.raises(ConfigError, match="use one `with` block"):
                    await each.__aenter__()
            await other.send("t", b"x")
        for left in (consumer, reader):
            with pytest.raises(ConfigError, match="create another one"):
                await left.__aenter__()
    with pytest.raises(ConfigError, match="create another one"):
        await other.__aenter__()
    async with mq.subscribe("t", group="g"), mq.pull_consumer(group="r"):
        pass
