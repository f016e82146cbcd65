"""The brokers of a cluster, behind the methods of the gRPC port."""

import asyncio
import time
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparrowmq import connect
from sparrowmq.broker.clients import MAX_GROUPS
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import OF_A_SLAVE, BrokerUnreachable, NetworkError, NoRoute, RemoteError
from sparrowmq.grpc.clients import MAX_TOPICS, Clients
from sparrowmq.grpc.send_methods import SendMethods, TransactionId
from sparrowmq.grpc.wire_types import MessageType, Resolution, message_class
from sparrowmq.http2.calls import Caller
from sparrowmq.loop import slices
from sparrowmq.loop.clock import SystemClock
from sparrowmq.mqproxy import cluster_brokers, limits
from sparrowmq.mqproxy.cluster_brokers import (
    ANSWER_LIFE_S,
    ELECTION_S,
    MAX_TABLE_AGE_S,
    MAX_UNREAD_BYTES,
    ONE_OF_SEVERAL_S,
    REFRESH_TIMEOUT_S,
    SHORT_TABLE_AGE_S,
    ClusterBrokers,
    Connections,
    MasterAddresses,
)
from sparrowmq.mqproxy.limits import MAX_ACTIVE
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, TopicRoute
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing import Cluster, ManualClock
from tests.client.scripted import Scripted
from tests.grpc.scripted import caller, ignored, named, outgoing
from tests.mqproxy.until import until


async def test_addresses_stay_in_use_while_no_name_server_answers():
    servers: Any = ScriptedNameServers()
    clock = ManualClock()
    addresses = MasterAddresses(servers, clock)
    servers.table = {"a": {0: "one:1"}, "b": {0: "two:1", 1: "slave:1"}}
    assert (await addresses.master_address("a"), await addresses.master_address("b")) == ("one:1", "two:1")
    addresses.doubt("a")
    await clock.advance(MAX_TABLE_AGE_S)
    servers.table = None
    assert (await addresses.master_address("a"), await addresses.master_address("b")) == ("one:1", "two:1")
    with pytest.raises(NetworkError):
        await addresses.master_address("c")
    servers.table = {"a": {0: "three:1"}, "b": {1: "slave:1"}}
    await clock.advance(MAX_TABLE_AGE_S)
    addresses.doubt("a")
    assert (await addresses.master_address("a"), await addresses.master_address("b")) == ("three:1", "two:1")
    addresses.doubt("b")
    with pytest.raises(BrokerUnreachable):
        await addresses.master_address("b")
    addresses.learn([BrokerRoute(broker_name="b", broker_addrs={0: "four:1"})])
    assert await addresses.master_address("b") == "four:1"


async def test_slave_that_has_become_the_master_has_a_name_before_routes_say_so():
    """It asks about transactions as soon as it leads."""
    servers: Any = ScriptedNameServers()
    addresses = MasterAddresses(servers, ManualClock())
    route = BrokerRoute(broker_name="a", broker_addrs={0: "one:1", 1: "slave:1"})
    addresses.learn([route])
    servers.table = {"b": {0: "two:1", 2: "slave:2"}}
    await addresses.masters()
    asks = ["one:1", "slave:1", "two:1", "slave:2", "stranger:1"]
    assert [addresses.name_at(at) for at in asks] == ["a", "a", "b", "b", None]


@pytest.mark.parametrize(("code", "remark", "calls"), [(14, OF_A_SLAVE, 2), (14, "busy", 1)])
async def test_refusal_of_a_slave_makes_the_next_request_look_for_the_master(code, remark, calls):
    servers: Any = ScriptedNameServers()
    clock = ManualClock()
    servers.table = {"a": {0: "one:1"}}
    addresses = MasterAddresses(servers, clock)
    network: Any = RefusingNetwork(RemoteError(code, remark))
    for _ in range(2):
        with pytest.raises(RemoteError):
            await Connections(network, addresses).ask("a", GetMaxOffset(topic="orders", queue_id=0))
        await clock.advance(MAX_TABLE_AGE_S)
    assert servers.calls == calls


@pytest.mark.parametrize("table", [None, {"a": {0: "one:1"}}], ids=["away", "there"])
async def test_names_that_clients_invent_reach_name_servers_once_a_second(table):
    servers: Any = ScriptedNameServers()
    clock = ManualClock()
    servers.table = table
    addresses = MasterAddresses(servers, clock)
    for count in (1, 2):
        found = await asyncio.gather(
            *(addresses.master_address(f"x{number}") for number in range(100)), return_exceptions=True
        )
        assert all(isinstance(each, NetworkError) for each in found) and servers.calls == count
        await clock.advance(MAX_TABLE_AGE_S)


