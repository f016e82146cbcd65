"""The calls of one connection: the messages of a request go to its method, and the answers or the error to the client.

    UnaryExchange     the method is called when the request is complete; bytes that it returns leave in the same turn; a
                      `Pending` answers later, and for something else a task waits
    StreamExchange    the method runs as a task from the start. The task takes messages out of the body when the method
                      asks for one, and the client's window grows only then

A method's task ends with its call: `ended` cancels it, as does the client's time limit.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sparrowmq.http2.calls import Call, GrpcError, Pending, Status, StreamHandler, Unary
from sparrowmq.kernel.answers import Stream
from sparrowmq.kernel.http2 import Http2
from sparrowmq.loop.slices import pause
from sparrowmq.loop.tasks import close_after

log = logging.getLogger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

UNSENT_BYTES: Final = 8 << 20  # of a stream, before `send` waits: more than a receive finds, so its method ends
_BROKEN: Final = "the server failed to handle the call; its log says why"
_GZIP: Final = 31  # zlib's number for its header


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of the calls of one connection.

    Attributes:
        spawn: starts a method's task.
        flush: has the connection write its output soon.
        inflating: of the server: one message after the other is decompressed.
        message_bytes: of the largest message.
        tasks: the calls that have tasks, by the numbers of their streams.
        blocked: those of them that wait until answers are sent.
    """

    http2: Http2
    spawn: Spawn
    flush: Callable[[], object]
    inflating: asyncio.Lock
    message_bytes: int
    tasks: dict[int, Exchange] = field(default_factory=dict)
    blocked: set[Exchange] = field(default_factory=set)


class Exchange:
    """A call in progress."""

    __slots__ = ("_around", "_call", "_stream", "_task")

    def __init__(self, call: Call, stream: Stream, around: Surroundings) -> None:
        self._call = call
        self._stream = stream
        self._around = around
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """More of the request is here, or answers were sent."""

    def ended(self) -> None:
        """The stream has ended: the method's work is wanted no more."""
        self._around.blocked.discard(self)
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Raises: GrpcError, the server is stopping."""
        self._task = self._around.spawn(work)
        self._around.tasks[self._stream.stream_id] = self

    def _finish(self, error: BaseException | None) -> None:
        """End the call, with the exception of its method if there is one."""
        stream, around = self._stream, self._around
        around.tasks.pop(stream.stream_id, None)
        if error is None:
            around.http2.finish(stream)
        elif isinstance(error, GrpcError):
            around.http2.fail(stream, error.code, error.message)
        else:
            log.error("the call %s of %s failed", self._call.method, self._call.peer, exc_info=error)
            around.http2.fail(stream, Status.INTERNAL, _BROKEN)
        around.flush()

    async def _decompressed(self, message: bytes) -> bytes:
        """Decompress a message beside the loop: 16 KB may take 20 ms. Raises: GrpcError."""
        async with self._around.inflating:
            plain = await asyncio.to_thread(decompressed, message, self._around.message_bytes)
        self._around.http2.keep(self._stream, len(plain))
        self._around.flush()
        return plain


class UnaryExchange(Exchange):
    """A call of one request and one answer."""

    __slots__ = ("_method",)

    def __init__(self, call: Call, stream: Stream, around: Surroundings, method: Unary) -> None:
        super().__init__(call, stream, around)
        self._method = method

    def begin(self) -> None:
        message = self._stream.message
        assert message is not None, "the request is whole"
        if self._stream.is_compressed:
            self._start(self._handle_compressed(message))
        else:
            self._handle(message)

    async def _handle_compressed(self, message: bytes) -> None:
        try:
            message = await self._decompressed(message)
        except GrpcError as error:
            self._finish(error)
        else:
            self._handle(message)

    def _handle(self, message: bytes) -> None:
        try:
            result = self._method(self._call, message)
        except Exception as error:
            self._finish(error)
            return
        if isinstance(result, bytes):
            self._settled(result, None)
        elif isinstance(result, Pending):
            result.told = self._settled
        else:
            self._wait_for(result)

    def _wait_for(self, result: Awaitable[bytes]) -> None:
        try:
            self._start(self._wait(result))
        except GrpcError as error:
            self._finish(error)
            if isinstance(result, Coroutine):
                result.close()
            return
        assert self._task is not None
        close_after(self._task, result)

    async def _wait(self, result: Awaitable[bytes]) -> None:
        try:
            answer = await result
        except Exception as error:
            self._settled(None, error)
        else:
            self._settled(answer, None)

    def _settled(self, message: bytes | None, error: Exception | None) -> None:
        if message is None:
            self._finish(error)
            return
        around = self._around
        around.http2.answer(self._stream, message)
        around.tasks.pop(self._stream.stream_id, None)
        around.flush()


class StreamExchange(Exchange):
    """A call with a stream of requests, of answers, or both."""

    __slots__ = ("_wakening",)

    def __init__(self, call: Call, stream: Stream, around: Surroundings) -> None:
        super().__init__(call, stream, around)
        self._wakening: asyncio.Future[None] | None = None  # of the task, which waits for requests or for room

    def begin(self, method: StreamHandler) -> None:
        try:
            self._start(self._run(method))
        except GrpcError as error:
            self._finish(error)

    def wake(self) -> None:
        if self._wakening is not None and not self._wakening.done():
            self._wakening.set_result(None)

    async def _sleep(self) -> None:
        self._wakening = asyncio.get_running_loop().create_future()
        await self._wakening

    async def _run(self, method: StreamHandler) -> None:
        try:
            await method(self._call, self._requests(), self._send)
        except Exception as error:
            self._finish(error)
        else:
            self._finish(None)

    async def _requests(self) -> AsyncIterator[bytes]:
        http2, stream = self._around.http2, self._stream
        while True:
            message = http2.next_message(stream)
            if message is not None:
                yield await self._decompressed(message) if stream.is_compressed else message
                http2.release(stream)
                self._around.flush()
                if stream.body:  # a window may hold thousands of messages that cost no wait
                    await pause()
            elif stream.has_peer_ended:
                return
            else:
                self._around.flush()  # the client may have to send the rest of a large message
                await self._sleep()

    async def _send(self, *messages: bytes) -> None:
        """Send answers, in as few frames as they need, and wait while many bytes of earlier ones are unsent."""
        around, stream = self._around, self._stream
        around.http2.send(stream, messages)
        around.flush()
        while stream.pending_bytes > UNSENT_BYTES:
            around.blocked.add(self)
            await self._sleep()
        around.blocked.discard(self)


def decompressed(message: bytes, most_bytes: int) -> bytes:
    """Decompress a message. Raises: GrpcError, it cannot be decompressed, or is too large."""
    try:
        inflater = zlib.decompressobj(_GZIP)
        whole = inflater.decompress(message, most_bytes + 1)
    except zlib.error as error:
        raise GrpcError(Status.INTERNAL, f"a message cannot be decompressed: {error}") from None
    if len(whole) > most_bytes:
        raise GrpcError(Status.RESOURCE_EXHAUSTED, f"a message is larger than {most_bytes} bytes; send smaller ones")
    if not inflater.eof:
        raise GrpcError(Status.INTERNAL, "a compressed message ends too soon")
    return whole
