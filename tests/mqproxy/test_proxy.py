"""The process `mqproxy` in front of two brokers."""

import asyncio
import urllib.request
from contextlib import AsyncExitStack

import pytest

from sparrowmq import connect
from sparrowmq.errors import ConfigError
from sparrowmq.grpc.wire_types import ClientType
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.attacks import OPERATOR, USERS
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.certificates import authority, signed
from tests.grpc.scripted import named, outgoing
from tests.http2.peer_frames import demand_header
from tests.mqproxy.until import until


async def test_one_port_serves_the_queues_of_all_brokers(tmp_path):
    async with (
        Cluster(tmp_path, brokers=2) as cluster,
        Proxy(ProxySettings(port=0), cluster.namesrv) as proxy,
    ):
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with channel_to(proxy.address) as channel:
            producer, consumer = GrpcClient(channel, "p"), GrpcClient(channel, "c")
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            route = await producer.call("QueryRoute", topic=named("orders"))
            assert {each.broker.name for each in route.message_queues} == {"broker-0", "broker-1"}
            ports = {each.broker.endpoints.addresses[0].port for each in route.message_queues}
            assert ports == {int(proxy.address.rpartition(":")[2])}
            sent = [await producer.call("SendMessage", messages=[outgoing()]) for _ in range(4)]
            assert {each.status.code for each in sent} == {20000}
            for broker in ("broker-0", "broker-1"):
                code, got = await consumer.receive(broker=broker)
                assert code == 20000 and len(got) == 2
                names = {"topic": named("orders"), "group": named("g")}
                entries = [
                    {"message_id": each.system_properties.message_id, "receipt_handle": handle}
                    for each in got
                    if (handle := each.system_properties.receipt_handle)
                ]
                acked = await consumer.call("AckMessage", **names, entries=entries)
                assert acked.status.code == 20000 and {each.status.code for each in acked.entries} == {20000}
            async with connect(cluster.namesrv) as mq:
                assert (await mq.admin.lag("g")).lag == 0


async def test_behind_a_proxy_connections_begin_with_its_header(tmp_path):
    settings = ProxySettings(port=0, is_behind_proxy=True)
    async with Cluster(tmp_path) as cluster, Proxy(settings, cluster.namesrv) as proxy:
        await demand_header(proxy.address)


async def test_names_that_one_client_invents_do_not_hold_up_others(tmp_path):
    async with Cluster(tmp_path) as cluster, Proxy(ProxySettings(port=0), cluster.namesrv) as proxy:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with channel_to(proxy.address) as one, channel_to(proxy.address) as other:
            greedy, client, codes = GrpcClient(one, "greedy"), GrpcClient(other), []

            async def ask(number):
                answer = await greedy.call("QueryRoute", topic=named(f"x{number}"))
                codes.append(answer.status.code)

            asking = [asyncio.ensure_future(ask(number)) for number in range(2000)]
            await until(lambda: codes)
            assert (await client.call("QueryRoute", topic=named("orders"))).status.code == 20000
            assert len(codes) < 500
            await asyncio.gather(*asking)
            assert set(codes) == {40402}


async def test_a_cluster_that_is_away_is_said_to_be_so():
    async with Proxy(ProxySettings(port=0), "127.0.0.1:1") as proxy, channel_to(proxy.address) as channel:
        answer = await GrpcClient(channel).call("QueryRoute", topic=named("orders"))
        assert answer.status.code >= 50000 and "127.0.0.1:1" in answer.status.message


@pytest.mark.slow
async def test_conditions_are_shown_at_its_metrics_port(tmp_path):
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(tmp_path, **USERS))
        settings = ProxySettings(port=0, credentials=OPERATOR, metrics_port=0)
        async with Proxy(settings, cluster.namesrv) as proxy:
            assert await read(proxy.metrics_address, "/readyz") == "ok\n"
            await stack.aclose()
            while "users_not_read: broker-0: its users count until " not in await read(
                proxy.metrics_address, "/readyz"
            ):
                await asyncio.sleep(0.1)
            shown = await read(proxy.metrics_address, "/metrics")
            assert 'sparrowmq_condition{condition="users_not_read"' in shown


async def test_a_certificate_that_ends_is_a_condition_until_it_is_renewed(tmp_path):
    vouching = authority(tmp_path)
    pair, renewed = (signed(tmp_path, name, vouching, days=days) for name, days in (("old", 5), ("new", 300)))
    settings = ProxySettings(port=0, metrics_port=0, certificate=pair.certificate, key=pair.key)
    async with Cluster(tmp_path) as cluster, Proxy(settings, cluster.namesrv) as proxy:
        assert f"certificate: {pair.certificate} ends at " in await read(proxy.metrics_address, "/readyz")
        renewed.key.replace(pair.key)
        renewed.certificate.replace(pair.certificate)
        while await read(proxy.metrics_address, "/readyz") != "ok\n":
            await asyncio.sleep(0.1)


async def test_a_certificate_for_brokers_that_ends_is_a_condition_until_it_is_renewed(tmp_path):
    vouching = authority(tmp_path)
    pair, renewed = (signed(tmp_path, name, vouching, days=days) for name, days in (("old", 5), ("new", 300)))
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.client.authServer=false\ntls.client.certPath={pair.certificate}\ntls.client.keyPath={pair.key}\n"
    )
    async with (
        Cluster(tmp_path) as cluster,
        Proxy(ProxySettings(port=0, metrics_port=0), cluster.namesrv, file) as proxy,
    ):
        said = await read(proxy.metrics_address, "/readyz")
        assert f"client_certificate: {pair.certificate} ends at " in said
        assert proxy._connect(credentials=OPERATOR)._pool._tls is proxy._tls, "one look serves all connections"
        renewed.key.replace(pair.key)
        renewed.certificate.replace(pair.certificate)
        while await read(proxy.metrics_address, "/readyz") != "ok\n":
            await asyncio.sleep(0.1)


async def read(address, path):
    answer = await asyncio.to_thread(urllib.request.urlopen, f"http://{address}{path}", timeout=30)
    with answer:
        return answer.read().decode()


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"host": "10.1.2.3"}, "--insecure"),
        ({"host": "0.0.0.0", "insecure": True}, "--address"),
        ({"certificate": "cert.pem"}, "--key"),
        ({"key": "key.pem"}, "--certificate"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, advice):
    with pytest.raises(ConfigError, match=advice):
        ProxySettings(**settings)