class ScriptedNameServers:
    """Name servers that answer by a table, or not at all."""

    def __init__(self):
        self.table = None
        self.calls = 0

    async def call(self, request):
        self.calls += 1
        await asyncio.sleep(0)
        if self.table is None:
            raise NetworkError("away")
        rows = {name: BrokerRoute(broker_name=name, broker_addrs=at) for name, at in self.table.items()}
        return SimpleNamespace(body=ClusterTable(broker_addr_table=rows).encode())


class RestartedNameServers(ScriptedNameServers):
    """Name servers that know the topics of their brokers."""

    async def call(self, request, accept=()):
        if not isinstance(request, GetRoute):
            return await super().call(request)
        if not self.table:
            return SimpleNamespace(code=ResponseCode.TOPIC_NOT_EXIST)
        rows = [BrokerRoute(broker_name=name, broker_addrs=at) for name, at in self.table.items()]
        return SimpleNamespace(code=0 if request.topic == "orders" else 17, body=TopicRoute(broker_datas=rows).encode())


async def test_topics_stay_known_while_a_name_server_that_restarted_knows_no_brokers():
    servers: Any = RestartedNameServers()
    clock = ManualClock()
    network: Any = SimpleNamespace(name_servers=servers, membership=SimpleNamespace())
    brokers = ClusterBrokers(network, clock)
    servers.table = {"a": {0: "one:1"}}
    known = await brokers.route("orders")
    with pytest.raises(NoRoute):
        await brokers.route("unknown")
    await clock.advance(ANSWER_LIFE_S)
    servers.table = {}
    assert await brokers.route("orders") == known
    with pytest.raises(BrokerUnreachable, match="none is registered"):
        await brokers.route("unknown")
    await clock.advance(ANSWER_LIFE_S)
    servers.table = {"b": {0: "two:1"}}
    assert [row.broker_name for row in (await brokers.route("orders")).broker_datas] == ["b"]


class OneRoute:
    """Name servers that know one broker, which has all topics."""

    def __init__(self, addresses):
        self.addresses = addresses

    async def call(self, request, accept=()):
        route = TopicRoute(broker_datas=[BrokerRoute(broker_name="a", broker_addrs=self.addresses)])
        return SimpleNamespace(code=0, body=route.encode())


class RefusingNetwork:
    """A network whose brokers answer each request with an error."""

    def __init__(self, error):
        self.brokers = self.membership = self
        self.name_servers: Any = None
        self._error = error

    async def session(self, address):
        return self

    async def call(self, *_, **__):
        raise self._error


@pytest.mark.parametrize(("elected_s", "is_replicated"), [(0.6, True), (9.0, True), (0.6, False)])
async def test_requests_wait_for_an_election_that_ends_soon(elected_s, is_replicated):
    servers: Any = ScriptedNameServers()
    clock = ManualClock()
    addresses = MasterAddresses(servers, clock)
    servers.table = {"a": {0: "one:1"} | ({1: "two:1"} if is_replicated else {})}
    network: Any = FollowingNetwork(clock)
    connections: Any = Connections(network, addresses)
    assert await connections.ask("a", GetMaxOffset(topic="orders", queue_id=0)) == "one:1"
    network.refused.add("one:1")
    asked = [asyncio.create_task(connections.ask("a", GetMaxOffset(topic="orders", queue_id=0))) for _ in "12"]
    await clock.advance(0.1)
    servers.table = {"a": {1: "two:1"}}
    await clock.advance(elected_s - 0.1)
    servers.table = {"a": {0: "two:1"}}
    await clock.advance(0.3)  # sooner than MAX_TABLE_AGE_S after the last look
    found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)
    if elected_s < ELECTION_S and is_replicated:
        assert found == ["two:1"] * 2
    else:
        assert all(isinstance(each, BrokerUnreachable) for each in found)
    assert servers.calls <= 2 + (elected_s + 0.3) / SHORT_TABLE_AGE_S


