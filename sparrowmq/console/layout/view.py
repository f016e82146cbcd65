"""A page's view of the console: its visitor, the cluster, its address, notifications and timers.

A page is a function `draw(view)` that makes NiceGUI's elements. All texts go into elements as values, which the browser
shows as text; nothing here or in a page writes HTML.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from inspect import isawaitable
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from nicegui import Client, context, ui
from starlette.requests import Request

from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.login import forwarded_prefix
from sparrowmq.console.samples import Samples
from sparrowmq.console.sessions import Notice, Session
from sparrowmq.console.users import Role
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import SparrowError

log = logging.getLogger(__name__)
T = TypeVar("T")

_COPY: Final = """async text => {
  try { await navigator.clipboard.writeText(text); } catch {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
  }
}"""
_QUERY_DIGITS: Final = 9
_LOGGED_OUT: Final = "you are logged out; log in again"


class Forbidden(SparrowError):
    """The visitor's role does not allow an action, or the visitor is logged out."""


class NotThere(SparrowError):
    """The address names a page or a thing that does not exist."""


class View:
    """One page as one visitor sees it.

    `args` are the parts of the path that name something, `query` the filters and page numbers of the address.
    """

    redraw: Callable[[], Coroutine[Any, Any, None]]

    def __init__(self, request: Request, cluster: ClusterView, samples: Samples, prefix: str) -> None:
        self.session: Session = request.state.session
        self.cluster = cluster
        self.admin = cluster.admin
        self.samples = samples
        self.path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        self.args: Mapping[str, str] = dict(request.path_params)
        self.query: dict[str, str] = dict(request.query_params)
        self._prefix = forwarded_prefix(request.headers) + prefix
        self._client: Client | None = None
        self._was_connected = False

    def url(self, *parts: str, **query: object) -> str:
        """The address of a view, as the browser knows it: url("topics", "orders", page=2)."""
        path = "/".join(quote(part, safe="") for part in parts)
        used = {key: value for key, value in query.items() if value not in (None, "")}
        return f"{self._prefix}/{path}" + (f"?{urlencode(used)}" if used else "")

    def go(self, *parts: str, **query: object) -> None:
        self.run(f"location.assign({json.dumps(self.url(*parts, **query))})")

    def link(self, text: str, *parts: str, **query: object) -> ui.element:
        with ui.element("a").props(f'href="{self.url(*parts, **query)}"').classes("link") as anchor:
            ui.label(text).classes("inline")
        return anchor

    def link_button(self, text: str, icon: str, *parts: str, **query: object) -> None:
        ui.button(text, icon=icon, on_click=lambda: self.go(*parts, **query)).props("outline no-caps dense")

    def remember(self, **query: object) -> None:
        """Put filters and page numbers into the address, so that a visitor can send it to a colleague."""
        for key, value in query.items():
            self.query.pop(key, None)
            if value not in (None, ""):
                self.query[key] = str(value)
        path = quote(self.path.lstrip("/"))
        address = f"{self._prefix}/{path}" + (f"?{urlencode(self.query)}" if self.query else "")
        self.run(f"history.replaceState(null, '', {json.dumps(address)})")

    def number(self, key: str, default: int) -> int:
        number = whole_number(self.query.get(key), _QUERY_DIGITS)
        return default if number is None else number

    def run(self, script: str) -> None:
        """Run a line of script in the browser; its values come from `json.dumps`."""
        ui.run_javascript(script.replace("</", "<\\/"))

    def copy(self, name: str, text: str) -> None:
        """Put a text into the visitor's clipboard; a page without encryption has only the older way."""
        self.run(f"({_COPY})({json.dumps(text)})")
        self.say(f"copied: {name}")

    def may(self, role: Role) -> bool:
        return self.session.may(role)

    def check_role(self, role: Role, action: str) -> None:
        """Raises: Forbidden."""
        if not self.session.is_alive:
            raise Forbidden(_LOGGED_OUT)
        if not self.session.may(role):
            log.warning("%s may not %s", self.session.name, action)
            raise Forbidden(
                f"to {action} needs the role {role.name.lower()}; you have {self.session.role.name.lower()}"
            )

    def say(self, text: str) -> None:
        self.session.notify(Notice(text), self)

    def say_on_next_page(self, text: str) -> None:
        """Show a text on the page to which this one goes now."""
        self.session.waiting_notices.append(Notice(text))

    def complain(self, error: SparrowError | str) -> None:
        self.session.notify(Notice(str(error), is_failure=True), self)

    def show(self, notice: Notice) -> None:
        with self._client or nullcontext():
            if not notice.is_failure:
                ui.notify(notice.text, type="positive", position="bottom-right")
                return
            ui.notify(
                notice.text,
                type="negative",
                position="bottom-right",
                timeout=12_000,
                multi_line=True,
                actions=[{"label": "OK", "color": "white"}],
            )

    async def attempt(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of some work; None if it failed, with a notification of the reason."""
        try:
            if not self.session.is_alive:  # a page that was left open shows nothing new after the log-out
                raise Forbidden(_LOGGED_OUT)
            return await work
        except (SparrowError, ValueError) as error:
            work.close()  # if it did not begin
            self.complain(error if isinstance(error, SparrowError) else str(error))
            return None

    def every(self, seconds: float, work: Callable[[], object]) -> ui.timer:
        """Repeat some work while the page is open and its visitor is logged in; shows a failure once."""
        has_failed = False

        async def repeat() -> None:
            nonlocal has_failed
            if not self.session.is_alive:
                return
            try:
                result = work()
                if isawaitable(result):
                    await result
                has_failed = False
            except SparrowError as error:
                if not has_failed:
                    self.complain(error)
                has_failed = True

        return ui.timer(seconds, repeat, immediate=False)

    def open(self) -> None:
        """Add the page to the session: it shows the session's notices, and is closed when the visitor logs out."""
        self._client = context.client
        self._client.on_connect(self._connected)
        self._client.on_delete(lambda: self.session.remove_page(self))
        self.session.add_page(self)

    @property
    def is_open(self) -> bool:
        """Whether a browser shows the page, or loads it."""
        if self._client is None:
            return True
        return self._client.has_socket_connection or not (self._was_connected or self._client.is_deleted)

    def close(self) -> None:
        """Show the log-in page instead, here or in another window."""
        if self._client is not None and self._client.has_socket_connection:
            self._client.run_javascript(f"location.assign({json.dumps(self.url('login'))})")

    def _connected(self) -> None:
        self._was_connected = True
