"""Opening the gRPC port of a broker."""

import asyncio
import socket

import pytest

from sparrowmq import connect
from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.remoting import local_peer
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.broker.live import pull_request
from tests.grpc.scripted import named, outgoing
from tests.http2.peer_frames import demand_header


async def test_port_of_the_settings_is_opened(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    async with Cluster(tmp_path, grpc_port=port) as cluster:
        assert cluster.brokers[0].grpc_address == f"127.0.0.1:{port}"


async def test_connections_of_both_ports_count_for_one_quota(tmp_path):
    async with Cluster(tmp_path, grpc_port=0, quotas=parse("address:* connections=2")) as cluster:
        broker = cluster.brokers[0]
        ports = [split_address(broker.grpc_address), split_address(broker.address)]
        async with channel_to(broker.grpc_address) as channel:
            for client in ("a", "b", "c"):
                await GrpcClient(channel, client).call("QueryRoute", topic=named("orders"))
            opened = await asyncio.open_connection(*ports[1])
            opened[1].write(encode_request(pull_request(), PullMessage.code, 1))
            assert await opened[0].readexactly(4), "clients of one gRPC connection are one connection"
            for port in ports:
                reader, writer = await asyncio.open_connection(*port)
                assert await reader.read() == b""
                writer.close()
            opened[1].close()


async def test_requests_of_both_ports_share_one_budget(tmp_path, monkeypatch):
    async with Cluster(tmp_path, grpc_port=0) as running:
        broker = running.brokers[0]
        async with connect(running.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        budget, changes = broker._server.budget, []

        def hold(change):
            changes.append(change)
            return True

        monkeypatch.setattr(budget, "hold", hold)
        monkeypatch.setattr(local_peer, "SHORT_ANSWERS", ())
        budget.turn.is_spent = True  # so the send is put off to the next turn
        async with channel_to(broker.grpc_address) as channel:
            sent = await GrpcClient(channel).call("SendMessage", messages=[outgoing(body=bytes(5000))])
        assert sent.status.code == 20000
        assert max(changes) > 5000 and sum(changes) == 0


async def test_port_behind_a_proxy_wants_its_header(tmp_path):
    async with Cluster(tmp_path, grpc_port=0, grpc_is_behind_proxy=True) as cluster:
        await demand_header(cluster.brokers[0].grpc_address)


async def test_port_that_is_taken_stops_the_start(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="grpcServerPort"):
        async with Cluster(tmp_path, grpc_port=taken.getsockname()[1]):
            pass


async def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "PACKAGES", {"nowhere_at_all": "protobuf"})
    with pytest.raises(ConfigError, match="grpcServerPort needs the packages protobuf: pip install"):
        async with Cluster(tmp_path, grpc_port=0):
            pass