async def test_requests_that_wait_or_are_not_read_fill_the_room_of_all(monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 100_000)
    servers: Any = ScriptedNameServers()
    servers.table = {"a": {0: "one:1"}}
    clock, question = ManualClock(), GetMaxOffset(topic="orders", queue_id=0)
    network: Any = FollowingNetwork(clock)
    whole = limits.Capacity(9)
    one, other = (Connections(network, MasterAddresses(servers, clock), request_capacity=whole) for _ in "12")
    network.unread_bytes = MAX_UNREAD_BYTES + 1
    with pytest.raises(RemoteError, match="a does not read what mqproxy sends"):
        await one.ask("a", question, b"x")
    network.unread_bytes = 0
    network.lets_go = asyncio.Event()
    asked = [asyncio.create_task(one.ask("a", question, bytes(40_000))) for _ in "12"]
    await asyncio.sleep(0)
    for connections, size in ((one, 40_000), (other, 70_000)):
        with pytest.raises(RemoteError, match="mqproxy is busy"):
            await connections.ask("a", question, bytes(size))
    few = asyncio.create_task(other.ask("a", question, bytes(60_000)))
    asked[0].cancel()
    await asyncio.sleep(0)
    network.lets_go.set()
    answers: list[Any] = await asyncio.gather(*asked[1:], few)
    assert answers == ["one:1"] * 2
    assert whole.held_bytes == 0


class FollowingNetwork:
    """A network whose brokers answer with their address, except those that refuse connections."""

    def __init__(self, clock):
        self.brokers = self.membership = self
        self.clock = clock
        self.refused: set[str] = set()
        self.unread_bytes = 0
        self.lets_go: asyncio.Event | None = None

    async def session(self, address):
        if address in self.refused:
            raise BrokerUnreachable(address, "refused")
        return SimpleNamespace(call=lambda *_, **__: self._answer(address), unread_bytes=self.unread_bytes)

    async def _answer(self, address):
        await (self.lets_go.wait() if self.lets_go is not None else asyncio.sleep(0))
        return address

    def open_session(self, address):
        return None


async def test_all_connections_together_have_few_questions_at_the_name_servers():
    frames, asked = FrameReader(), []

    async def hang(reader, writer):
        while chunk := await reader.read(1 << 16):
            asked.extend(frames.feed(chunk))
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Network(address) as network:
        brokers = ClusterBrokers(network, SystemClock())
        questions = [
            asyncio.ensure_future(ask_route(f"x{number}"))
            for ask_route, _, _ in (brokers.lookups(Caller()) for _ in range(50))
            for number in range(50)
        ]
        await until(lambda: len(asked) >= MAX_ACTIVE)
        await asyncio.sleep(0.05)
        assert len(asked) == MAX_ACTIVE
        for each in questions:
            each.cancel()
        await asyncio.gather(*questions, return_exceptions=True)


@asynccontextmanager
async def two_of_which_one_hangs(path):
    """Two brokers with a topic and a group, of which the first takes requests and never answers."""
    async with Cluster(path, brokers=2) as cluster, Network(cluster.namesrv) as network:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.admin.create_topic("bills", queues=1)
            await mq.admin.create_group("g")
        server = cluster.brokers[0]._server
        server.dispatch = lambda *_: None
        for each in list(server.sessions):
            each.abort()
        yield ClusterBrokers(network, SystemClock())


async def test_a_broker_that_hangs_does_not_answer_for_the_other_one(tmp_path):
    async with two_of_which_one_hangs(tmp_path) as brokers:
        start_s = time.monotonic()
        assert (await brokers.topic("orders")).topic_name == "orders"
        assert (await brokers.topic("bills")).topic_name == "bills"
        found = await brokers.group("g")
        assert found is not None and found.group_name == "g"
        assert time.monotonic() - start_s < 3 * ONE_OF_SEVERAL_S, "it is asked once, and last from then on"


async def test_messages_and_transactions_reach_a_broker(tmp_path):
    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.namesrv) as mq,
        Network(cluster.namesrv) as network,
    ):
        await mq.admin.create_topic("orders", queues=1)
        brokers = ClusterBrokers(network, SystemClock())
        sending = SendMethods(Clients(SystemClock(), brokers.client_left), SystemClock(), lambda: 0)

        async def send(**system):
            return await sending.send(
                caller(brokers), message_class("SendMessageRequest")(messages=[outgoing(**system)])
            )

        answer = await send(tag="t", keys=["k"])
        assert (answer.status.code, answer.entries[0].offset) == (20000, 0)
        half = (await send(message_id="02", message_type=MessageType.TRANSACTION)).entries[0]
        name = TransactionId.parse(half.transaction_id).broker_name
        end = GetMaxOffset(topic="orders", queue_id=0)
        assert (await brokers.ask(name, end)).header.offset == 1
        request = message_class("EndTransactionRequest")(
            topic=named("orders"), transaction_id=half.transaction_id, resolution=Resolution.COMMIT
        )
        assert (await sending.end_transaction(caller(brokers), request)).status.code == 20000
        assert (await brokers.ask(name, end)).header.offset == 2


