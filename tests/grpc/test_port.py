"""A gRPC port in front of brokers."""

from contextlib import AsyncExitStack

import pytest
from grpc import aio

from sparrowmq.core.descriptors import divide
from sparrowmq.grpc.port import ListenAddress, open_port
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.scripted import ScriptedBrokers, named


async def test_port_is_open_as_long_as_its_stack_and_names_the_host_for_clients():
    clock = SystemClock()
    tls = ServerTls(ServerTlsSettings(), clock)
    async with Background() as tasks, AsyncExitStack() as stack:
        place = ListenAddress("127.0.0.1", 0, "mq.example.com", divide(1024, with_store=False))
        address, _ = await open_port(stack, tasks, ScriptedBrokers(), clock, tls, place)
        host, _, port = address.rpartition(":")
        assert host == "mq.example.com"
        async with channel_to(f"127.0.0.1:{port}") as channel:
            route = await GrpcClient(channel).call("QueryRoute", topic=named("orders"))
            endpoints = route.message_queues[0].broker.endpoints.addresses[0]
            assert (endpoints.host, endpoints.port) == (host, int(port))
            await stack.aclose()
            with pytest.raises(aio.AioRpcError):
                await GrpcClient(channel).call("QueryRoute", topic=named("orders"))
