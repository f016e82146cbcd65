"""The check before every page: the session of the visitor, and the origin of the request.

    /login, /logout        served here
    /healthz               "ok", to anybody
    everything else        needs a session; a browser without one is sent to the log-in page, anything else gets 401

Changes come over the web socket or by POST, and a browser names the page that sends them. A foreign `Origin` is
refused, also where a page only reads: Socket.IO lets pages of all origins read its answers. So no other site, and no
other port of this machine, can use a visitor's cookie. Answers forbid frames, and loading anything from other sites.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import ceil
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.login import known_browsers, login_page
from sparrowmq.console.login.login_attempts import Attempts
from sparrowmq.console.login.sessions import LIFE_S, Session, Sessions
from sparrowmq.console.users import Account, Role
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)

_LONGEST_FORM: Final = 8192
FORM_S: Final = 10.0
_CHECKS_AT_ONCE: Final = 2  # each takes 16 MiB
_SECURITY: Final = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "object-src 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
_FOREIGN: Final = (
    "this comes from another site. If a proxy is in front of the console, give its address with --trusted-proxy, and "
    "let the proxy pass on Host, or set X-Forwarded-Host\n"
)
_WRONG: Final = "The user or the password is wrong."


class Guard:
    """An ASGI application before another one, which finds the visitor's session in `scope["state"]`."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, clock: Clock) -> None:
        self.sessions = Sessions(clock)
        self._app = app
        self._settings = settings
        self._attempts = Attempts(clock)
        self._lines = LogLimit(clock)
        self._checking = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._clock = clock
        self._cookie = f"sparrowmq_{settings.port}"
        self._browser_cookie = f"sparrowmq_known_{settings.port}"

    def renew(self) -> None:
        """End the sessions whose time is over, or whose user has gone or has another role or password."""
        self.sessions.sweep()
        try:
            self.sessions.end_of(self._settings.accounts.renew())
        except ConfigError as error:
            log.warning("the users stay as they were: %s", error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._web_socket(scope, receive, send)
        else:
            await self._http(scope, receive, _secured(send))

    async def _web_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        session = self.sessions.find(self._cookie_of(headers))
        if session is None or not is_from_here(headers, changes=True):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(_with(scope, session), receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = self._path(request)
        session = self.sessions.find(self._cookie_of(request.headers))
        if path == "/healthz":
            response: Response = PlainTextResponse("ok\n")
        elif not is_from_here(request.headers, changes=request.method not in ("GET", "HEAD")):
            response = PlainTextResponse(_FOREIGN, 403)
        elif path == "/login":
            response = await self._log_in(request)
        elif path == "/logout" and request.method == "POST":
            self.sessions.end(self._cookie_of(request.headers))
            response = RedirectResponse(self._url(request, "/login"), 303)
        elif session is not None:
            await self._pass(_with(scope, session), receive, send)
            return
        elif request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            target = path + (f"?{request.url.query}" if request.url.query else "")
            response = RedirectResponse(self._url(request, f"/login?next={quote(target)}"), 303)
        else:
            response = PlainTextResponse("log in first\n", 401)
        await response(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except RuntimeError as error:
            # A browser that leaves a page while it loads leaves Starlette without an answer.
            if str(error) != "No response returned.":
                raise

    async def _log_in(self, request: Request) -> Response:
        """The page, or the result of its form."""
        action = self._url(request, "/login")
        if request.method != "POST":
            target = login_page.own_path(request.query_params.get("next", "/"))
            return HTMLResponse(login_page.page(action, target))
        form = await _form(request)
        target, name = login_page.own_path(form.get("next", "/")), form.get("name", "")
        address = request.client.host if request.client is not None else ""
        known = self._settings.accounts.named(name)
        browser = known_browsers.browser_of(known, cookie_in(request.headers, self._browser_cookie))
        turn = self._attempts.begin(address, name, browser)
        if turn.is_refused:
            said = f"Too many attempts. Try again in {ceil(turn.wait_s)} seconds."
            return HTMLResponse(login_page.page(action, target, said, name), 429)
        if turn.wait_s:
            await self._clock.sleep(turn.wait_s)
        async with self._checking:
            account = await asyncio.to_thread(self._settings.accounts.check, name, form.get("password", ""))
        if account is None or account != self._settings.accounts.named(name):  # it has changed meanwhile
            self._lines.log(log, logging.WARNING, "a log-in from %s failed", address)
            return HTMLResponse(login_page.page(action, target, _WRONG, name), 403)
        self._attempts.succeeded(address, name, browser)
        return self._logged_in(request, account, target, address)

    def _logged_in(self, request: Request, account: Account, target: str, address: str) -> Response:
        """Begin a session, and remember the browser."""
        role = Role.VIEW if self._settings.read_only else account.role
        log.info("%s logged in from %s as %s", account.name, address, role.name.lower())
        response = RedirectResponse(self._url(request, target), 303)
        for key, value, life_s in (
            (self._cookie, self.sessions.begin(account.name, role), int(LIFE_S)),
            (self._browser_cookie, known_browsers.new_cookie(account), known_browsers.LIFE_S),
        ):
            response.set_cookie(
                key,
                value,
                max_age=life_s,
                path=self._url(request, "/"),
                httponly=True,
                samesite="lax",
                secure=request.url.scheme == "https",
            )
        return response

    def _cookie_of(self, headers: Mapping[str, str]) -> str | None:
        return cookie_in(headers, self._cookie)

    def _path(self, request: Request) -> str:
        path = request.url.path
        prefix = self._settings.prefix
        return path[len(prefix) :] or "/" if prefix and path.startswith((prefix + "/", prefix)) else path

    def _url(self, request: Request, path: str) -> str:
        """A path as the browser sees it, with the prefix that a proxy may have removed."""
        return forwarded_prefix(request.headers) + self._settings.prefix + path


def cookie_in(headers: Mapping[str, str], name: str) -> str | None:
    """Return the value of a cookie; of several with one name the last.

    Python's own parser, up to 3.11.9 and 3.12.5, takes quadratic time for backslashes between quotes: 30 kB took 3 s.
    """
    found = None
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.partition("=")
        if key.strip() == name:
            found = value.strip()
    return found


def forwarded_prefix(headers: Mapping[str, str]) -> str:
    """The prefix that a proxy has removed from the path; empty if it is not a path."""
    prefix = headers.get("x-forwarded-prefix", "").rstrip("/")
    return quote(prefix) if prefix.startswith("/") and login_page.own_path(prefix) == prefix else ""


def is_from_here(headers: Mapping[str, str], *, changes: bool) -> bool:
    """Return whether a page of the console sent the request; programs other than browsers name no origin.

    A link on another site leads here without an origin; such a request must not change anything.

    A proxy's `X-Forwarded-Host` counts too: no page can make a browser send it.
    """
    origin = headers.get("origin")
    if origin is None:
        return not changes or headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return origin.partition("://")[2] in {headers.get("host"), headers.get("x-forwarded-host")} - {None, ""}


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; none if it is too long, or does not come in time."""
    raw = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > _LONGEST_FORM:
                    return {}
    except TimeoutError:
        return {}
    fields = parse_qs(raw.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[0] for key, values in fields.items()}


def _with(scope: Scope, session: Session) -> Scope:
    """Add the session, and leave out cookies with quotes: FastAPI parses all, in quadratic time."""
    headers = [(name, _unquoted(value) if name == b"cookie" else value) for name, value in scope["headers"]]
    return {**scope, "headers": headers, "state": {**scope.get("state", {}), "session": session}}


def _unquoted(cookies: bytes) -> bytes:
    return b";".join(each for each in cookies.split(b";") if b'"' not in each)


def _secured(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers[name] = value
        await send(message)

    return with_headers
