"""A call with a stream of requests, of answers, or both: a task from the start.

The task takes messages out of the body when the method asks for one, and the client's window grows only then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from sparrowmq.http2 import response_headers
from sparrowmq.http2.calls import Call, GrpcError, Method, Status, StreamHandler, Streaming
from sparrowmq.http2.exchange import Exchange, Surroundings, UnaryExchange
from sparrowmq.http2.exchange_tasks import decompressed
from sparrowmq.http2.grpc_wire import MessageReader, framed
from sparrowmq.http2.streams import Stream
from sparrowmq.loop.slices import pause

UNSENT_BYTES: Final = 8 << 20  # of a stream, before `send` waits: more than a receive finds, so its method ends


class StreamExchange(Exchange):
    """A call with a stream of requests, of answers, or both."""

    def __init__(
        self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings, method: Streaming
    ) -> None:
        super().__init__(call, stream, reader, around)
        self._has_message = method.may_be_silent
        self._more: asyncio.Future[None] | None = None  # the method waits for a request
        self._room: asyncio.Future[None] | None = None  # the method waits until answers are sent
        self._task = around.spawn(self._run(method.handler))

    def drained(self) -> None:
        _wake(self._room)

    def _received(self) -> None:
        _wake(self._more)
        self._make_room()

    async def _run(self, method: StreamHandler) -> None:
        try:
            await method(self._call, self._requests(), self._send)
        except Exception as error:
            self.broke(error)
        else:
            self._send_headers()
            self._finish(response_headers.OK_TRAILERS)

    async def _requests(self) -> AsyncIterator[bytes]:
        while True:
            before = self.reader.held_bytes
            message = self.reader.next()
            if message is not None:
                size, kept = before - self.reader.held_bytes, self.stream.kept_bytes
                self._has_message = True
                yield await decompressed(self, message) if self.reader.is_compressed else message
                self.around.connection.keep(self.stream, kept - self.stream.kept_bytes)
                self.around.connection.consumed(self.stream, size)
                self.around.flush()
                if self.reader.held_bytes:  # a window may hold thousands of messages that cost no wait
                    await pause()
            elif self._is_whole:
                if self.reader.held_bytes:
                    raise GrpcError(Status.INTERNAL, "the last message of the request is not whole")
                return
            else:
                self._make_room()
                self._more = asyncio.get_running_loop().create_future()
                await self._more

    async def _send(self, *messages: bytes) -> None:
        """Send answers, in as few frames as they need, and wait while many bytes of earlier ones are unsent."""
        stream = self.stream
        self._send_headers()
        self.around.connection.output.message(stream, b"".join([framed(message) for message in messages]))
        self.around.flush()
        while len(stream.pending) > UNSENT_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            await self._room


def exchange_of(method: Method, call: Call, stream: Stream, reader: MessageReader, around: Surroundings) -> Exchange:
    """Return a new call of a method, which begins at once."""
    if isinstance(method, Streaming):
        return StreamExchange(call, stream, reader, around, method)
    return UnaryExchange(call, stream, reader, around, method)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
