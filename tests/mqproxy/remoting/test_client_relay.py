"""Clients behind the proxy: what they send to brokers, and what brokers send to them."""

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from sparrowmq import connect
from sparrowmq.broker.replication.slave_guard import refusing
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.errors import (
    A_SLAVE,
    BrokerUnreachable,
    ClientClosed,
    ConnectionClosed,
    RemoteError,
    SendFailed,
)
from sparrowmq.grpc.wire_types import ClientType
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.mqproxy import broker_link, cluster_brokers, limits, remoting_port
from sparrowmq.mqproxy.cluster_brokers import MasterAddresses
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hosts import with_broker
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.requests.admin_headers import GetConsumerConnectionList, GetTopicStats
from sparrowmq.protocol.requests.bodies import TopicRoute
from sparrowmq.protocol.requests.client_bodies import (
    AssignmentQuery,
    ConsumerBeat,
    ConsumerConnections,
    ConsumerList,
    ConsumerRunning,
    Heartbeat,
)
from sparrowmq.protocol.requests.headers import (
    GetConsumerListByGroup,
    GetConsumerRunning,
    GetMaxOffset,
    HeartBeat,
    PullMessage,
    QueryConsumerOffset,
    QueryMessage,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.protocol.requests.pop_headers import QueryAssignment
from sparrowmq.protocol.wire.connection import BROKER_FIELD
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import MUTE_S
from tests.admin.test_doctor import registered
from tests.auth.asked import ADMIN, SAMPLE, USER
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.broker.live import SUBSCRIPTION, SUSPEND, send_request
from tests.mqproxy.remoting.proxied import proxied, until


async def received(mq, count, group="g"):
    found = []
    async with mq.subscribe("orders", group=group, start="earliest") as messages:
        async for message in messages:
            found.append((message.queue.broker_name, message.body))
            if len(found) == count:
                break
    return sorted(found)


async def test_our_client_reaches_the_queues_of_all_brokers(tmp_path):
    async with proxied(tmp_path) as place, connect(place.address) as mq:
        sent = [await mq.send("orders", b"%d" % number) for number in range(8)]
        expected = sorted((each.queue.broker_name, b"%d" % number) for number, each in enumerate(sent))
        assert {name for name, _ in expected} == {"broker-0", "broker-1"}
        assert await received(mq, 8) == expected
        handled: list[Any] = []
        async with mq.subscribe("orders", handled.append, group="ordered", start="earliest", ordered=True):
            await until(lambda: len(handled) == 8)  # after locks at both brokers
        async with connect(place.cluster.namesrv) as direct:
            assert (await direct.admin.lag("ordered")).lag == 0  # the offsets were stored


async def test_pops_are_acknowledged_at_their_broker(tmp_path):
    async with proxied(tmp_path) as place, connect(place.address) as mq:
        async with mq.simple_consumer("orders", group="popping", start="earliest") as consumer:
            sent = {(await mq.send("orders", b"%d" % number)).queue.broker_name for number in range(8)}
            assert sent == {"broker-0", "broker-1"}
            bodies: set[bytes] = set()
            while len(bodies) < 8:
                for message in await consumer.receive(16):
                    bodies.add(message.body)
                    message.ack()
        async with connect(place.cluster.namesrv) as direct:
            await until_settled(direct)


async def until_settled(direct):
    async with asyncio.timeout(30):
        while (await direct.admin.lag("popping")).lag:
            await asyncio.sleep(0.05)


async def test_a_transaction_is_asked_about_through_the_proxy(tmp_path):
    soon: dict[str, Any] = {"transaction_timeout_ms": 200, "transaction_interval_ms": 200}
    async with proxied(tmp_path, **soon) as place, connect(place.address, group="payers") as mq:
        asked = set()

        @mq.check("payers")
        def check(message):
            asked.add(message.body)
            return True

        for number in range(4):
            async with mq.transaction("orders", b"%d" % number) as open_one:
                await open_one.unknown()
        assert [body for _, body in await received(mq, 4)] and asked == {b"0", b"1", b"2", b"3"}


def own(consumer):
    return sum(queue.topic == "orders" for queue in consumer.queues)


async def unreachable(address, *_):
    raise BrokerUnreachable(address, "the machine is away")


async def test_a_group_grows_and_shrinks_at_once(tmp_path, monkeypatch):
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(proxied(tmp_path))
        first = await stack.enter_async_context(connect(place.address))
        one = await stack.enter_async_context(first.subscribe("orders", group="g"))
        second = await stack.enter_async_context(connect(place.address))
        two = await stack.enter_async_context(second.subscribe("orders", group="g"))
        both = {first._network.client_id, second._network.client_id}

        async def are(*expected):
            return await place.members("g") == [*expected]

        await until(lambda: are(both, both))
        await until(lambda: own(one) == own(two) == 2)
        monkeypatch.setattr(second._network._pool, "_connect", unreachable)
        for session in list(second._network._pool._sessions.values()):
            session.abort()  # as if the process was killed
        await until(lambda: are({first._network.client_id}, {first._network.client_id}))


async def test_a_broker_asks_a_member_for_its_state(tmp_path):
    async with proxied(tmp_path) as place, connect(place.address) as mq, mq.subscribe("orders", group="g"):
        await until(lambda: all_know(place))
        pool = Pool(SystemClock())
        try:
            for broker in place.cluster.brokers:
                session = await pool.session(broker.address)
                asked = GetConsumerRunning("g", mq._network.client_id)
                answer = ConsumerRunning.decode((await session.call(asked)).body)
                assert "orders" in str(answer)
        finally:
            pool.close()


async def all_know(place):
    return all(await place.members("g"))


async def plain_session(pool, place):
    session = await pool.session(place.address)
    route = await session.call(GetRoute("orders", accept_standard_json_only=True))
    return session, TopicRoute.decode(route.body)


@asynccontextmanager
async def a_pool(sign=None):
    """Connections of a client, which `sign` gives more fields."""
    pool = Pool(SystemClock(), sign=sign)
    try:
        yield pool
    finally:
        pool.close()


@pytest.fixture
async def pool():
    async with a_pool() as pool:
        yield pool


async def test_a_client_that_names_no_broker_reaches_the_only_one(tmp_path, pool):
    async with proxied(tmp_path, 1) as place:
        session, route = await plain_session(pool, place)
        assert {at for row in route.broker_datas for at in row.broker_addrs.values()} == {place.address}
        await session.call(send_request("orders"), b"hello")
        assert sum([(await session.call(GetMaxOffset("orders", queue))).header.offset for queue in (0, 1)]) == 1


async def test_a_client_that_names_no_broker_is_refused_where_two_have_the_topic(tmp_path, pool):
    async with proxied(tmp_path) as place:
        session, _ = await plain_session(pool, place)
        with pytest.raises(RemoteError, match="topic orders has brokers broker-0, broker-1") as refused:
            await session.call(GetMaxOffset("orders", 0))
        assert refused.value.code == ResponseCode.VERSION_NOT_SUPPORTED
        assert (await session.call(GetConsumerListByGroup("g"), accept=(1,))).code == 1


async def test_requests_of_tools_are_refused(tmp_path, pool):
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)
        with pytest.raises(RemoteError, match=f"request code {GetTopicStats.code}") as refused:
            await session.call(GetTopicStats("orders"))
        assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_operators_see_the_consumers_of_both_ports(tmp_path, pool):
    async with (
        proxied(tmp_path) as place,
        connect(place.address) as mq,
        channel_to(place.proxy.address) as at,
    ):
        session, _ = await plain_session(pool, place)

        async def consumers(group):
            answer = await session.call(GetConsumerConnectionList(group), accept=(206,))
            if answer.code:
                return None
            found = ConsumerConnections.decode(answer.body)
            return {row.client_id for row in found.connection_set}, set(found.subscription_table)

        assert await consumers("g") is None
        for group in ("g", "h"):
            await (await GrpcClient(at, f"grpc-{group}").telemetry(ClientType.PUSH_CONSUMER, group=group))()
        assert await consumers("h") == ({"grpc-h"}, {"orders"})
        async with mq.subscribe("orders", group="g"):
            await until(lambda: all_know(place))
            members, topics = await consumers("g")
            assert members == {"grpc-g", mq._network.client_id} and topics >= {"orders"}


