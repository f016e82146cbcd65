"""One call: the messages of its request go to the method, and the answers or the error of the method to the client.

    Unary        the method is called when the request is complete; bytes that it returns leave in the same turn; for
                 something else a task waits
    Streaming    the method runs as a task from the start; it takes messages out of the body when it asks for one, and
                 the client's window grows only then

A method's task ends with its call: `ended` cancels it, as does the client's time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sparrowmq.http2 import response_headers
from sparrowmq.http2.calls import Call, GrpcError, Method, Status, StreamHandler, Streaming, Unary
from sparrowmq.http2.connection import Connection
from sparrowmq.http2.grpc_wire import MessageReader, framed
from sparrowmq.http2.streams import Stream
from sparrowmq.loop.clock import Clock, Timer

log = logging.getLogger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

UNSENT_BYTES: Final = (
    8 << 20
)  # of a stream, before `send` waits: more than a receive finds, so its method ends
_BROKEN: Final = "the server failed to handle the call; its log says why"
_LATE: Final = "the time limit of the call is over"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of the calls of one connection."""

    connection: Connection
    clock: Clock
    spawn: Spawn  # starts a method's task
    flush: Callable[[], object]  # has the connection write its output soon
    inflating: asyncio.Lock  # of the server: one message after the other is decompressed


