"""A sent request that waits for its reply, and the reply or the error that a program gets."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection
from typing import Any, Final, Generic, TypeVar

from sparrowmq.errors import ACCESS_EXCEPTION, AccessDenied, RemoteError, RemoteProtocolError
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Header, Request

log = logging.getLogger(__name__)

# 5.3 and later answer with the code of brokers that may only be read, and have no such beginning.
# (Java 5.3.3: DefaultAuthenticationHandler, AclAuthorizationHandler)
_ACCESS_CODE_OF_5: Final = 16
_ACCESS_REMARK_OF_5: Final = re.compile(
    "User:.* (has no permission to access|is not found|is disabled)|username cannot be null|check signature failed"
)
R = TypeVar("R", bound=Header)
AnswerCallback = Callable[["Response[Any] | None", "Exception | None"], object]


class Response(Generic[R]):
    """An answer. An accepted error code needs a valid header too; otherwise the result is a RemoteProtocolError."""

    __slots__ = ("body", "code", "header", "remark", "version")

    def __init__(self, code: int, header: R, remark: str | None, body: bytes, version: int) -> None:
        self.code = code
        self.header = header
        self.remark = remark
        self.body = body
        self.version = version


class RequestInFlight:
    """A sent request in flight, and the future or function that gets its result."""

    __slots__ = ("accepted_codes", "deadline", "request", "timeout_s", "waiter")

    def __init__(
        self,
        request: Request[Any],
        accepted_codes: Collection[int],
        waiter: asyncio.Future[Response[Any]] | AnswerCallback,
        deadline: float,
        timeout_s: float,
    ) -> None:
        self.request = request
        self.accepted_codes = accepted_codes
        self.waiter = waiter
        self.deadline = deadline
        self.timeout_s = timeout_s

    @property
    def is_abandoned(self) -> bool:
        waiter = self.waiter
        return isinstance(waiter, asyncio.Future) and waiter.done()

    @property
    def is_long_poll(self) -> bool:
        """Whether the peer may delay its answer, as for a pull or a pop."""
        return hasattr(self.request, "suspend_timeout_millis") or hasattr(self.request, "poll_time")

    def settle(self, reply: Command) -> None:
        if reply.code != 0 and reply.code not in self.accepted_codes:
            self.end(None, remote_error(reply.code, reply.remark))
            return
        try:
            header = reply.header(self.request.Reply)
        except RemoteProtocolError as error:
            self.end(None, error)
            return
        self.end(Response(reply.code, header, reply.remark, reply.body, reply.version or 0), None)

    def end(self, answer: Response[Any] | None, error: Exception | None) -> None:
        """Pass on the answer, or the error instead."""
        waiter = self.waiter
        if not isinstance(waiter, asyncio.Future):
            try:
                waiter(answer, error)
            except Exception:  # it would end the connection, and the other requests with it
                log.exception("the callback for the reply to %s failed", type(self.request).__name__)
        elif waiter.done():
            pass
        elif error is not None:
            waiter.set_exception(error)
        elif answer is not None:
            waiter.set_result(answer)


def remote_error(code: int, remark: str | None) -> RemoteError:
    """Return the error that a client raises for the code and the remark of a peer."""
    if code == 1 and remark and remark.startswith(ACCESS_EXCEPTION):
        return AccessDenied(remark)
    if code == _ACCESS_CODE_OF_5 and remark and _ACCESS_REMARK_OF_5.match(remark):
        return AccessDenied(remark, code)
    return RemoteError(code, remark)
