"""The sessions of visitors, and the check that a socket only uses pages of its own session.

A signed cookie names a session, which ends with the log-out, after half a day, or when its user changes:

    cookie  id.signature      id: 32 random bytes; the signature is HMAC-SHA256 with a key made at each start

The signature alone shows that a cookie is forged. A restart of the console ends all sessions.

    the page      was drawn for a request, which had a session
    the socket    began with a request of a browser, which had a session, too

NiceGUI finds the page of an event by the id that the browser sends. It does not know sessions: without this check a
visitor who has seen the id of another visitor's page could press its buttons, and read what it shows. The same holds
for a request that continues a socket of another session by its id.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import isawaitable
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from nicegui import Client, core
from socketio.exceptions import ConnectionRefusedError  # type: ignore[import-untyped]
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sparrowmq.console.users import Role
from sparrowmq.core.safe_text import shown
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)
SESSION_S: Final = 12 * 3600.0
_MAX_SESSIONS: Final = 1000  # sessions; the oldest makes room
_MAX_SESSIONS_OF_USER: Final = 50  # so one user cannot end the sessions of all others
_MAX_NOTICES: Final = 20  # that wait for a page
_NAMESPACE: Final = "/"  # NiceGUI has one
# NiceGUI's browsers load the page again if their socket is refused with this text, and come to the log-in.
_LOAD_AGAIN: Final = "Implicit handshake failed"
# Raised by NiceGUI if a field of a message is missing, or of another type.
_BAD_FIELDS: Final = (AttributeError, LookupError, TypeError, ValueError)
Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Notice:
    """The result of an action, or the reason of its failure."""

    text: str
    is_failure: bool = False


class OpenPage(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether a browser still shows it."""

    def show(self, notice: Notice) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class Session:
    name: str
    role: Role
    ends_s: float  # by the clock's `monotonic`
    is_alive: bool = True
    pages: list[OpenPage] = field(default_factory=list)  # open ones, the newest last; they are closed when it ends
    # Notices for the next page, because no page was open.
    waiting_notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=_MAX_NOTICES))

    def may(self, role: Role) -> bool:
        return self.is_alive and self.role >= role

    def notify(self, notice: Notice, source: OpenPage) -> None:
        """Show a notice on the page where it arose; or, if the visitor has left that page, on the page that follows."""
        page = next((page for page in (source, *reversed(self.pages)) if page.is_open), None)
        if page is not None:
            page.show(notice)
        else:
            self.waiting_notices.append(notice)

    def add_page(self, page: OpenPage) -> None:
        """Add a page, and show there what waits."""
        self.pages.append(page)
        while self.waiting_notices:
            page.show(self.waiting_notices.popleft())

    def remove_page(self, page: OpenPage) -> None:
        if page in self.pages:
            self.pages.remove(page)


class Sessions:
    """All sessions, by id, the oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, name: str, role: Role) -> str:
        """A new session; returns its cookie."""
        self.sweep()
        own_ids = [session_id for session_id, session in self._sessions.items() if session.name == name]
        if len(own_ids) >= _MAX_SESSIONS_OF_USER:
            self._end(own_ids[0])
        elif len(self._sessions) >= _MAX_SESSIONS:
            self._end(next(iter(self._sessions)))
        session_id = secrets.token_hex(32)
        self._sessions[session_id] = Session(name, role, self._clock.monotonic() + SESSION_S)
        return f"{session_id}.{self._signature(session_id)}"

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, if the cookie is valid and the session has not ended."""
        session_id = self._session_id_in(cookie)
        session = self._sessions.get(session_id) if session_id is not None else None
        if session is not None and session.ends_s <= self._clock.monotonic():
            self.sweep()
            return None
        return session

    def end(self, cookie: str | None) -> None:
        session_id = self._session_id_in(cookie)
        if session_id in self._sessions:
            self._end(session_id)

    def end_sessions_of(self, names: Collection[str]) -> None:
        for session_id in [session_id for session_id, session in self._sessions.items() if session.name in names]:
            self._end(session_id)

    def sweep(self) -> None:
        """End the sessions whose time is over."""
        now_s = self._clock.monotonic()
        for session_id in [session_id for session_id, session in self._sessions.items() if session.ends_s <= now_s]:
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id)
        session.is_alive = False
        for page in session.pages:
            page.close()

    def _session_id_in(self, cookie: str | None) -> str | None:
        session_id, _, signature = (cookie or "").partition(".")
        is_ours = hmac.compare_digest(signature.encode(), self._signature(session_id).encode())
        return session_id if is_ours else None

    def _signature(self, session_id: str) -> str:
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()


