"""One call: the messages of its request go to the method, and the answers or the error of the method to the client.

    Unary        the method is called when the request is complete; bytes that it returns leave in the same turn; a
                 `Pending` answers later, and for something else a task waits
    Streaming    the method runs as a task from the start (stream_exchange.py)

A method's task ends with its call: `ended` cancels it, as does the client's time limit. This module is compiled, so
`exchange_tasks` has its coroutines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sparrowmq.http2 import exchange_tasks, response_headers
from sparrowmq.http2.calls import Call, GrpcError, Pending, Status, Unary
from sparrowmq.http2.connection import Connection
from sparrowmq.http2.deadlines import Deadlines
from sparrowmq.http2.grpc_wire import MessageReader, framed
from sparrowmq.http2.streams import Stream
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import close_after

log = logging.getLogger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

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
    deadlines: Deadlines


class Exchange:
    """A call in progress.

    Attributes:
        changed_at: when bytes of the request last came.
        around, reader, stream: its surroundings, the bytes of its request, and its stream.
    """

    def __init__(self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings) -> None:
        self.changed_at = around.clock.monotonic()
        self._call = call
        self.stream = stream
        self.reader = reader
        self.around = around
        self._task: asyncio.Task[None] | None = None
        self._deadline = -1  # its step of `deadlines`
        self._is_whole = False  # the client sends no more
        self._has_headers = False  # of the answer
        self._has_message = False  # the client has sent one, or need not
        left_s = call.time_left_s
        if left_s is not None:
            self._deadline = around.deadlines.add(self, left_s)

    def body(self, data: bytes, is_end: bool) -> None:
        if self.stream.is_closed:
            return
        self.changed_at = self.around.clock.monotonic()
        self._is_whole = is_end
        self.reader.add(data)
        try:
            self._received()
        except GrpcError as error:
            self.fail(error.code, error.message)

    def ended(self) -> None:
        """The stream has ended: the method's work is wanted no more."""
        if self._deadline >= 0:
            self.around.deadlines.drop(self, self._deadline)
            self._deadline = -1
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def drained(self) -> None:
        """All answers so far are sent."""

    @property
    def is_unfinished(self) -> bool:
        """Whether the client owes the rest of a message."""
        has_begun = self.reader.held_bytes > 0 or not self._has_message
        return not self._is_whole and has_begun and self.reader.missing_bytes() > 0

    def fail(self, code: int, message: str) -> None:
        """End the call with an error."""
        self._finish(response_headers.trailers(code, message))

    @property
    def inflating(self) -> asyncio.Lock:
        return self.around.inflating

    def grew(self, count: int) -> None:
        """Count a message that was decompressed to so many bytes."""
        self.around.connection.keep(self.stream, count)
        self.around.flush()

    def _received(self) -> None:
        """More of the request is here. Raises: GrpcError."""
        raise NotImplementedError

    def _finish(self, trailers: bytes) -> None:
        if self.stream.is_closed:
            return
        block = trailers if self._has_headers else response_headers.GRPC_HEADERS + trailers
        self.around.connection.output.end(self.stream, block)
        self.around.flush()

    def _send_headers(self) -> None:
        if not self._has_headers:
            self._has_headers = True
            self.around.connection.output.headers(self.stream, response_headers.GRPC_HEADERS)

    def _make_room(self) -> None:
        """Let the client send the rest of a large message. Raises: GrpcError, it is too large."""
        if not self._is_whole:
            self.around.connection.expects(self.stream, self.reader.missing_bytes())

    def time_is_over(self) -> None:
        self._deadline = -1
        self.fail(Status.DEADLINE_EXCEEDED, _LATE)

    def broke(self, error: BaseException) -> None:
        """Report the exception of a method."""
        if isinstance(error, GrpcError):
            self.fail(error.code, error.message)
            return
        log.error("the call %s of %s failed", self._call.method, self._call.peer, exc_info=error)
        self.fail(Status.INTERNAL, _BROKEN)


class UnaryExchange(Exchange):
    """A call of one request and one answer."""

    def __init__(self, call: Call, stream: Stream, reader: MessageReader, around: Surroundings, method: Unary) -> None:
        super().__init__(call, stream, reader, around)
        self._method = method

    @property
    def is_unfinished(self) -> bool:
        return not self._is_whole

    def _received(self) -> None:
        if not self._is_whole:
            self._make_room()
            return
        message = self.reader.next()
        if message is None or self.reader.held_bytes:
            raise GrpcError(Status.INTERNAL, "the request is not exactly one message")
        if self.reader.is_compressed:
            self._task = self.around.spawn(exchange_tasks.handle_compressed(self, message))
        else:
            self.handle(message)

    def handle(self, message: bytes) -> None:
        """Call the method."""
        try:
            result = self._method(self._call, message)
        except Exception as error:
            self.broke(error)
            return
        if isinstance(result, bytes):
            self.answer(result)
        elif isinstance(result, Pending):
            result.told = self._settled
        else:
            self._wait_for(result)

    def _wait_for(self, result: Awaitable[bytes]) -> None:
        try:
            self._task = task = self.around.spawn(exchange_tasks.wait(self, result))
        except GrpcError as error:
            self.broke(error)
            if isinstance(result, Coroutine):
                result.close()
            return
        close_after(task, result)

    def answer(self, message: bytes) -> None:
        """Send the answer."""
        if not self.stream.is_closed:
            self._send_headers()
            self.around.connection.output.message(self.stream, framed(message))
            self._finish(response_headers.OK_TRAILERS)

    def _settled(self, message: bytes | None, error: Exception | None) -> None:
        if message is not None:
            self.answer(message)
        elif error is not None:
            self.broke(error)
