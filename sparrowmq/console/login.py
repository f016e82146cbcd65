"""The log-in, and the check before every page: the session of the visitor, and the origin of the request.

    /login, /logout        served here, as plain HTML without any script, so strangers get no file of the console
    /healthz               "ok", to anybody
    everything else        needs a session; a browser without one is sent to the log-in page, anything else gets 401

Changes come over the web socket or by POST, and a browser names the page that sends them. A foreign `Origin` is
refused, also where a page only reads: Socket.IO lets pages of all origins read its answers. So no other site, and no
other port of this machine, can use a visitor's cookie. Answers forbid frames, and loading anything from other sites.

The limits of log-in attempts:

    a pause     after five wrong passwords for one account from one place: a minute, and a minute for each more
    a line      after twenty wrong passwords for one account, or from one address: a second from attempt to attempt

A place is a browser that the account has used before, or else an address. So others behind an address are not paused,
an attacker at the address of a user does not pause the user's browser, and known browsers never stand in line. The line
limits an attacker with many addresses or many names. The line is short: an attempt that would wait for more than ten
seconds is refused.

A known browser has a signed cookie:

    cookie  id.signature      id: 16 random bytes; the signature is HMAC-SHA256 of account and id

The key is the account's hashed password. So the cookie outlives a restart of the console, and a new password makes all
cookies of the account invalid. The cookie opens nothing: a log-in still needs the password.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from html import escape
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.sessions import SESSION_S, Session, Sessions
from sparrowmq.console.users import Account, Role
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)
_MAX_FORM_BYTES: Final = 8192
FORM_S: Final = 10.0
_CHECKS_AT_ONCE: Final = 2  # each takes 16 MiB
_SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "object-src 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
_FOREIGN_ORIGIN: Final = (
    "this comes from another site. If a proxy is in front of the console, give its address with --trusted-proxy, and "
    "let the proxy pass on Host, or set X-Forwarded-Host\n"
)
_WRONG_PASSWORD: Final = "The user or the password is wrong."
MAX_FAILURES_OF_PLACE: Final = 5
PAUSE_S: Final = 60.0
MAX_FAILURES_BEFORE_LINE: Final = 20  # wrong ones for one account, or from one address, until there is a line
LINE_STEP_S: Final = 1.0
MAX_LINE_S: Final = 10.0
_FORGET_S: Final = 600.0
_MAX_KEYS: Final = 10_000  # places, accounts and addresses that are remembered
_MAX_NAME_LENGTH: Final = 64
_NETWORK_BITS: Final = 64  # a visitor with IPv6 has a network of addresses
BROWSER_COOKIE_S: Final = 180 * 86_400


class Guard:
    """An ASGI application before another one, which finds the visitor's session in `scope["state"]`."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, clock: Clock) -> None:
        self.sessions = Sessions(clock)
        self._app = app
        self._settings = settings
        self._attempts = Attempts(clock)
        self._log_limit = LogLimit(clock)
        self._check_slots = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._clock = clock
        self._cookie = f"sparrowmq_{settings.port}"
        self._browser_cookie = f"sparrowmq_known_{settings.port}"

    def renew(self) -> None:
        """End the sessions whose time is over, or whose user has gone or has another role or password."""
        self.sessions.sweep()
        try:
            self.sessions.end_sessions_of(self._settings.accounts.renew())
        except ConfigError as error:
            log.warning("the users stay as they were: %s", error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._web_socket(scope, receive, send)
        else:
            await self._http(scope, receive, _with_security_headers(send))

    async def _web_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        session = self.sessions.find(self._cookie_of(headers))
        if session is None or not is_from_here(headers, changes=True):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(_with_session(scope, session), receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = self._path(request)
        session = self.sessions.find(self._cookie_of(request.headers))
        if path == "/healthz":
            response: Response = PlainTextResponse("ok\n")
        elif not is_from_here(request.headers, changes=request.method not in ("GET", "HEAD")):
            response = PlainTextResponse(_FOREIGN_ORIGIN, 403)
        elif path == "/login":
            response = await self._log_in(request)
        elif path == "/logout" and request.method == "POST":
            self.sessions.end(self._cookie_of(request.headers))
            response = RedirectResponse(self._url(request, "/login"), 303)
        elif session is not None:
            await self._forward(_with_session(scope, session), receive, send)
            return
        elif request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            target = path + (f"?{request.url.query}" if request.url.query else "")
            response = RedirectResponse(self._url(request, f"/login?next={quote(target)}"), 303)
        else:
            response = PlainTextResponse("log in first\n", 401)
        await response(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            target = own_path(request.query_params.get("next", "/"))
            return HTMLResponse(login_form(action, target))
        form = await _read_form(request)
        target, name = own_path(form.get("next", "/")), form.get("name", "")
        address = request.client.host if request.client is not None else ""
        browser = browser_of(self._settings.accounts.find(name), cookie_in(request.headers, self._browser_cookie))
        turn = self._attempts.begin(address, name, browser)
        if turn.is_refused:
            failure = f"Too many attempts. Try again in {ceil(turn.wait_s)} seconds."
            return HTMLResponse(login_form(action, target, failure, name), 429)
        if turn.wait_s:
            await self._clock.sleep(turn.wait_s)
        async with self._check_slots:
            account = await asyncio.to_thread(self._settings.accounts.check, name, form.get("password", ""))
        if account is None or account != self._settings.accounts.find(name):  # it has changed meanwhile
            self._log_limit.log(log, logging.WARNING, "a log-in from %s failed", address)
            return HTMLResponse(login_form(action, target, _WRONG_PASSWORD, name), 403)
        self._attempts.succeeded(address, name, browser)
        return self._logged_in(request, account, target, address)

    def _logged_in(self, request: Request, account: Account, target: str, address: str) -> Response:
        role = Role.VIEW if self._settings.read_only else account.role
        log.info("%s logged in from %s as %s", account.name, address, role.name.lower())
        response = RedirectResponse(self._url(request, target), 303)
        for key, value, life_s in (
            (self._cookie, self.sessions.begin(account.name, role), int(SESSION_S)),
            (self._browser_cookie, new_cookie(account), BROWSER_COOKIE_S),
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
    cookie = None
    for part in headers.get("cookie", "").split(";"):
        key, _, value = part.partition("=")
        if key.strip() == name:
            cookie = value.strip()
    return cookie


def forwarded_prefix(headers: Mapping[str, str]) -> str:
    """The prefix that a proxy has removed from the path; empty if it is not a path."""
    prefix = headers.get("x-forwarded-prefix", "").rstrip("/")
    return quote(prefix) if prefix.startswith("/") and own_path(prefix) == prefix else ""


def is_from_here(headers: Mapping[str, str], *, changes: bool) -> bool:
    """Return whether a page of the console sent the request; programs other than browsers name no origin.

    A link on another site leads here without an origin; such a request must not change anything.

    A proxy's `X-Forwarded-Host` counts too: no page can make a browser send it.
    """
    origin = headers.get("origin")
    if origin is None:
        return not changes or headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return origin.partition("://")[2] in {headers.get("host"), headers.get("x-forwarded-host")} - {None, ""}


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a form; none if it is too long, or does not come in time."""
    raw = b""
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > _MAX_FORM_BYTES:
                    return {}
    except TimeoutError:
        return {}
    fields = parse_qs(raw.decode("utf-8", "replace"), keep_blank_values=True)
    return {key: values[0] for key, values in fields.items()}


def _with_session(scope: Scope, session: Session) -> Scope:
    """Add the session, and leave out cookies with quotes: FastAPI parses all, in quadratic time."""
    headers = [
        (name, b";".join(part for part in value.split(b";") if b'"' not in part) if name == b"cookie" else value)
        for name, value in scope["headers"]
    ]
    return {**scope, "headers": headers, "state": {**scope.get("state", {}), "session": session}}


def _with_security_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY_HEADERS.items():
                headers[name] = value
        await send(message)

    return with_headers


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_s: float = 0.0  # the time of the last one
    next_s: float = 0.0  # the time of the next place in the line


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The answer to an attempt: it may go on after a while, or is refused for so long."""

    wait_s: float
    is_refused: bool = False


class Attempts:
    """Wrong attempts by place and account, by account, and by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Hashable, _Failures] = {}  # the oldest first

    def begin(self, address: str, name: str, browser: str = "") -> AttemptResult:
        """Count an attempt as failed until it succeeds: simultaneous attempts all count before the first check.

        `browser` is the id of a browser that this account has used; "" for another one.
        """
        now_s = self._clock.monotonic()
        place, limited = _keys(address, name, browser)
        of_place = self._failures_of(place, now_s)
        if of_place.count >= MAX_FAILURES_OF_PLACE and of_place.last_s + PAUSE_S > now_s:
            return AttemptResult(of_place.last_s + PAUSE_S - now_s, is_refused=True)
        lines = [self._failures_of(key, now_s) for key in limited]
        wait_s = max((line.next_s - now_s for line in lines if line.count >= MAX_FAILURES_BEFORE_LINE), default=0.0)
        if wait_s > MAX_LINE_S:
            return AttemptResult(wait_s, is_refused=True)
        for failures in (of_place, *lines):
            failures.count, failures.last_s = failures.count + 1, now_s
        for line in lines:
            line.next_s = max(now_s, line.next_s) + LINE_STEP_S if line.count >= MAX_FAILURES_BEFORE_LINE else 0.0
        return AttemptResult(max(0.0, wait_s))

    def succeeded(self, address: str, name: str, browser: str = "") -> None:
        """Forget the failed attempts of a place; its last attempt counts nowhere."""
        place, limited = _keys(address, name, browser)
        self._failures.pop(place, None)
        for key in limited:
            if (failures := self._failures.get(key)) is not None:
                failures.count = max(0, failures.count - 1)

    def _failures_of(self, key: Hashable, now_s: float) -> _Failures:
        """The attempts of a key, which is the newest now; the oldest key makes room."""
        failures = self._failures.pop(key, None)
        if failures is None or now_s - failures.last_s > _FORGET_S:
            failures = _Failures(last_s=now_s)
        while len(self._failures) >= _MAX_KEYS:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = failures
        return failures


def _keys(address: str, name: str, browser: str) -> tuple[Hashable, list[Hashable]]:
    """The key of a place and an account; and those of the account and the address, unless the browser is known."""
    name, network = name[:_MAX_NAME_LENGTH], network_of(address)
    if browser:
        return ("browser", browser, name), []
    return ("address", network, name), [("account", name), ("address", network)]


def network_of(address: str) -> str:
    """The address itself, or the network of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _NETWORK_BITS), strict=False))


def new_cookie(account: Account) -> str:
    browser_id = secrets.token_hex(16)
    return f"{browser_id}.{_signature(account, browser_id)}"


def browser_of(account: Account | None, cookie: str | None) -> str:
    """The id of the browser, if the account has used it; otherwise ""."""
    browser_id, _, signature = (cookie or "").partition(".")
    if account is None or not hmac.compare_digest(signature.encode(), _signature(account, browser_id).encode()):
        return ""
    return browser_id


def _signature(account: Account, browser_id: str) -> str:
    key = hashlib.sha256(b"known browser " + account.password_hash.encode()).digest()
    return hmac.new(key, f"{account.name} {browser_id}".encode(), hashlib.sha256).hexdigest()


_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; font-family: system-ui, sans-serif;
  background: light-dark(#f1f5f9, #0f172a); color: light-dark(#0f172a, #e2e8f0); }
form { width: min(20rem, 86vw); padding: 2rem; border-radius: .75rem; background: light-dark(#fff, #1e293b);
  box-shadow: 0 1px 12px #0002; display: grid; gap: .9rem; }
h1 { font-size: 1.25rem; margin: 0; } h1 small { font-weight: normal; opacity: .6; }
label { display: grid; gap: .3rem; font-size: .85rem; }
input { font: inherit; padding: .55rem .7rem; border-radius: .4rem; border: 1px solid light-dark(#cbd5e1, #475569);
  background: transparent; color: inherit; }
button { font: inherit; padding: .6rem; border: 0; border-radius: .4rem; background: #0f766e; color: #fff;
  cursor: pointer; }
p { margin: 0; color: light-dark(#b91c1c, #fca5a5); font-size: .9rem; }
"""


def login_form(action: str, target: str, failure: str = "", name: str = "") -> str:
    alert = f'<p role="alert">{escape(failure)}</p>' if failure else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>SparrowMQ: log in</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head>
<body><main><form method="post" action="{escape(action)}">
<h1>SparrowMQ <small>console</small></h1>{alert}
<input type="hidden" name="next" value="{escape(target)}">
<label>User<input name="name" value="{escape(name)}" autocomplete="username" autofocus required></label>
<label>Password<input name="password" type="password" autocomplete="current-password" required></label>
<button>Log in</button>
</form></main></body></html>"""


def own_path(target: str) -> str:
    """The target if it is a path on this server, else "/": a link must not lead elsewhere after the log-in."""
    is_own = target.isprintable() and target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_own else "/"
