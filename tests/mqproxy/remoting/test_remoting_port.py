"""The remoting port of mqproxy with users: what clients may do, and how many may connect."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from sparrowmq import Credentials, connect
from sparrowmq.core import descriptors
from sparrowmq.errors import RemoteError, SendFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.mqproxy import remoting_port, users
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.mqproxy.remoting_port import REACH
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, ConsumerList, Heartbeat
from sparrowmq.protocol.requests.headers import GetConsumerListByGroup, GetMaxOffset, HeartBeat
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster, GetRoute
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UpdateAcl, UserPolicies
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session, protocol_of
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.remoting.tls.encryption import Encryption
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.attacks import OPERATOR, RIGHTS, SOON, USERS, add_users
from tests.broker.live import SUBSCRIPTION, SUSPEND, pull_request, send_request
from tests.interop.wire import Wire
from tests.mqproxy.remoting.proxied import until
from tests.remoting.tls.test_first_protocol import ANYBODY

SEND, ROUTE = send_request("orders"), GetRoute("orders", accept_standard_json_only=True)
MEMBERS = GetConsumerListByGroup("g")
BEAT = Heartbeat("c", [], [ConsumerBeat("g")]).encode()


@asynccontextmanager
async def with_users(path, **settings):
    """A broker with users, and mqproxy in front of it."""
    async with Cluster(path, **USERS, **settings) as cluster:
        await add_users(cluster.namesrv, cluster.brokers[0].address)
        async with connect(cluster.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.admin.create_topic("bills", queues=1)
            await mq.admin.create_group("g")
        own = ProxySettings(port=0, remoting_port=0, credentials=OPERATOR)
        async with Proxy(own, cluster.namesrv) as proxy:
            yield cluster, proxy


@asynccontextmanager
async def session_of(address, name=None, password=None, here=None):
    """A connection of a client with an account, from an address."""
    sign = signer(name, password or RIGHTS[name][0]) if name else None
    make = protocol_of(lambda: Session(lambda *_: None, SystemClock(), sign=sign))
    source = (here, 0) if here else None
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(make, *split_address(address), local_addr=source)
    try:
        yield session
    finally:
        session.close()


async def code_of(session, request, body=b""):
    try:
        return (await session.call(request, body)).code
    except RemoteError as error:
        return error.code


DENIED = ResponseCode.NO_PERMISSION
STRANGERS = [(None, None), ("nobody", "12345678"), ("writer-1", "wrong-password")]


async def test_requests_without_the_signature_of_a_user_reach_no_broker(tmp_path):
    async with with_users(tmp_path) as (cluster, proxy):
        connections = len(cluster.brokers[0]._server.sessions)
        for name, password in STRANGERS:
            async with session_of(proxy.remoting_address, name, password) as session:
                for request, body in (
                    (SEND, b"body"),
                    (ROUTE, b""),
                    (GetRoute("TBW102"), b""),
                    (GetBrokerCluster(), b""),
                    (GetMaxOffset("orders", 0), b""),
                    (MEMBERS, b""),
                    (HeartBeat(), BEAT),
                ):
                    assert await code_of(session, request, body) == DENIED, (name, request)
                session.tell(SEND, b"body")
                assert await code_of(session, MEMBERS) == DENIED
        assert len(cluster.brokers[0]._server.sessions) == connections


async def test_no_request_is_carried_out_without_a_signature(tmp_path):
    async with with_users(tmp_path) as (_, proxy):
        codes = {*REACH, *BY_CODE}

        def ask_all():
            with Wire(int(proxy.remoting_address.rpartition(":")[2])) as wire:
                return {code: wire.ask(code, {"topic": "orders", "group": "g"}).code for code in codes}

        found = await asyncio.to_thread(ask_all)
        assert {code for code in codes if found[code] == DENIED} == {*REACH}
        assert {found[code] for code in codes - {*REACH}} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


async def test_policies_decide_before_the_broker(tmp_path):
    async with with_users(tmp_path) as (cluster, proxy):
        at, sessions = proxy.remoting_address, cluster.brokers[0]._server.sessions
        connections = len(sessions)
        rights = {
            "reader-2": (DENIED, DENIED, DENIED, DENIED),
            "writer-1": (0, 0, DENIED, DENIED),
            "writer-2": (0, 0, DENIED, DENIED),
            "reader-1": (DENIED, 0, 1, 0),
        }
        for name, expected in rights.items():
            async with session_of(at, name) as session:
                asked = [
                    await code_of(session, SEND, b"body"),
                    await code_of(session, ROUTE),
                    await code_of(session, MEMBERS),
                    await code_of(session, HeartBeat(), BEAT),
                ]
                assert asked == [*expected], name
            if name == "reader-2":
                assert len(sessions) == connections


async def test_clients_with_an_account_send_and_receive(tmp_path):
    async with with_users(tmp_path, **SOON) as (_, proxy):
        at = proxy.remoting_address
        async with (
            connect(at, credentials=Credentials("writer-1", "12345678"), group="p") as writer,
            connect(at, credentials=Credentials("reader-1", "87654321")) as reader,
        ):
            asked = []

            @writer.check("p")
            def check(message):
                asked.append(message.body)
                return True

            await writer.send("orders", b"plain")
            async with writer.transaction("orders", b"later") as transaction:
                await transaction.unknown()
            found = set()
            async with reader.subscribe("orders", group="g", start="earliest") as messages:
                async for message in messages:
                    found.add(message.body)
                    if len(found) == 2:
                        break
            assert found == {b"plain", b"later"} and asked[:1] == [b"later"]
            with pytest.raises(SendFailed, match="permission"):
                await reader.send("orders", b"no")


async def test_both_sides_of_mqproxy_encrypt(tmp_path):
    context = client_context(ANYBODY)
    async with Cluster(tmp_path) as cluster:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with Proxy(ProxySettings(port=0, remoting_port=0), cluster.namesrv, tls=context) as proxy:
            pool = Pool(SystemClock(), tls=context)
            session = await pool.session(proxy.remoting_address)
            await session.call(SEND, b"body")
            assert (await session.call(GetMaxOffset("orders", 0))).header.offset == 1
            sessions = cluster.brokers[0]._server.sessions
            assert sessions and all(isinstance(each._transport, Encryption) for each in sessions)
            pool.close()
            await pool.wait_until_ended()


async def test_a_policy_counts_for_the_heartbeat_that_a_new_connection_begins_with(tmp_path, monkeypatch):
    monkeypatch.setattr(users, "POLL_S", 0.05)
    async with with_users(tmp_path) as (cluster, proxy):
        broker = cluster.brokers[0]
        async with session_of(proxy.remoting_address, "reader-1", here="127.0.0.2") as session:
            await session.call(HeartBeat(), BEAT)
            assert await members(broker.address) == ["c"]
            rule = PolicyRule("Group:g", ["Sub"], ["127.0.0.2"], "Deny")  # the broker sees 127.0.0.1
            async with session_of(broker.address, OPERATOR.access_key, OPERATOR.secret_key) as operator:
                rules = [rule, PolicyRule("Group:*", ["Sub"], None, "Allow")]
                body = UserPolicies("User:reader-1", [Policy("Custom", rules)]).encode()
                await operator.call(UpdateAcl("User:reader-1"), body)
            await until(lambda: is_denied(session))
            for connection in list(broker._server.sessions):
                connection.abort()
            await until(lambda: no_members(broker.address))
            assert (await session.call(GetMaxOffset("orders", 0))).header.offset == 0
            assert await no_members(broker.address)


async def is_denied(session):
    return await code_of(session, MEMBERS) == DENIED


async def members(address):
    async with session_of(address, "reader-1") as session:
        answer = await session.call(MEMBERS, accept=(1,))
        return ConsumerList.decode(answer.body).consumer_id_list if answer.code == 0 else []


async def no_members(address):
    return not await members(address)


async def test_connections_to_brokers_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(remoting_port, "DESCRIPTORS_PER_CLIENT", 1)  # none is left for brokers
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        own = ProxySettings(port=0, remoting_port=0)
        async with Proxy(own, cluster.namesrv) as proxy, session_of(proxy.remoting_address) as session:
            with pytest.raises(RemoteError, match="ulimit") as refused:
                await session.call(GetMaxOffset("orders", 0))
            assert refused.value.code == ResponseCode.SYSTEM_BUSY
            assert [each.kind.name for each in proxy._conditions.current()] == ["connections_full"]


async def test_above_the_limit_connections_without_a_request_are_closed(tmp_path, monkeypatch):
    async with Cluster(tmp_path) as cluster:
        monkeypatch.setattr(descriptors, "limit", lambda: 300)
        async with Proxy(ProxySettings(port=0, remoting_port=0), cluster.namesrv) as proxy:
            most = descriptors.divide(300, with_store=False).connections // remoting_port.DESCRIPTORS_PER_CLIENT
            host, _, number = proxy.remoting_address.rpartition(":")
            async with session_of(proxy.remoting_address) as known, AsyncExitStack() as stack:
                await known.call(GetBrokerCluster())
                readers = []
                for _ in range(most + 5):
                    reader, writer = await asyncio.open_connection(host, int(number))
                    stack.callback(writer.close)
                    readers.append(reader)
                await asyncio.gather(*(reader.read() for reader in readers[:6]))  # the end of the first ones
                assert (await known.call(GetBrokerCluster())).code == 0


async def test_requests_in_flight_get_their_answers_when_it_stops(tmp_path):
    async with Cluster(tmp_path) as cluster:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with AsyncExitStack() as stack:
            async with Proxy(ProxySettings(port=0, remoting_port=0), cluster.namesrv) as proxy:
                session = await stack.enter_async_context(session_of(proxy.remoting_address))
                held = pull_request(sys_flag=SUSPEND | SUBSCRIPTION, suspend_timeout_millis=400)
                pull = session.call(held, accept={ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})
                await until(lambda: any(each._waiting_count for each in cluster.brokers[0]._server.sessions))
                late = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_later(0.1, lambda: late.set_result(session.call(SEND, b"late")))
            assert (await pull).code == ResponseCode.PULL_NOT_FOUND
            with pytest.raises(RemoteError, match="mqproxy stops"):
                await (await late)
