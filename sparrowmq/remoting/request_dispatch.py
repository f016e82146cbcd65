"""From a request to its handler, and from the handler's result to the reply.

    bytes -> Session -> Dispatcher: row = table[code]; header decoded into its struct; guard; handler; reply

`handler.py` says what a handler may return. Errors become replies here and in no other module; only `Unanswered`
becomes none. With access control, an `Audit` notes requests for administrators and denials.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from sparrowmq.core.safe_text import without_folders
from sparrowmq.errors import (
    AccessDenied,
    ClientClosed,
    DiskFull,
    NotSafeInTime,
    OutOfResources,
    RemoteError,
    SparrowError,
    StoreFailed,
)
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import await_and_call, close_after
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Role, Row
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.handler import (
    REQUESTS_BY_METHOD,
    Finished,
    PendingReply,
    PendingRequest,
    Reply,
    ReplyWhenDurable,
    Result,
    Unanswered,
)
from sparrowmq.remoting.latencies import DENIED, LONG_STEP_S, Latencies, response_name
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.reply_queue import ReplyQueue
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

Guard = Callable[[Peer, Command, Row, Request[Any]], None]
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
# These requests wait on purpose when there is nothing to return yet.
_LONG_POLLS: Final = frozenset(
    {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION}
)

# The reasons under which errors count; another RemoteError counts under the name of its code.
_REASON_BY_ERROR: Final = {
    AccessDenied: "access_denied",
    OutOfResources: "out_of_resources",
    DiskFull: "disk_full",
    StoreFailed: "store_failed",
}
_UNKNOWN: Final = "unknown_request"
_INVALID: Final = "invalid_request"
_BUG: Final = "internal_error"
_REASONS: Final = (*_REASON_BY_ERROR.values(), _UNKNOWN, _INVALID, _BUG, "system_busy", "service_not_available")

_NO_FIELDS: Final = msgspec.Raw(b"")

AuditDone = Callable[[int, str | None], None]


class Audit(Protocol):
    """Notes requests (auth/audit_log.py)."""

    codes: frozenset[int]  # the requests of which every answer is noted

    def begin(self, peer: Peer, command: Command, header: Request[Any]) -> AuditDone:
        """Note a request that is handled now. The result is called with the answer's code and remark."""

    def denied(self, peer: Peer, command: Command, header: Request[Any] | None, error: AccessDenied) -> None:
        """Note a denial."""


