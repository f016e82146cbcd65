"""A gRPC client of a broker's port, for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager

from grpc import aio

from sparrowmq.grpc.caller import CLIENT_ID
from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.wire_types import SERVICE, ClientType, message_class


class GrpcClient:
    """One client of the port."""

    def __init__(self, channel, client_id="c1", **metadata):
        self._channel = channel
        self._metadata = ((CLIENT_ID, client_id), *metadata.items())

    async def call(self, name, **fields):
        """Call a method with one answer."""
        run = self._channel.unary_unary(f"/{SERVICE}/{name}")
        raw = await run(message_class(f"{name}Request")(**fields).SerializeToString(), metadata=self._metadata)
        return message_class(f"{name}Response").FromString(raw)

    async def telemetry(self, kind=ClientType.PRODUCER, topic="", group=""):
        """Open a stream with settings. Returns what reads its commands."""
        stream = self._channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=self._metadata)
        command = message_class("TelemetryCommand")()
        command.settings.client_type = kind
        if topic:
            command.settings.publishing.topics.add(name=topic)
        if group:
            command.settings.subscription.group.name = group
            command.settings.subscription.subscriptions.add().topic.name = "orders"
        await stream.write(command.SerializeToString())
        self._stream = stream

        async def read():
            return message_class("TelemetryCommand").FromString(await stream.read())

        return read

    async def answer(self, command, nonce, text="", code=20000):
        """Send the result of a command on the latest stream."""
        answer = message_class("TelemetryCommand")()
        answer.status.code, answer.status.message = code, text
        getattr(answer, command).nonce = nonce
        if command == "thread_stack_trace":
            answer.thread_stack_trace.thread_stack_trace = text
        await self._stream.write(answer.SerializeToString())

    async def receive(
        self,
        group="g",
        broker="broker-0",
        queue_id=-1,
        count=32,
        wait_ms=5000,
        invisible_ms=10_000,
        **fields,
    ):
        """The messages of one receive."""
        request = message_class("ReceiveMessageRequest")(batch_size=count, **fields)
        request.group.name = group
        request.message_queue.topic.name = "orders"
        request.message_queue.id = queue_id
        request.message_queue.broker.name = broker
        set_ms(request.invisible_duration, invisible_ms)
        set_ms(request.long_polling_timeout, wait_ms)
        run = self._channel.unary_stream(f"/{SERVICE}/ReceiveMessage")
        raws = [raw async for raw in run(request.SerializeToString(), metadata=self._metadata)]
        answers = [message_class("ReceiveMessageResponse").FromString(raw) for raw in raws]
        return answers[0].status.code, [each.message for each in answers if each.HasField("message")]


@asynccontextmanager
async def channel_to(address):
    """A connection to a port, which no other channel shares."""
    async with aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel
