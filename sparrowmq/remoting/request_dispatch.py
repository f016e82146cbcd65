"""From a request to its handler, and from the handler's result to the reply.

    bytes -> Session -> Dispatcher: row = table[code]; header decoded into its struct; guard; handler; reply

`handler.py` says what a handler may return. Errors become replies here and in no other module; only `Unanswered`
becomes none. With access control, an `Audit` notes requests for administrators and denials.
Durations are measured only while metrics are read, or slow requests are logged (`LatencySwitch`).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from itertools import groupby
from typing import Any, Final, Protocol

import msgspec

from sparrowmq.core.logs import LogSettings
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
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import await_and_call, close_after
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Role, Row
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import ONEWAY_FLAG, Command
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.handler import (
    REQUESTS_BY_METHOD,
    Finished,
    PendingReply,
    Reply,
    ReplyWhenDurable,
    Result,
    Unanswered,
)
from sparrowmq.remoting.latencies import DENIED, LONG_STEP_S, Latencies, response_name
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Quotas
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
    """The handlers of one server, by request code: objects with methods marked by `handles`. `spawn` starts the
    coroutine of a handler that must wait. `guard` raises RemoteError if the caller lacks a permission. Raises:
    ValueError, a row of the role has no handler, or a code has two.
    """

    def __init__(self, role: Role, handlers: Iterable[object], spawn: Spawn, guard: Guard | None = None) -> None:
        # Gets the duration of each request. If it is None, the dispatcher does not read the clock.
        self.latencies: Latencies | None = None
        self.audit: Audit | None = None  # notes requests, if it is set
        self.quotas: Quotas | None = None  # refuse requests of callers that use too much
        # Returns the accounts by which the guard decides; another object after each change.
        self.rights: Callable[[], object] | None = None
        # The number of requests that got an error, by the reason.
        self.refused: Counter[str] = Counter(dict.fromkeys(_REASONS, 0))
        self._admit: Callable[[Session], object] = lambda _: None  # to the short way, after its first request
        self._routes = _collect_routes(handlers)
        self._spawn = spawn
        self._guard = guard
        self._answered_at = 0.0
        self._on_reply: Callable[[PendingReply, Reply | None, Exception | None], object] = self._finish_held
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
        latencies = self.latencies
        # The work of a send is the same for each, and two readings of the clock cost as much as a tenth of it.
        is_watched = latencies is not None and command.code != _SEND
        began = latencies.now() if latencies is not None and is_watched else 0.0
        header: Request[Any] | None = None
        audit_done: AuditDone | None = None
        denied = 0
        quotas = self.quotas if self.quotas is not None and self.quotas.is_on else None
        is_admission_over = True
        try:
            if quotas is not None:
                if session.applied_quotas is None:
                    quotas.admit(session.host, session.last_read)
                is_admission_over = False
            header = command.header(kind)
            if self._guard is not None:
                self._guard(session, command, BY_CODE[command.code], header)
            if quotas is not None:
                is_admission_over = True
                quotas.check(session, command, header)
            if not session.is_introduced:
                session.introduce(command)
                self._admit(session)
            if self.audit is not None and command.code in self.audit.codes:
                audit_done = self.audit.begin(session, command, header)
            result = method(header, command.body, session)
        except Exception as error:
            counted_error = error if is_admission_over else self._count_early_error(error, session, command, header)
            denied = DENIED if isinstance(counted_error, AccessDenied) else 0
            result = self.reply_to_error(counted_error, command, session, header)
        if latencies is not None and is_watched and latencies.now() - began > LONG_STEP_S:
            latencies.add_long_step(command.code)
        if isinstance(result, ReplyWhenDurable):
            if audit_done is not None:
                audit_done(ResponseCode.SUCCESS, None)
            self._reply_after(session, command, result)
        elif isinstance(result, Reply) or result is None or isinstance(result, Header):
            code = _send_answer(session, command, result)
            if audit_done is not None:
                audit_done(code, result.remark if isinstance(result, Reply) else None)
            if latencies is not None:
                self._add_latency(session, command, denied or code, latencies)
        elif isinstance(result, PendingReply):
            self._hold(session, command, result, session.last_read)
        else:
            self._wait_for(session, command, result, audit_done)

    def _add_latency(self, session: Session, command: Command, code: int, latencies: Latencies) -> None:
        now, began, others_end = latencies.now(), session.last_read, self._answered_at
        self._answered_at = now
        if latencies.add(command.code, code, now - began):
            steps = [("behind others of its connection", others_end), ("handled", now)]
            latencies.log_slow(command.code, session.address, began, steps)

    def _wait_for(
        self, session: Session, command: Command, result: Awaitable[Finished], audit_done: AuditDone | None
    ) -> None:
        began, latencies = session.last_read, self.latencies
        handled = 0.0 if latencies is None else latencies.now()
        waiting = await_and_call(result, partial(self._finish_later, session, command, began, handled, audit_done))
        session.hold(1, len(command.body))
        try:
            close_after(self._spawn(waiting), result)
        except (RuntimeError, ClientClosed):  # the server is stopping, and accepts no more tasks
            waiting.close()
            if inspect.iscoroutine(result):
                result.close()
            session.hold(-1, -len(command.body))
            session.reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, None, "the server is stopping")

    def _hold(self, session: Session, command: Command, pending_reply: PendingReply, began: float) -> None:
        command.body, command.ext = b"", _NO_FIELDS  # a thousand of them wait
        pending_reply.session, pending_reply.command, pending_reply.on_reply = session, command, self._on_reply
        if self.rights is not None:
            pending_reply.rights, pending_reply.accounts = self.rights, self.rights()
        pending_reply.began = began
        pending_reply.handled = 0.0 if self.latencies is None else self.latencies.now()
        session.hold_reply(pending_reply)

    def _finish_held(self, pending_reply: PendingReply, answer: Reply | None, error: Exception | None) -> None:
        session, command, pending_reply.on_reply = pending_reply.session, pending_reply.command, None
        if session is not None and command is not None:
            self._finish_later(session, command, pending_reply.began, pending_reply.handled, None, answer, error)

    def _reply_after(self, session: Session, command: Command, parked_reply: ReplyWhenDurable) -> None:
        """Collect the requests of one turn that wait. One wait is enough for one reply or for a thousand."""
        if not session.parked_replies:
            session.turn.answer(partial(self._answer_parked, session))
        parked_reply.command = command
        command.body = b""  # it is stored; while the disk is slow, memory would contain it twice
        session.parked_replies.append(parked_reply)

    def _answer_parked(self, session: Session) -> None:
        answers: list[ReplyWhenDurable] = session.parked_replies
        durability, latencies = answers[0].durability, self.latencies
        session.parked_replies = [answer for answer in answers if answer.durability is not durability]
        if session.parked_replies:
            answers = [answer for answer in answers if answer.durability is durability]
            session.turn.answer(partial(self._answer_parked, session))
        # The appends of a turn are made safe together, so the first waits no longer than the last.
        end = max([answer.end for answer in answers])
        # The replies are made now, while the disk is busy, and not later, when the peer waits only for them.
        replies = session.encode_replies(answers)
        burst = None if latencies is None else Burst(session, latencies)
        if durability.holds(end):
            session.write(replies)
            if burst is not None:
                burst.count(_count_codes(answers), burst.written)
        else:
            session.hold(len(answers))
            durability.when(end, partial(self._reply_parked, session, answers, replies, burst))

    def _reply_parked(
        self,
        session: Session,
        answers: list[ReplyWhenDurable],
        replies: list[Any],
        burst: Burst | None,
        error: BaseException | None,
    ) -> None:
        session.hold(-len(answers))
        code = 0
        if error is None:
            session.write(replies)
        for answer in answers if error is not None else ():
            if isinstance(error, NotSafeInTime):
                code = error.code
                self.refused[reason_of(error)] += 1
                session.reply(answer.command, code, answer.reply, str(error))
            elif error is not None:
                code = _send_answer(session, answer.command, self.reply_to_error(error, answer.command, session))
        if burst is not None:
            burst.count(_count_codes(answers), burst.now(), code)

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
        if isinstance(result, PendingReply):
            self._hold(session, command, result, began)
            return
        if isinstance(result, ReplyWhenDurable):
            self._reply_after(session, command, result)
            return
        if error is not None:
            result = self.reply_to_error(error, command, session)
        code = _send_answer(session, command, result)
        if audit_done is not None:
            audit_done(code, result.remark if isinstance(result, Reply) else None)
        if isinstance(error, AccessDenied):
            code = DENIED
        latencies = self.latencies
        if latencies is None:
            return
        now = latencies.now()
        if latencies.add(command.code, code, now - began, was_held=command.code in _LONG_POLLS):
            latencies.log_slow(command.code, session.address, began, [("handled", handled), ("waited", now)])

    def reply_to_error(
        self, error: BaseException, command: Command, session: Session, header: Request[Any] | None = None
    ) -> Reply:
        if self.audit is not None and isinstance(error, AccessDenied):
            self.audit.denied(session, command, header, error)
        if isinstance(error, Unanswered):
            command.flag |= ONEWAY_FLAG
            reason = error.__cause__ or error
            log.error("request %s from %s gets no answer: %s: %s", command.code, session.address, error, reason)
            error = reason
        self.refused[reason_of(error)] += 1
        return error_reply(error, command, session)

    def _count_early_error(
        self, error: Exception, session: Session, command: Command, header: Request[Any] | None
    ) -> Exception:
        """Count a request that got an error before its quotas were checked. Returns the error for its answer."""
        try:
            if self.quotas is not None:
                self.quotas.count_early_refusal(session, command, header, error)
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
        assert isinstance(error, RemoteError)
        session.reply(command, error.code, None, error.remark)


class Burst:
    """The times at which the waiting requests of one turn were read, handled and written, as the turn has them."""

    __slots__ = ("_latencies", "_peer", "began", "handled", "written")

    def __init__(self, session: Session, latencies: Latencies) -> None:
        turn = session.turn
        self._latencies = latencies
        self._peer = session.address
        self.began = session.last_read
        if turn.written_at >= self.began:
            self.handled, self.written = turn.handled_at, turn.written_at
        else:
            self.handled = self.written = latencies.now()

    def now(self) -> float:
        return self._latencies.now()

    def count(self, codes: Iterable[tuple[int, int]], end: float, response_code: int = 0) -> None:
        """Count requests that ended together: so many of each code."""
        took_s, total, is_slow, last_code = end - self.began, 0, False, 0
        for code, count in codes:
            is_slow = self._latencies.add(code, response_code, took_s, count) or is_slow
            total, last_code = total + count, code
        if is_slow:
            steps = [("handled", self.handled), ("written", self.written), ("until it was safe", end)]
            self._latencies.log_slow(last_code, self._peer, self.began, steps, total)


def _count_codes(answers: list[ReplyWhenDurable]) -> list[tuple[int, int]]:
    return [(code, len(list(run))) for code, run in groupby([answer.command.code for answer in answers])]


def _send_answer(session: Session, command: Command, answer: Header | Reply | None) -> int:
    if not isinstance(answer, Reply):
        session.reply(command, 0, answer)
        return 0
    body = answer.body
    if isinstance(body, Body):
        try:
            body = body.encode()
        except Exception as error:
            return _send_answer(session, command, error_reply(error, command, session))
    session.reply(command, answer.code, answer.header, answer.remark, body)
    return answer.code


def reason_of(error: BaseException) -> str:
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


class LatencySwitch:
    """Switches measuring on and off by the settings. `always`: measure even if slow requests are not logged, because
    metrics are read. `turn`: of the sessions, if they share one.
    """

    def __init__(self, settings: LogSettings, clock: Clock, *, always: bool, turn: Turn | None = None) -> None:
        self.latencies = Latencies(clock.monotonic)  # the measured latencies
        self._settings = settings
        self._always = always
        self._turn = turn
        self._dispatcher: Dispatcher | None = None

    def begin(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.apply_settings(self._settings)

    def apply_settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self.latencies.set_slow_s(settings.slow_request_ms / 1000)
        is_on = self._always or settings.slow_request_ms > 0
        if self._dispatcher is not None:
            self._dispatcher.latencies = self.latencies if is_on else None
        if self._turn is not None:
            self._turn.now = self.latencies.now if is_on else None