class Dispatcher:
    """The handlers of one server, by request code: objects with methods marked by `handles`. Raises: ValueError, a row
    of the role has no handler, or a code has two.

    Args:
        spawn: starts the coroutine of a handler that must wait.
        guard: raises RemoteError if the caller lacks a permission.
        rights: returns the accounts by which the guard decides; another object after each change.
        latencies: gets the duration of each request.
        quotas: refuse requests of callers that use too much.
    """

    def __init__(
        self,
        role: Role,
        handlers: Iterable[object],
        spawn: Spawn,
        guard: Guard | None = None,
        *,
        rights: Callable[[], object] = lambda: None,
        audit: Audit | None = None,
        latencies: Latencies | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.audit = audit
        self.latencies = latencies or Latencies()
        # The number of requests that got an error, by the reason.
        self.refused: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self.replies = ReplyQueue(self.latencies, self.reply_to_error)
        self._rights = rights
        self._quotas = quotas or Quotas(SystemClock())
        self._admit: Callable[[Session], object] = lambda _: None  # to the short way, after its first request
        self._routes = _collect_routes(handlers)
        self._spawn = spawn
        self._guard = guard
        self._answered_at = 0.0
        unserved = [row.name for row in ROWS if row.served_by & role and row.code not in self._routes]
        if unserved:
            raise ValueError(f"no handler for {', '.join(unserved)}")

    def use_short_way(self, admit: Callable[[Session], object]) -> None:
        """Have `admit` called with each connection after its first allowed request."""
        self._admit = admit

    def __call__(self, session: Session, command: Command) -> None:
        """Handle one request; never raises."""
        route = self._routes.get(command.code)
        if route is None:
            self._refuse_unknown(session, command)
            return
        kind, method = route
        # The work of a send is the same for each, and two readings of the clock cost as much as a tenth of it.
        is_watched = command.code != _SEND
        began = session.monotonic() if is_watched else 0.0
        header: Request[Any] | None = None
        error: Exception | None = None
        result: Result = None
        audit_done: AuditDone | None = None
        quotas = self._quotas
        is_early = False
        try:
            if quotas.is_on and session.applied_quotas is None:
                quotas.admit(session.host, session.last_read)
            is_early = True
            header = command.header(kind)
            if self._guard is not None:
                self._guard(session, command, BY_CODE[command.code], header)
            is_early = False
            if quotas.is_on:
                quotas.check(session, command, header)
            if not session.is_introduced:
                session.introduce(command)
                self._admit(session)
            if self.audit is not None and command.code in self.audit.codes:
                audit_done = self.audit.begin(session, command, header)
            result = method(header, command.body, session)
        except Exception as raised:
            error = self._count_early_error(raised, session, command, header) if is_early else raised
        if is_watched and session.monotonic() - began > LONG_STEP_S:
            self.latencies.add_long_step(command.code)
        if result is None or isinstance(result, (Reply, Header, ReplyWhenDurable, PendingReply)):
            self._finish(session, command, session.last_read, None, audit_done, result, error, header)
        else:
            self._wait_for(session, command, result, audit_done)

    def _finish(
        self,
        session: Session,
        command: Command,
        began: float,
        handled: float | None,
        audit_done: AuditDone | None,
        result: Finished,
        error: Exception | None,
        header: Request[Any] | None = None,
    ) -> None:
        """Send the reply, or let it wait. `handled` is the time since which the request has waited, if it has."""
        if isinstance(result, PendingReply):
            self._hold(session, command, result, began, audit_done)
            return
        code, remark = 0, None
        if isinstance(result, ReplyWhenDurable):
            self.replies.add(session, command, result)
        else:
            if error is not None:
                result = self.reply_to_error(error, command, session, header)
            code, remark = _send_reply(session, command, result), result.remark if isinstance(result, Reply) else None
            self._count(session, command, DENIED if isinstance(error, AccessDenied) else code, began, handled)
        if audit_done is not None:
            audit_done(code, remark)

    def _count(self, session: Session, command: Command, code: int, began: float, handled: float | None) -> None:
        now, others_end = session.monotonic(), self._answered_at
        if handled is None:
            self._answered_at = now
            steps = [("behind others of its connection", others_end), ("handled", now)]
        else:
            steps = [("handled", handled), ("waited", now)]
        was_held = handled is not None and command.code in _LONG_POLLS
        if self.latencies.add(command.code, code, now - began, was_held=was_held):
            self.latencies.log_slow(command.code, session.address, began, steps)

    def _wait_for(
        self, session: Session, command: Command, result: Awaitable[Finished], audit_done: AuditDone | None
    ) -> None:
        finish = partial(self._finish_later, session, command, session.last_read, session.monotonic(), audit_done)
        waiting = await_and_call(result, finish)
        session.hold(1, len(command.body))
        try:
            close_after(self._spawn(waiting), result)
        except (RuntimeError, ClientClosed):  # the server is stopping, and accepts no more tasks
            waiting.close()
            if inspect.iscoroutine(result):
                result.close()
            session.hold(-1, -len(command.body))
            session.reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, None, "the server is stopping")

    def _hold(
        self, session: Session, command: Command, reply: PendingReply, began: float, audit_done: AuditDone | None
    ) -> None:
        command.body, command.ext = b"", _NO_FIELDS  # a thousand of them wait
        finish = partial(self._finish_later, session, command, began, session.monotonic(), audit_done)
        reply.request = PendingRequest(session, command, self._rights, self._rights(), finish)
        session.hold_reply(reply)

    def _finish_later(
        self,
        session: Session,
        command: Command,
        began: float,
        handled: float,
        audit_done: AuditDone | None,
        result: Finished,
        error: Exception | None,
    ) -> None:
        session.hold(-1, -len(command.body))
        self._finish(session, command, began, handled, audit_done, result, error)

    def reply_to_error(
        self,
        error: BaseException,
        command: Command,
        session: Session,
        header: Request[Any] | None = None,
        times: int = 1,
    ) -> Reply:
        """Count an error that so many requests got, and return the reply to each."""
        if self.audit is not None and isinstance(error, AccessDenied):
            self.audit.denied(session, command, header, error)
        if isinstance(error, Unanswered):
            command.flag |= ONEWAY_FLAG
            reason = error.__cause__ or error
            log.error("request %s from %s gets no answer: %s: %s", command.code, session.address, error, reason)
            error = reason
        self.refused[_reason_of(error)] += times
        return error_reply(error, command, session)

    def _count_early_error(
        self, error: Exception, session: Session, command: Command, header: Request[Any] | None
    ) -> Exception:
        """Count a request that got an error before its quotas were checked. Returns the error for its answer."""
        try:
            self._quotas.count_early_refusal(session, command, header, error)
        except RemoteError as used_up:
            return used_up
        return error

    def _refuse_unknown(self, session: Session, command: Command) -> None:
        self.refused[_UNKNOWN] += 1
        row = BY_CODE.get(command.code)
        reason = f"{row.name} is not served here: {row.unserved or 'ask another server'}" if row else "unknown code"
        remark = f"request code {command.code} is not supported ({reason})"
        unknown = RemoteError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        error = self._count_early_error(unknown, session, command, None)
        _send_reply(session, command, error_reply(error, command, session))