async def test_a_broker_that_no_route_has_named_is_found(tmp_path, pool):
    async with proxied(tmp_path) as place:
        session = await pool.session(with_broker(place.address, "broker-1"))
        assert (await session.call(GetMaxOffset("orders", 0))).header.offset == 0
        stranger = await pool.session(with_broker(place.address, "broker-9"))
        with pytest.raises(RemoteError, match="no name server knows a master of this name"):
            await stranger.call(GetMaxOffset("orders", 0))


async def test_after_the_refusal_of_a_slave_requests_reach_the_new_master(tmp_path, pool):
    async with proxied(tmp_path) as place:
        former, next_master = place.cluster.brokers
        port = next_master.address.rpartition(":")[2]
        session = await pool.session(with_broker(place.address, "broker-0"))
        await session.call(send_request(), b"first")
        dispatcher: Any = former._server.dispatch
        dispatcher._guard = refusing(None)
        async with registered(place.cluster.namesrv, "broker-0", f"localhost:{port}"):
            with pytest.raises(RemoteError, match=A_SLAVE):
                await session.call(send_request(), b"second")

            async def arrives():
                with suppress(RemoteError):
                    return await session.call(send_request(), b"second")

            await until(arrives)


@pytest.mark.parametrize("is_closed", [False, True], ids=["the same client", "after it has connected again"])
async def test_requests_leave_a_master_that_hangs_once_another_one_leads(tmp_path, pool, monkeypatch, is_closed):
    made = []

    class Noted(MasterAddresses):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    async def hang(reader, writer):
        await reader.read()
        writer.close()

    monkeypatch.setattr(cluster_brokers, "MasterAddresses", Noted)

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server, proxied(tmp_path, 1) as place:
        session = await pool.session(with_broker(place.address, "broker-0"))
        made[0]._masters["broker-0"] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        first = session.call(GetMaxOffset("orders", 0), timeout_s=60)
        await asyncio.sleep(MUTE_S + 0.2)
        if is_closed:  # as Java's clients do when an answer is late
            session.close()
            with pytest.raises(ConnectionClosed):
                await first
            await asyncio.sleep(0.2)
            session = await pool.session(with_broker(place.address, "broker-0"))
            assert (await session.call(GetMaxOffset("orders", 0), timeout_s=60)).header.offset == 0
            return
        assert (await session.call(GetMaxOffset("orders", 0), timeout_s=60)).header.offset == 0
        with pytest.raises(RemoteError, match="closed"):
            await first


