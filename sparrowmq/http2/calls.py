"""A gRPC server's methods, as their authors see them.

    def method(call, request: bytes) -> bytes                   a call with one request and one answer; answered at once
    def method(call, request: bytes) -> Pending                 ... answered later, without a task
    async def method(call, request: bytes) -> bytes             ... that may wait
    Streaming(method), with
    async def method(call, requests, send) -> None              any number of requests and answers

A method raises GrpcError to end its call with a status. If the client cancels the call, goes away, or its time is over,
the method's task is cancelled.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from sparrowmq.kernel.frame_layout import GrpcError as GrpcError


class Status(IntEnum):
    """Those codes of grpc-status that the server and its methods give."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


@dataclass(slots=True, eq=False)
class Caller:
    """The client of a connection. All calls of the connection have the same object.

    Attributes:
        host, port: as the socket has them, or the header of a proxy.
        certificate: the common name in its verified certificate.
        is_known: whether a call of it was allowed. The methods set this: the server knows no accounts.
        is_trusted: whether its last signature was right. The methods set this, too.
    """

    host: str = "?"
    port: int = 0
    certificate: str | None = None
    is_known: Callable[[], bool] = bool  # False
    is_trusted: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call.

    Attributes:
        method: its path, as `/package.Service/Method`.
        metadata: headers by their lower-case names; the last value of a repeated one.
        peer: the client.
        authority: the host and port that the client asked for.
        deadline: the time of `now` at which the client gives up; None if it waits forever.
    """

    method: str
    metadata: Mapping[str, str]
    peer: Caller
    authority: str = ""
    deadline: float | None = None
    now: Callable[[], float] = time.monotonic

    @property
    def time_left_s(self) -> float | None:
        """The time until the client gives up; None if it waits forever."""
        return None if self.deadline is None else max(0.0, self.deadline - self.now())


class Pending:
    """An answer that comes later, and for which no task waits: its method calls `answer` or `fail` once.

    If the client gives up before, the answer is dropped.

    Attributes:
        told: called with the answer or the error, once the method has returned; set by the server.
    """

    __slots__ = ("told",)

    def __init__(self) -> None:
        self.told: Callable[[bytes | None, Exception | None], object] | None = None

    def answer(self, message: bytes) -> None:
        if self.told is not None:
            self.told(message, None)

    def fail(self, error: Exception) -> None:
        if self.told is not None:
            self.told(None, error)


Unary: TypeAlias = Callable[[Call, bytes], bytes | Pending | Awaitable[bytes]]
Send: TypeAlias = Callable[..., Awaitable[None]]  # of any number of answers, in bytes
StreamHandler: TypeAlias = Callable[[Call, AsyncIterator[bytes], Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Streaming:
    """Marks a method that gets a stream of requests, or sends a stream of answers, or both.

    Attributes:
        may_be_silent: whether a client may send nothing for any time. Otherwise its first request has to come soon.
    """

    handler: StreamHandler
    may_be_silent: bool = False


Method: TypeAlias = Unary | Streaming