def _send_reply(session: Session, command: Command, answer: Header | Reply | None) -> int:
    if not isinstance(answer, Reply):
        session.reply(command, 0, answer)
        return 0
    body = answer.body
    if isinstance(body, Body):
        try:
            body = body.encode()
        except Exception as error:
            return _send_reply(session, command, error_reply(error, command, session))
    session.reply(command, answer.code, answer.header, answer.remark, body)
    return answer.code


def _reason_of(error: BaseException) -> str:
    for kind, reason in _REASON_BY_ERROR.items():
        if isinstance(error, kind):
            return reason
    if isinstance(error, RemoteError | NotSafeInTime):
        return response_name(error.code)
    return _INVALID if isinstance(error, SparrowError) else _BUG


def error_reply(error: BaseException, command: Command, session: Session) -> Reply:
    """Return the reply for an error, which names files without their folders. Bugs in SparrowMQ are logged with their
    trace.
    """
    if isinstance(error, RemoteError):
        return Reply(error.code, None, error.remark and without_folders(error.remark))
    if isinstance(error, NotSafeInTime):
        return Reply(error.code, None, str(error))
    if isinstance(error, StoreFailed | DiskFull):
        return Reply(ResponseCode.SERVICE_NOT_AVAILABLE, None, without_folders(str(error)))
    if isinstance(error, SparrowError):
        return Reply(ResponseCode.SYSTEM_ERROR, None, without_folders(str(error)))
    log.error("request %s from %s failed", command, session.address, exc_info=error)
    return Reply(ResponseCode.SYSTEM_ERROR, None, f"internal error ({type(error).__name__}); see the log")


def _collect_routes(handlers: Iterable[object]) -> dict[int, tuple[type[Request[Any]], Callable[..., Result]]]:
    routes: dict[int, tuple[type[Request[Any]], Callable[..., Result]]] = {}
    for handler in handlers:
        for name, method in vars(type(handler)).items():
            for kind in REQUESTS_BY_METHOD.get(method, ()) if callable(method) else ():
                if kind.code in routes:
                    raise ValueError(f"two handlers for {RequestCode(kind.code).name}")
                routes[kind.code] = (kind, getattr(handler, name))
    return routes
