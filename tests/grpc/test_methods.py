"""The methods, called by a gRPC client over a socket."""

from contextlib import asynccontextmanager

import grpc
import pytest
from grpc import aio

from sparrowmq.grpc.caller import CLIENT_ID
from sparrowmq.grpc.port import Methods
from sparrowmq.grpc.wire_types import SERVICE, ClientType, message_class
from sparrowmq.http2.server import GrpcServer
from sparrowmq.loop.tasks import Background
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers, named, outgoing


class Caller:
    """A client of the port."""

    def __init__(self, channel, methods, clock):
        self._channel = channel
        self.methods = methods
        self.clock = clock

    async def call(self, name, client_id="c1", raw=None, **fields):
        answered = message_class(f"{name}Response")
        run = self._channel.unary_unary(f"/{SERVICE}/{name}")
        raw = message_class(f"{name}Request")(**fields).SerializeToString() if raw is None else raw
        return answered.FromString(await run(raw, metadata=((CLIENT_ID, client_id),) if client_id else ()))

    def telemetry(self, client_id="c1"):
        run = self._channel.stream_stream(f"/{SERVICE}/Telemetry")
        return run(metadata=((CLIENT_ID, client_id),))

    async def receive(self, **fields):
        run = self._channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        raw = message_class("ReceiveMessageRequest")(**fields).SerializeToString()
        return [
            message_class("ReceiveMessageResponse").FromString(each)
            async for each in run(raw, metadata=((CLIENT_ID, "c1"),))
        ]


@asynccontextmanager
async def calling():
    clock = ManualClock()
    async with Background() as tasks:
        methods = Methods(ScriptedBrokers(), clock, tasks, "10.0.0.1:8081")
        async with GrpcServer(methods.by_path()) as server:
            port = await server.start("127.0.0.1", 0)
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Caller(channel, methods, clock)


def command(kind=ClientType.PRODUCER, group=""):
    made = message_class("TelemetryCommand")()
    made.settings.client_type = kind
    if group:
        made.settings.subscription.group.name = group
    return made.SerializeToString()


async def test_route_has_the_endpoints_of_the_request_or_of_the_port():
    async with calling() as client:
        got = await client.call("QueryRoute", topic=named("orders"))
        assert (got.status.code, len(got.message_queues)) == (20000, 8)
        assert got.message_queues[0].broker.endpoints.addresses[0].host == "10.0.0.1"
        given = message_class("Endpoints")(scheme=3)
        given.addresses.add(host="mq.example", port=80)
        got = await client.call("QueryRoute", topic=named("orders"), endpoints=given)
        assert got.message_queues[0].broker.endpoints == given


async def test_errors_are_statuses():
    async with calling() as client:
        assert (await client.call("QueryRoute", topic=named("bills"))).status.code == 40402
        assert (await client.call("QueryRoute", topic=named(" "))).status.code == 40002
        assert (await client.call("QueryRoute", client_id="", topic=named("orders"))).status.code == 40017
        assert (await client.call("QueryRoute", raw=b"\x0a\x7f")).status.code == 40000
        assert (await client.call("Heartbeat")).status.code == 40015
        assert (await client.call("NotifyClientTermination")).status.code == 40015
        assert (await client.receive(group=named("g")))[0].status.code == 40002


async def test_client_with_settings_lives_until_it_ends():
    async with calling() as client:
        stream = client.telemetry()
        await stream.write(command())
        got = message_class("TelemetryCommand").FromString(await stream.read())
        assert got.settings.publishing.max_body_size == 0  # it publishes no topic
        assert (await client.call("Heartbeat")).status.code == 20000
        assert (await client.call("NotifyClientTermination")).status.code == 20000
        assert (await client.call("Heartbeat")).status.code == 40015


async def test_refused_settings_end_the_stream_with_a_status_of_grpc():
    async with calling() as client:
        stream = client.telemetry()
        await stream.write(command(ClientType.PUSH_CONSUMER, group="a b"))
        with pytest.raises(grpc.RpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_calls_that_are_too_large_are_refused():
    async with calling() as client:
        raw = b"\x0a\x00" * 600_000
        for name in ("SendMessage", "AckMessage", "QueryRoute"):
            assert (await client.call(name, raw=raw)).status.code == 41300
        endpoints = message_class("Endpoints")()
        for _ in range(2_500):
            endpoints.addresses.add()
        asked = {"topic": named("orders"), "endpoints": endpoints}
        for name in ("QueryRoute", "QueryAssignment"):  # the answer would repeat them for each queue
            assert (await client.call(name, **asked)).status.code == 41300
        [answer] = await client.receive(attempt_id="a" * 300_000)
        assert answer.status.code == 41300
        stream = client.telemetry()
        await stream.write(raw)
        with pytest.raises(grpc.RpcError) as caught:
            await stream.read()
        assert "more than 8,192 fields" in caught.value.details()


async def test_message_is_sent():
    async with calling() as client:
        got = await client.call("SendMessage", messages=[outgoing()])
        assert (got.status.code, got.entries[0].message_id) == (20000, "01AB")


async def test_method_that_apache_leaves_out_is_unknown():
    async with calling() as client:
        with pytest.raises(grpc.RpcError) as caught:
            await client._channel.unary_unary(f"/{SERVICE}/GetOffset")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_silent_client_is_forgotten():
    async with calling() as client:
        await client.call("SendMessage", messages=[outgoing()])
        client.methods.clients.note_seen("c1")
        await client.clock.advance(300)
        assert len(client.methods.clients) == 0