class Exchange:
    """A call in progress.

    Attributes:
        changed_at: when bytes of the request last came.
    """

    def __init__(self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings) -> None:
        self.changed_at = around.clock.monotonic()
        self._call = call
        self._stream = stream
        self._reader = reader
        self._around = around
        self._task: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        self._is_whole = False  # the client sends no more
        self._has_headers = False  # of the answer
        self._has_message = False  # the client has sent one
        left_s = call.time_left_s
        if left_s is not None:
            self._timer = around.clock.call_later(left_s, self._time_is_over)

    def body(self, data: bytes, is_end: bool) -> None:
        if self._stream.is_closed:
            return
        self.changed_at = self._around.clock.monotonic()
        self._is_whole = is_end
        self._reader.add(data)
        try:
            self._received()
        except GrpcError as error:
            self.fail(error.code, error.message)

    def ended(self) -> None:
        """The stream has ended: the method's work is wanted no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def drained(self) -> None:
        """All answers so far are sent."""

    @property
    def is_unfinished(self) -> bool:
        """Whether the client owes the rest of a message."""
        has_begun = self._reader.held_bytes > 0 or not self._has_message
        return not self._is_whole and has_begun and self._reader.missing_bytes() > 0

    def fail(self, code: int, message: str) -> None:
        """End the call with an error."""
        self._finish(response_headers.trailers(code, message))

    def _received(self) -> None:
        """More of the request is here. Raises: GrpcError."""
        raise NotImplementedError

    def _finish(self, trailers: bytes) -> None:
        if self._stream.is_closed:
            return
        block = trailers if self._has_headers else response_headers.GRPC_HEADERS + trailers
        self._around.connection.output.end(self._stream, block)
        self._around.flush()

    def _send_headers(self) -> None:
        if not self._has_headers:
            self._has_headers = True
            self._around.connection.output.headers(self._stream, response_headers.GRPC_HEADERS)

    def _make_room(self) -> None:
        """Let the client send the rest of a large message. Raises: GrpcError, it is too large."""
        if not self._is_whole:
            self._around.connection.expects(self._stream, self._reader.missing_bytes())

    async def _decompressed(self, message: bytes) -> bytes:
        """Decompress a message beside the loop, as a small one may become large. Raises: GrpcError."""
        async with self._around.inflating:
            plain = await asyncio.to_thread(self._reader.decompressed, message)
        self._around.connection.keep(self._stream, len(plain))
        self._around.flush()
        return plain

    def _time_is_over(self) -> None:
        self._timer = None
        self.fail(Status.DEADLINE_EXCEEDED, _LATE)

    def _broke(self) -> None:
        """Report the exception of a method."""
        log.exception("the call %s of %s failed", self._call.method, self._call.peer)
        self.fail(Status.INTERNAL, _BROKEN)


class UnaryExchange(Exchange):
    """A call of one request and one answer."""

    def __init__(
        self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings, method: Unary
    ) -> None:
        super().__init__(call, stream, reader, around)
        self._method = method

    @property
    def is_unfinished(self) -> bool:
        return not self._is_whole

    def _received(self) -> None:
        if not self._is_whole:
            self._make_room()
            return
        message = self._reader.next()
        if message is None or self._reader.held_bytes:
            raise GrpcError(Status.INTERNAL, "the request is not exactly one message")
        if self._reader.is_compressed:
            self._task = self._around.spawn(self._handle_compressed(message))
        else:
            self._handle(message)

    async def _handle_compressed(self, message: bytes) -> None:
        try:
            message = await self._decompressed(message)
        except GrpcError as error:
            self.fail(error.code, error.message)
        else:
            self._handle(message)

    def _handle(self, message: bytes) -> None:
        try:
            result = self._method(self._call, message)
        except GrpcError as error:
            self.fail(error.code, error.message)
        except Exception:
            self._broke()
        else:
            if isinstance(result, bytes):
                self._answer(result)
            else:
                self._task = self._around.spawn(self._wait(result))
                if isinstance(result, Coroutine):  # a task that is cancelled before it began never awaits it
                    self._task.add_done_callback(lambda _: result.close())

    async def _wait(self, result: Awaitable[bytes]) -> None:
        try:
            answer = await result
        except GrpcError as error:
            self.fail(error.code, error.message)
        except Exception:
            self._broke()
        else:
            self._answer(answer)

    def _answer(self, message: bytes) -> None:
        if not self._stream.is_closed:
            self._send_headers()
            self._around.connection.output.message(self._stream, framed(message))
            self._finish(response_headers.OK_TRAILERS)


class StreamExchange(Exchange):
    """A call with a stream of requests, of answers, or both."""

    def __init__(
        self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings, method: StreamHandler
    ) -> None:
        super().__init__(call, stream, reader, around)
        self._more: asyncio.Future[None] | None = None  # the method waits for a request
        self._room: asyncio.Future[None] | None = None  # the method waits until answers are sent
        self._task = around.spawn(self._run(method))

    def drained(self) -> None:
        _wake(self._room)

    def _received(self) -> None:
        _wake(self._more)
        self._make_room()

    async def _run(self, method: StreamHandler) -> None:
        try:
            await method(self._call, self._requests(), self._send)
        except GrpcError as error:
            self.fail(error.code, error.message)
        except Exception:
            self._broke()
        else:
            self._send_headers()
            self._finish(response_headers.OK_TRAILERS)

    async def _requests(self) -> AsyncIterator[bytes]:
        while True:
            before = self._reader.held_bytes
            message = self._reader.next()
            if message is not None:
                size, kept = before - self._reader.held_bytes, self._stream.kept_bytes
                self._has_message = True
                yield await self._decompressed(message) if self._reader.is_compressed else message
                self._around.connection.keep(self._stream, kept - self._stream.kept_bytes)
                self._around.connection.consumed(self._stream, size)
                self._around.flush()
            elif self._is_whole:
                if self._reader.held_bytes:
                    raise GrpcError(Status.INTERNAL, "the last message of the request is not whole")
                return
            else:
                self._make_room()
                self._more = asyncio.get_running_loop().create_future()
                await self._more

    async def _send(self, message: bytes) -> None:
        """Send an answer, and wait while many bytes of earlier ones are unsent."""
        stream = self._stream
        self._send_headers()
        self._around.connection.output.message(stream, framed(message))
        self._around.flush()
        while stream.pending_bytes > UNSENT_BYTES:
            self._room = asyncio.get_running_loop().create_future()
            await self._room


def exchange_of(
    method: Method, call: Call, stream: Stream, reader: MessageReader, around: Surroundings
) -> Exchange:
    """Return a new call of a method, which begins at once."""
    if isinstance(method, Streaming):
        return StreamExchange(call, stream, reader, around, method.handler)
    return UnaryExchange(call, stream, reader, around, method)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
