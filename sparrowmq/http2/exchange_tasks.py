"""The tasks of calls that must wait: for an answer, or for a message that is decompressed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from sparrowmq.http2.calls import GrpcError
from sparrowmq.http2.grpc_wire import MessageReader


class Waiting(Protocol):
    """A call with a task: an `Exchange`."""

    @property
    def reader(self) -> MessageReader: ...

    @property
    def inflating(self) -> asyncio.Lock: ...

    def grew(self, count: int) -> None:
        """Count a message that was decompressed to so many bytes."""

    def broke(self, error: BaseException) -> None:
        """End the call with an error."""


class UnaryWaiting(Waiting, Protocol):
    """A call with one request and one answer: a `UnaryExchange`."""

    def handle(self, message: bytes) -> None:
        """Call the method."""

    def answer(self, message: bytes) -> None:
        """Send the answer."""


async def wait(exchange: UnaryWaiting, result: Awaitable[bytes]) -> None:
    """Answer a call when its method has the answer."""
    try:
        answer = await result
    except Exception as error:
        exchange.broke(error)
    else:
        exchange.answer(answer)


async def handle_compressed(exchange: UnaryWaiting, message: bytes) -> None:
    """Call the method with the decompressed message."""
    try:
        message = await decompressed(exchange, message)
    except GrpcError as error:
        exchange.broke(error)
    else:
        exchange.handle(message)


async def decompressed(exchange: Waiting, message: bytes) -> bytes:
    """Decompress a message beside the loop, as a small one may become large. Raises: GrpcError."""
    async with exchange.inflating:
        plain = await asyncio.to_thread(exchange.reader.decompressed, message)
    exchange.grew(len(plain))
    return plain