async def test_messages_of_all_brokers_are_found_by_key(tmp_path, pool):
    async with proxied(tmp_path) as place, connect(place.address) as mq:
        sent = [await mq.send("orders", b"%d" % number, keys=["k"]) for number in range(4)]
        assert len({each.queue.broker_name for each in sent}) == 2
        session, _ = await plain_session(pool, place)
        async with asyncio.timeout(30):
            while True:
                found = await session.call(QueryMessage("orders", "k", 32, 0, 1 << 60), accept=(22,))
                if all(each.msg_id.encode() in found.body for each in sent):
                    break
                await asyncio.sleep(0.05)


async def test_members_known_to_one_broker_are_members(tmp_path, pool):
    async with proxied(tmp_path) as place, connect(place.address) as mq, mq.subscribe("orders", group="g"):
        await until(lambda: all_know(place))
        session, _ = await plain_session(pool, place)
        answer = await session.call(GetConsumerListByGroup("g"))
        assert ConsumerList.decode(answer.body).consumer_id_list == [mq._network.client_id]


async def test_without_an_account_of_mqproxy_brokers_check_the_signatures_of_clients(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(SAMPLE)
    async with proxied(tmp_path, operator=Credentials(*ADMIN), acl=True, acl_file=file) as place:
        async with connect(place.address, credentials=Credentials(*USER)) as mq:
            await mq.send("topicB", b"hello")
            with pytest.raises(SendFailed, match="topic:topicA"):
                await mq.send("topicA", b"hello")
        async with connect(place.address, credentials=Credentials(USER[0], "another secret")) as mq:
            with pytest.raises(SendFailed, match="signature"):
                await mq.send("topicB", b"hello")


async def test_a_broker_that_lost_the_connection_knows_the_client_again(tmp_path, pool):
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)
        await session.call(HeartBeat(), Heartbeat("me", [], [ConsumerBeat("g")]).encode())
        assert await place.members("g") == [{"me"}]
        for connection in list(place.cluster.brokers[0]._server.sessions):
            connection.abort()
        await until(lambda: no_members(place))
        await session.call(GetMaxOffset("orders", 0))
        assert await place.members("g") == [{"me"}]


PULL = PullMessage("g", "orders", 0, 0, 32, SUBSCRIPTION | SUSPEND, 0, 2000, 0, "*")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "body", "field"), [(1, 5 << 20, 0), (40, 0, 220_000)], ids=["body", "headers"])
async def test_a_client_with_too_many_bytes_without_an_answer_has_to_wait(tmp_path, count, body, field):
    async with proxied(tmp_path, 1) as place, a_pool(lambda *_: {"unknown": "x" * field}) as pool:
        session, _ = await plain_session(pool, place)
        connections = place.cluster.brokers[0]._server.sessions
        before, answered = len(connections), []
        not_found = (ResponseCode.PULL_NOT_FOUND,)
        held = [session.call(PULL, bytes(body), timeout_s=60, accept=not_found) for _ in range(count)]
        held[0].add_done_callback(lambda _: answered.append("pull"))
        await until(lambda: len(connections) > before)
        later = session.call(GetMaxOffset("orders", 0), timeout_s=60)
        later.add_done_callback(lambda _: answered.append("later"))
        await asyncio.gather(*held, later)
        assert answered == ["pull", "later"]


async def test_the_answer_to_a_batch_of_thousands_reaches_the_client(tmp_path, pool):
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)
        content = batch.encode([batch.BatchPart(b"", b"")] * 14_000)
        answer = await session.call(send_request(batch=True), content, timeout_s=30)
        assert len(answer.header.msg_id.split(",")) == 14_000


async def no_members(place):
    return await place.members("g") == [set()]


@pytest.mark.parametrize(
    "fault",
    [
        GetMaxOffset("no such topic", 0),
        QueryMessage("no such topic", "k", 32, 0, 1 << 60),
    ],
)
async def test_a_request_that_no_broker_can_answer_gets_an_error_and_the_port_goes_on(tmp_path, pool, fault):
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)
        with pytest.raises(RemoteError):
            await session.call(fault)
        assert (await session.call(GetMaxOffset("orders", 0))).header.offset == 0


async def test_when_requests_fill_the_memory_only_small_ones_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 30_000)
    monkeypatch.setattr(limits, "GUARANTEED_BYTES", 5_000)
    async with proxied(tmp_path, 1) as place, a_pool() as first, a_pool() as second:
        greedy, _ = await plain_session(first, place)
        held = greedy.call(PULL, bytes(29_000), timeout_s=60, accept=(ResponseCode.PULL_NOT_FOUND,))
        session, _ = await plain_session(second, place)
        for client, size in ((session, 6_000), (greedy, 1_000)):
            with pytest.raises(RemoteError, match="mqproxy is busy") as refused:
                await client.call(GetMaxOffset("orders", 0), bytes(size))
            assert refused.value.code == ResponseCode.SYSTEM_BUSY
        await session.call(GetMaxOffset("orders", 0), bytes(2_000))
        await held
        assert (await greedy.call(GetMaxOffset("orders", 0), bytes(29_000))).code == 0


