"""mqproxy in front of brokers with users."""

import asyncio

import pytest

from sparrowmq import connect
from sparrowmq.auth.grpc_signature import Freshness
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import AccessDenied, BrokerUnreachable, RemoteError
from sparrowmq.grpc.clients import MAX_TOPICS
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.mqproxy.account_brokers import IDLE_S, AccountCluster
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.mqproxy.limits import Capacity
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.mqproxy.users import BrokerUsers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import BrokerRoute
from sparrowmq.protocol.requests.headers import GetMaxOffset
from sparrowmq.protocol.requests.user_headers import CreateAcl, Policy, PolicyRule, UserPolicies
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.attacks import (
    AGES,
    OPERATOR,
    SOON,
    USERS,
    add_users,
    check_age,
    check_attacks,
    check_rights,
    check_sight,
    client_of,
    signed,
)
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.scripted import named
from tests.mqproxy.until import until


async def test_users_of_the_brokers_decide_what_a_call_may_do(tmp_path):
    async with Cluster(tmp_path, **SOON, **USERS) as running:
        await add_users(running.namesrv, running.brokers[0].address)
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.admin.create_topic("bills", queues=1)
        settings = ProxySettings(port=0, credentials=OPERATOR)
        async with Proxy(settings, running.namesrv) as proxy, channel_to(proxy.address) as channel:
            await check_rights(channel)
            await check_sight(channel)
            await check_attacks(channel)
            for client, code in (
                (GrpcClient(channel), 40100),
                (GrpcClient(channel, **signed("reader-2", "wrong")), 40100),
                (client_of(channel, "reader-2"), 40100),
                (client_of(channel, "reader-1"), 20000),
            ):
                assert (await client.call("QueryRoute", topic=named("orders"))).status.code == code


@AGES
async def test_a_captured_signature_is_valid_for_as_long_as_the_setting_says(tmp_path, most_s, code):
    async with Cluster(tmp_path, **USERS) as running:
        settings = ProxySettings(port=0, credentials=OPERATOR, signature_age_s=most_s)
        async with Proxy(settings, running.namesrv) as proxy, channel_to(proxy.address) as channel:
            await check_age(channel, code)


def call(name, password):
    return Call("M", signed(name, password), Caller("127.0.0.1", 5000))


async def test_connections_of_a_user_end_when_they_are_not_used(tmp_path):
    clock = ManualClock()
    async with (
        Cluster(tmp_path, **USERS) as running,
        Network(running.namesrv, credentials=OPERATOR) as network,
        Background() as tasks,
    ):
        own = ClusterBrokers(network, SystemClock())
        users = BrokerUsers(own, clock)

        def connect_as(user):
            return Network(running.namesrv, credentials=user)

        cluster = AccountCluster(own, users, connect_as, tasks, clock, Freshness(0), Capacity(10))
        with pytest.raises(BrokerUnreachable):
            cluster.brokers_for(call("operator", "abcdefgh"), "one")
        await users.start()
        with pytest.raises(AccessDenied):
            cluster.brokers_for(call("operator", "wrong"), "one")
        brokers = cluster.brokers_for(call("operator", "abcdefgh"), "one")
        brokers.announce(["orders"], None)
        first = cluster.connections_of("operator")
        assert cluster.connections_of("operator") is first and len(cluster) == 1
        ((_, left_out),) = cluster.probes()
        cluster.announce("operator", "many\noperator", [f"t{number}" for number in range(MAX_TOPICS + 1)])
        await until(left_out)
        assert left_out().startswith("account operator: 2 clients produce for more than 500 topics")
        cluster.client_left("many\noperator")
        await until(lambda: left_out() == "")
        del users.passwords["operator"]
        cluster.announce("operator", "one", ())  # its stream ends after its user was deleted
        users.passwords["operator"] = "changed!"
        assert cluster.connections_of("operator") is not first and first.close_event.is_set()
        await clock.advance(IDLE_S - 1)
        cluster.expire()
        assert len(cluster) == 1
        await clock.advance(2)
        cluster.expire()
        assert len(cluster) == 0
        users.passwords.clear()
        with pytest.raises(AccessDenied):
            cluster.connections_of("operator")


async def test_address_of_the_client_counts_although_the_broker_sees_another(tmp_path):
    async with (
        Cluster(tmp_path, **USERS) as running,
        Network(running.namesrv, credentials=OPERATOR) as network,
        Background() as tasks,
    ):
        await add_users(running.namesrv, running.brokers[0].address)
        own = ClusterBrokers(network, SystemClock())
        rule = PolicyRule("Topic:orders", ["Pub"], ["10.0.0.0/8"], "Deny")
        body = UserPolicies("User:writer-2", [Policy("Custom", [rule])]).encode()
        await own.ask("broker-0", CreateAcl("User:writer-2"), body)
        users = BrokerUsers(own, SystemClock())
        await users.start()

        def connect_as(user):
            return Network(running.namesrv, credentials=user)

        cluster = AccountCluster(own, users, connect_as, tasks, SystemClock(), Freshness(), Capacity(10))
        for host, is_denied in (("10.1.2.3", True), ("127.0.0.1", False)):
            made = Call("M", signed("writer-2", "12345678"), Caller(host, 5000))
            brokers = cluster.brokers_for(made, "one")
            ask = GetMaxOffset(topic="orders", queue_id=0)
            if is_denied:
                with pytest.raises(AccessDenied):
                    await brokers.ask("broker-0", ask)
            else:
                assert (await brokers.ask("broker-0", ask)).header.offset == 0


async def test_connections_of_users_to_brokers_are_counted_and_limited(tmp_path):
    ask = GetMaxOffset(topic="orders", queue_id=0)
    async with (
        Cluster(tmp_path, brokers=2, **USERS) as running,
        Network(running.namesrv, credentials=OPERATOR) as network,
        Background() as tasks,
    ):
        for broker in running.brokers:
            await add_users(running.namesrv, broker.address)
        own = ClusterBrokers(network, SystemClock())
        users, capacity = BrokerUsers(own, SystemClock()), Capacity(3)
        await users.start()

        def connect_as(user):
            return Network(running.namesrv, credentials=user)

        cluster = AccountCluster(own, users, connect_as, tasks, SystemClock(), Freshness(0), capacity)
        first = cluster.brokers_for(call("operator", "abcdefgh"), "one")
        other = cluster.brokers_for(call("writer-2", "12345678"), "two")
        await asyncio.gather(*(first.ask(name, ask) for name in ("broker-0", "broker-1") for _ in range(3)))
        assert capacity.link_count == 2, "each connection counts once"
        await other.ask("broker-0", ask)
        assert capacity.problem == "users at the gRPC port have 3 connections to brokers, and no more may be"
        with pytest.raises(RemoteError, match="mqproxy is busy: users at the gRPC port have 3 connections") as refused:
            await other.ask("broker-1", ask)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        await first.ask("broker-1", ask)
        cluster._connections_by_account.pop("operator").close_event.set()
        await until(lambda: capacity.link_count == 1)
        await other.ask("broker-1", ask)
        own.addresses.learn([BrokerRoute("c", "broker-1", {0: "127.0.0.1:9"})])
        with pytest.raises(BrokerUnreachable):
            await first.ask("broker-1", ask)
        assert capacity.link_count == 2, "a connection that failed does not count"
