"""The check that a socket only uses pages of its own session.

    the page      was drawn for a request, which had a session
    the socket    began with a request of a browser, which had a session, too

NiceGUI finds the page of an event by the id that the browser sends. It does not know sessions: without this check a
visitor who has seen the id of another visitor's page could press its buttons, and read what it shows. The same holds
for a request that continues a socket of another session by its id.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import parse_qs

from nicegui import Client, core
from socketio.exceptions import ConnectionRefusedError  # type: ignore[import-untyped]
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sparrowmq.console.login.sessions import Session
from sparrowmq.core.safe_text import shown

log = logging.getLogger(__name__)

_NAMESPACE: Final = "/"  # NiceGUI has one
# NiceGUI's browsers load the page again if their socket is refused with this text, and come to the log-in.
_LOAD_AGAIN: Final = "Implicit handshake failed"
# Raised by NiceGUI if a field of a message is missing, or of another type.
_BAD_FIELDS: Final = (AttributeError, LookupError, TypeError, ValueError)

Handler = Callable[..., Any]


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
        if scope["type"] in ("http", "websocket") and not _continues_own(HTTPConnection(scope)):
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            else:
                await PlainTextResponse("this socket belongs to another log-in\n", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _continues_own(request: HTTPConnection) -> bool:
    """Return whether a request continues no socket, or one of its own session."""
    environ = core.sio.environ.get(request.query_params.get("sid", ""))
    return environ is None or _session_in(environ) is request.state.session


def _on_connect(handler: Handler) -> Callable[..., Awaitable[Any]]:
    """Check the page that a new socket names in its address."""

    @wraps(handler)
    async def checked(sid: str, environ: Any = None, *rest: Any) -> Any:
        if environ is not core.sio.get_environ(sid):  # no browser sends a message that is called connect
            return False
        ident = parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [""])[0]
        if not may_use(environ, ident):
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
    async def checked(sid: str, *given: Any) -> Any:
        environ = core.sio.get_environ(sid) or {}
        session = _session_in(environ)
        name = session and session.name
        message = given[0] if given and isinstance(given[0], Mapping) else {}
        ident = message.get("client_id")
        if not isinstance(ident, str):
            log.warning("a socket of %s sends %s without a page", name, event)
        elif not may_use(environ, ident):
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


def may_use(environ: Mapping[str, Any], ident: str) -> bool:
    """Return whether a socket has the session of a page, which has not ended. An absent page does no harm."""
    page, session = Client.instances.get(ident), _session_in(environ)
    if page is None:
        return True
    return session is not None and session.is_alive and page.request.state.session is session


def _session_in(environ: Mapping[str, Any]) -> Session | None:
    session = environ.get("asgi.scope", {}).get("state", {}).get("session")
    return session if isinstance(session, Session) else None


async def _result(given: Any) -> Any:
    return await given if isawaitable(given) else given