async def test_broker_asks_for_the_end_of_a_transaction(tmp_path):
    soon = Cluster(tmp_path, transaction_timeout_ms=100, transaction_interval_ms=100)
    async with soon as cluster, Network(cluster.namesrv) as network:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        brokers = ClusterBrokers(network, SystemClock())
        asked: asyncio.Queue = asyncio.Queue()
        brokers.on_check = lambda *question: asked.put_nowait(question)
        clients = Clients(SystemClock(), brokers.client_left)
        clients.stream_began(clients.note_seen("c1"), ignored)
        sending = SendMethods(clients, SystemClock(), lambda: 0)
        half = outgoing(message_id="02", message_type=MessageType.TRANSACTION)
        await sending.send(caller(brokers), message_class("SendMessageRequest")(messages=[half]))
        name, question, stored, _ = await asyncio.wait_for(asked.get(), 60)
        assert name in {row.broker_name for row in (await brokers.route("orders")).broker_datas}
        assert (stored.topic, stored.body, question.transaction_id) == ("orders", b"hello", "02")


async def test_topic_whose_broker_has_no_master_is_not_unknown_and_comes_back_within_a_second():
    """During an election a client must not read that it has to create the topic."""
    clock, network = ManualClock(), RefusingNetwork(RemoteError(14, "not asked"))
    network.name_servers = servers = OneRoute({1: "slave:1"})
    brokers = ClusterBrokers(cast("Network", network), clock)
    with pytest.raises(BrokerUnreachable, match=r"a \(no name server knows a master of this name\)"):
        await brokers.topic("orders")
    servers.addresses = {0: "slave:1"}
    await clock.advance(REFRESH_TIMEOUT_S)
    assert (await brokers.route("orders")).broker_datas[0].broker_addrs == {0: "slave:1"}


async def test_long_polls_leave_a_master_that_hangs_once_another_one_leads(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_brokers, "MUTE_S", 0.0)

    async def hang(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    hanging = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Cluster(tmp_path) as cluster, Network(cluster.namesrv) as network:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        brokers, question = ClusterBrokers(network, SystemClock()), GetMaxOffset(topic="orders", queue_id=0)
        leads = await brokers.addresses.master_address("broker-0")
        brokers.addresses._masters["broker-0"] = hanging
        poll = asyncio.create_task(brokers.ask("broker-0", question, timeout_s=60))
        await until(lambda: network.brokers.open_session(hanging) is not None)
        brokers.addresses._masters["broker-0"] = leads
        assert (await brokers.ask("broker-0", question)).header.offset == 0
        with pytest.raises(NetworkError, match="closed"):
            await asyncio.wait_for(poll, 10)


async def test_unknown_topics_groups_and_brokers(tmp_path):
    async with Cluster(tmp_path) as cluster, Network(cluster.namesrv) as network:
        brokers = ClusterBrokers(network, SystemClock())
        with pytest.raises(NoRoute):
            await brokers.route("nope")
        with pytest.raises(BrokerUnreachable):
            await brokers.ask("nope", GetMaxOffset(topic="orders", queue_id=0))
        caller(brokers, "a").brokers.announce(["orders"], None)
        caller(brokers, "b").brokers.announce(["orders", "bills"], None)
        await until(lambda: set(network.membership.producers) == {"orders", "bills"})
        brokers.client_left("b")
        await until(lambda: set(network.membership.producers) == {"orders"})


async def test_clients_that_come_at_once_cause_few_heartbeats():
    """Each names up to 500 groups. One for each client took mqproxy steps of 160 ms."""
    async with Scripted() as peer, Network(peer.address) as network:
        peer.brokers = {peer.name: peer.address}
        peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(0))
        brokers = ClusterBrokers(network, SystemClock())
        await brokers.ask(peer.name, GetMaxOffset(topic="t0", queue_id=0))

        def announced() -> set[str]:
            last = Heartbeat.decode(peer.requests(RequestCode.HEART_BEAT)[-1].body)
            return {each.group_name for each in last.producer_data_set}

        for number in range(200):
            caller(brokers, f"c{number}").brokers.announce([f"t{number}"], None)
            await asyncio.sleep(0)
        await until(lambda: peer.requests(RequestCode.HEART_BEAT) and len(announced()) == 200)
        for number in range(100):
            brokers.client_left(f"c{number}")
            await asyncio.sleep(0)
        await until(lambda: announced() == {f"t{number}" for number in range(100, 200)})
        left = {each.ext_fields()["producerGroup"] for each in peer.requests(RequestCode.UNREGISTER_CLIENT)}
        assert left == {f"t{number}" for number in range(100)}
        assert len(peer.requests(RequestCode.HEART_BEAT)) < 150  # of 300 changes


class Counted(list):
    """Topics of a client that count how often they are walked through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


async def test_topics_of_clients_that_come_at_once_are_joined_once_and_in_slices(tmp_path, monkeypatch):
    """Joined for each of 1,000 clients with 400 topics, they took mqproxy 20 s. A send beside them waited for 13 s."""
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)  # a row of topics in each turn
    async with Network("127.0.0.1:1") as network:
        brokers = ClusterBrokers(network, SystemClock())
        topics = Counted(f"t{number}" for number in range(MAX_TOPICS))
        for number in range(50):
            caller(brokers, f"c{number}").brokers.announce(topics, None)
        turns = 0
        while not network.membership.producers and turns < 60_000:
            await asyncio.sleep(0)
            turns += 1
        assert topics.walks < 3 * 50
        assert turns >= MAX_TOPICS


async def test_no_heartbeat_names_groups_before_the_former_ones_are_left(tmp_path, caplog):
    """Those of every 30 s may be sent at any time, and the broker would refuse one that makes too many groups."""
    async with Cluster(tmp_path) as cluster, Network(cluster.namesrv) as network:
        brokers = ClusterBrokers(network, SystemClock())
        await brokers.ask("broker-0", GetMaxOffset(topic="orders", queue_id=0), accepted_codes=(1, 17))
        for letter in "tuv":
            many = {f"{letter}{number}": "" for number in range(MAX_TOPICS)}
            caller(brokers, "many").brokers.announce(list(many), None)
            while network.membership.producers.keys() != many.keys():
                await network.brokers.announce()
                await asyncio.sleep(0)
            await network.brokers.announce()
        assert not [each for each in caplog.messages if "refused our heartbeat" in each]


def _is_announced(network, group):
    return group in network.membership.producers


async def test_check_backs_go_on_if_a_client_announces_many_topics(tmp_path, caplog):
    assert MAX_TOPICS == MAX_GROUPS
    soon = Cluster(tmp_path, transaction_timeout_ms=100, transaction_interval_ms=100)
    async with soon as cluster, Network(cluster.namesrv) as network:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        brokers = ClusterBrokers(network, SystemClock())
        asked: asyncio.Queue = asyncio.Queue()
        brokers.on_check = lambda *question: asked.put_nowait(question)
        await brokers.ask("broker-0", GetMaxOffset(topic="orders", queue_id=0))
        for letter in "tu":  # the groups of the first time must not count with those of the second
            many = [f"{letter}{number}" for number in range(MAX_TOPICS)]
            caller(brokers, "many").brokers.announce(many, None)
            caller(brokers, "two").brokers.announce(["more"], None)
            await until(partial(_is_announced, network, many[0]))
        clients = Clients(SystemClock(), brokers.client_left)
        clients.stream_began(clients.note_seen("c1"), ignored)
        sending = SendMethods(clients, SystemClock(), lambda: 0)
        half = outgoing(message_id="02", message_type=MessageType.TRANSACTION)
        await sending.send(caller(brokers), message_class("SendMessageRequest")(messages=[half]))
        await until(lambda: {"orders", "more"} < set(network.membership.producers))
        assert len(network.membership.producers) == MAX_TOPICS
        assert (await asyncio.wait_for(asked.get(), 60))[2].topic == "orders"
        assert not any("refused our heartbeat" in record.getMessage() for record in caplog.records)
        ((kind, left_out),) = brokers.probes()
        assert kind.name == "transactions_not_asked" and "more than 500 topics" in left_out()
        brokers.client_left("many")
        await until(lambda: set(network.membership.producers) == {"orders", "more"})
        assert left_out() == ""