async def test_requests_to_a_broker_that_cannot_be_reached_do_not_wait_for_each_other(tmp_path, pool, monkeypatch):
    async def slow(*args):
        await asyncio.sleep(0.2)
        await unreachable(*args)

    monkeypatch.setattr(remoting_port, "LINK_WAIT_S", 0.3, raising=False)
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)
        monkeypatch.setattr(remoting_port, "connect", slow)
        calls = [session.call(GetMaxOffset("orders", 0), timeout_s=60) for _ in range(100)]
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {getattr(each, "code", 0) for each in answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}


async def test_requests_stay_in_their_order_when_the_connection_begins(tmp_path, pool, monkeypatch):
    connected, count = asyncio.Event(), 300
    async with proxied(tmp_path, 1) as place:
        session, _ = await plain_session(pool, place)

        async def slow(*args):
            streams = await broker_link.connect(*args)
            await until(lambda: sum(map(waits, asyncio.all_tasks())) == count)
            connected.set()
            return streams

        monkeypatch.setattr(remoting_port, "connect", slow)
        for offset in range(count):
            session.tell(UpdateConsumerOffset("g", "orders", 0, offset))
        await connected.wait()
        session.tell(UpdateConsumerOffset("g", "orders", 0, count))
        answer = await session.call(QueryConsumerOffset("g", "orders", 0))
        assert answer.header.offset == count


def waits(task):
    return task.get_name() == "request of a remoting client"


async def test_another_broker_answers_for_one_that_is_away(tmp_path, pool):
    async with proxied(tmp_path) as place:
        session, _ = await plain_session(pool, place)
        query = AssignmentQuery(topic="orders", consumer_group="g", client_id="me").encode()
        assert (await session.call(QueryAssignment(), query)).body
        server = place.cluster.brokers[0]._server
        server._listener.close()
        for connection in list(server.sessions):
            connection.abort()
        assert (await session.call(QueryAssignment(), query)).body


async def test_words_of_clients_make_no_lines_of_the_log(tmp_path, caplog):
    caplog.set_level(logging.INFO, remoting_port.__name__)
    async with proxied(tmp_path, 1) as place, a_pool(lambda *_: {BROKER_FIELD: "x\nWARNING y"}) as pool:
        session = await pool.session(place.address)
        for _ in range(50):
            with pytest.raises(RemoteError):
                await session.call(GetMaxOffset("orders", 0))
        lines = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
        assert len(lines) == 20 and not any("\n" in line for line in lines)


async def test_routes_that_one_client_asks_for_do_not_hold_up_others(tmp_path):
    async with proxied(tmp_path, 1) as place, a_pool() as first, a_pool() as second:
        greedy, session = await first.session(place.address), await second.session(place.address)
        answered: list[object] = []
        calls = [greedy.call(GetRoute(f"x{number}"), timeout_s=60, accept=(17,)) for number in range(2000)]
        for call in calls:
            call.add_done_callback(answered.append)
        await until(lambda: answered)
        await session.call(GetRoute("orders"))
        assert len(answered) < 500
        await asyncio.gather(*calls)


async def test_requests_are_refused_while_mqproxy_stops(tmp_path, monkeypatch):
    def spawn(work, name):
        work.close()
        raise ClientClosed("a task has failed, which ends the others")

    async with proxied(tmp_path) as place:
        pool = Pool(SystemClock())
        try:
            session = await pool.session(place.address)
            await session.call(GetRoute("orders"))
            with monkeypatch.context() as stopping:
                stopping.setattr(Background, "spawn", lambda _, *args, **named: spawn(*args, **named))
                with pytest.raises(RemoteError, match="mqproxy is stopping") as caught:
                    await session.call(GetRoute("orders"))
            assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await session.call(GetRoute("orders"))
        finally:
            pool.close()
