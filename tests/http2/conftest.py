"""A gRPC server with some methods, and Google's client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from sparrowmq.http2.calls import GrpcError, Pending, Streaming
from sparrowmq.http2.server import GrpcServer


class Methods:
    """What the server of a test does, and what it saw."""

    def __init__(self):
        self.calls = []
        self.cancelled = asyncio.Event()
        self.begun = asyncio.Event()
        self.held = Pending()

    def echo(self, call, request):
        self.calls.append(call)
        return request

    async def slow_echo(self, call, request):
        self.calls.append(call)
        await asyncio.sleep(0)
        return request

    def pending_echo(self, call, request):
        pending = Pending()
        asyncio.get_running_loop().call_soon(pending.answer, request)
        return pending

    def pending_refuse(self, call, request):
        pending = Pending()
        asyncio.get_running_loop().call_soon(pending.fail, GrpcError(10, "pending"))
        return pending

    def held_echo(self, call, request):
        self.held = Pending()
        return self.held

    def refuse(self, call, request):
        raise GrpcError(5, "no é here: 100%")

    async def refuse_later(self, call, request):
        await asyncio.sleep(0)
        raise GrpcError(10, "later")

    def broken(self, call, request):
        raise ZeroDivisionError("a fault of ours")

    async def hang(self, call, request):
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""

    async def count(self, call, requests, send):
        """Answers one request by that many messages of a size: `count size`."""
        async for request in requests:
            count, size = map(int, request.split())
            for at in range(count):
                await send(b"%d" % at + bytes(size))

    async def together(self, call, requests, send):
        """Answers one request by so many messages in one send."""
        async for request in requests:
            await send(*[b"x"] * int(request))

    async def talk(self, call, requests, send):
        """Answers each message by its length."""
        async for request in requests:
            await send(b"%d" % len(request))

    async def listen_forever(self, call, requests, send):
        self.begun.set()
        try:
            async for _ in requests:
                pass
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def refuse_stream(self, call, requests, send):
        raise GrpcError(7, "not you")

    def all(self):
        return {
            "/test.Test/Echo": self.echo,
            "/test.Test/SlowEcho": self.slow_echo,
            "/test.Test/PendingEcho": self.pending_echo,
            "/test.Test/PendingRefuse": self.pending_refuse,
            "/test.Test/HeldEcho": self.held_echo,
            "/test.Test/Refuse": self.refuse,
            "/test.Test/RefuseLater": self.refuse_later,
            "/test.Test/Broken": self.broken,
            "/test.Test/Hang": self.hang,
            "/test.Test/Count": Streaming(self.count),
            "/test.Test/Talk": Streaming(self.talk),
            "/test.Test/TalkLater": Streaming(self.talk, may_be_silent=True),
            "/test.Test/Together": Streaming(self.together),
            "/test.Test/Listen": Streaming(self.listen_forever),
            "/test.Test/RefuseStream": Streaming(self.refuse_stream),
        }


@pytest.fixture
async def methods():
    return Methods()


@pytest.fixture
async def server(methods) -> AsyncIterator[GrpcServer]:
    async with GrpcServer(methods.all()) as server:
        await server.start("127.0.0.1", 0)
        yield server


@pytest.fixture
async def channel(server):
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel:
        yield channel