class BoundSockets:
    """An ASGI application before NiceGUI's: a request may continue only a socket of its own session."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        handlers = core.sio.handlers[_NAMESPACE]
        for event, handler in handlers.items():
            if not hasattr(handler, "__wrapped__"):
                check = _CHECKS.get(event)
                handlers[event] = check(handler) if check is not None else _on_event(event, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            request = HTTPConnection(scope)
            environ = core.sio.environ.get(request.query_params.get("sid", ""))
            if environ is not None and _session_in(environ) is not request.state.session:
                if scope["type"] == "websocket":
                    await receive()
                    await send({"type": "websocket.close", "code": 1008})
                else:
                    await PlainTextResponse("this socket belongs to another log-in\n", 403)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _on_connect(handler: Handler) -> Callable[..., Awaitable[Any]]:
    """Check the page that a new socket names in its address."""

    @wraps(handler)
    async def checked(sid: str, environ: Any = None, *rest: Any) -> Any:
        if environ is not core.sio.get_environ(sid):  # no browser sends a message that is called connect
            return False
        page_id = parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [""])[0]
        if not may_use(environ, page_id):
            raise ConnectionRefusedError(_LOAD_AGAIN)
        return await _result(handler(sid, environ, *rest))

    return checked


def _on_disconnect(handler: Handler) -> Callable[..., Awaitable[Any]]:
    """Leave out what a message says that is called disconnect."""

    @wraps(handler)
    async def checked(sid: str, *_: Any) -> Any:
        return await _result(handler(sid))

    return checked


_CHECKS: Final = {"connect": _on_connect, "disconnect": _on_disconnect}


def _on_event(event: str, handler: Handler) -> Callable[..., Awaitable[Any]]:
    """Check the page that a message names, and its fields."""

    @wraps(handler)
    async def checked(sid: str, *args: Any) -> Any:
        environ = core.sio.get_environ(sid) or {}
        session = _session_in(environ)
        name = session and session.name
        message = args[0] if args and isinstance(args[0], Mapping) else {}
        page_id = message.get("client_id")
        if not isinstance(page_id, str):
            log.warning("a socket of %s sends %s without a page", name, event)
        elif not may_use(environ, page_id):
            log.warning("a socket of %s may not send %s to a page of another log-in", name, event)
        elif event == "log":
            log.warning("a page of %s says: %s", name, shown(message.get("message")))
        else:
            try:
                return await _result(handler(sid, message))
            except _BAD_FIELDS as error:
                log.warning("a socket of %s sends %s that cannot be read: %s", name, event, shown(repr(error)))
        return False

    return checked


def may_use(environ: Mapping[str, Any], page_id: str) -> bool:
    """Return whether a socket has the session of a page, which has not ended. An absent page does no harm."""
    page, session = Client.instances.get(page_id), _session_in(environ)
    if page is None:
        return True
    return session is not None and session.is_alive and page.request.state.session is session


def _session_in(environ: Mapping[str, Any]) -> Session | None:
    session = environ.get("asgi.scope", {}).get("state", {}).get("session")
    return session if isinstance(session, Session) else None


async def _result(result: Any) -> Any:
    return await result if isawaitable(result) else result
