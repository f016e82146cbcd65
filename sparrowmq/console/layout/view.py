"""What a page gets: who looks, at what, and how to tell, ask and act.

A page is a function `draw(view)` that makes NiceGUI's elements. All texts go into elements as values, which the browser
shows as text; nothing here or in a page writes HTML.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from nicegui import context, ui
from starlette.requests import Request

from sparrowmq.console.actions import Actions, Forbidden
from sparrowmq.console.history.samples import Samples
from sparrowmq.console.login.login_guard import forwarded_prefix
from sparrowmq.console.login.sessions import Session
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.errors import SparrowError

T = TypeVar("T")


class View:
    """One page as one visitor sees it.

    Attributes:
        args: the parts of the path that name something.
        query: the address's query; filters and places, kept up to date by `remember`.
    """

    def __init__(self, request: Request, look: Look, samples: Samples, prefix: str) -> None:
        self.session: Session = request.state.session
        self.look = look
        self.admin = look.admin
        self.samples = samples
        self.actions = Actions(look, self.session)
        self.path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        self.args: Mapping[str, str] = dict(request.path_params)
        self.query: dict[str, str] = dict(request.query_params)
        self._prefix = forwarded_prefix(request.headers) + prefix

    # Addresses ------------------------------------------------------------------------------------------------------

    def url(self, *parts: str, **query: object) -> str:
        """The address of a view, as the browser knows it: url("topics", "orders", page=2)."""
        path = "/".join(quote(part, safe="") for part in parts)
        given = {key: value for key, value in query.items() if value not in (None, "")}
        return f"{self._prefix}/{path}" + (f"?{urlencode(given)}" if given else "")

    def go(self, *parts: str, **query: object) -> None:
        """Show another view."""
        self.run(f"location.assign({json.dumps(self.url(*parts, **query))})")

    def link(self, text: str, *parts: str, **query: object) -> ui.element:
        """A link to another view."""
        with ui.element("a").props(f'href="{self.url(*parts, **query)}"').classes("link") as anchor:
            ui.label(text).classes("inline")
        return anchor

    def remember(self, **query: object) -> None:
        """Put places and filters into the address, so that it can be sent to somebody."""
        for key, value in query.items():
            self.query.pop(key, None)
            if value not in (None, ""):
                self.query[key] = str(value)
        path = quote(self.path.lstrip("/"))
        address = f"{self._prefix}/{path}" + (f"?{urlencode(self.query)}" if self.query else "")
        self.run(f"history.replaceState(null, '', {json.dumps(address)})")

    def reload(self) -> None:
        """Show this view anew, once what was told could be read."""
        self.run("setTimeout(() => location.reload(), 1200)")

    def number(self, key: str, otherwise: int) -> int:
        """A number of the query."""
        text = self.query.get(key, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else otherwise

    def run(self, script: str) -> None:
        """A line for the browser; what it is made of comes from `json.dumps`."""
        ui.run_javascript(script.replace("</", "<\\/"))

    # Telling and acting ---------------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        ui.notify(text, type="positive", position="bottom-right")

    def complain(self, error: SparrowError | str) -> None:
        ui.notify(
            str(error),
            type="negative",
            position="bottom-right",
            timeout=12_000,
            multi_line=True,
            actions=[{"label": "OK", "color": "white"}],
        )

    async def attempt(self, work: Awaitable[T]) -> T | None:
        """What comes of it; None if it failed, which is told."""
        try:
            self._demand_session()
            return await work
        except (SparrowError, ValueError) as error:
            if isinstance(work, Coroutine):
                work.close()  # of one that was not begun
            self.complain(error if isinstance(error, SparrowError) else str(error))
            return None

    async def act(self, work: Awaitable[Any], done: str) -> bool:
        """Carry out an action, and say so."""

        async def carried_out() -> bool:
            await work
            return True

        if await self.attempt(carried_out()) is None:
            return False
        self.tell(done)
        return True

    def _demand_session(self) -> None:
        """A page that was left open shows nothing new after the log-out. Raises: Forbidden."""
        if not self.session.is_alive:
            raise Forbidden("you are logged out; log in again")

    def every(self, seconds: float, work: Callable[[], Coroutine[Any, Any, object]]) -> ui.timer:
        """Do something again and again while the page is open and its visitor logged in; failures are shown once."""
        failed = False

        async def again() -> None:
            nonlocal failed
            if not self.session.is_alive:
                return
            try:
                await work()
                failed = False
            except SparrowError as error:
                if not failed:
                    self.complain(error)
                failed = True

        return ui.timer(seconds, again, immediate=False)

    def end_with_session(self) -> None:
        """Close this page when its visitor logs out, wherever he does that."""
        client = context.client

        def close() -> None:
            if client.has_socket_connection:
                client.run_javascript(f"location.assign({json.dumps(self.url('login'))})")

        def forget() -> None:
            if close in self.session.on_end:
                self.session.on_end.remove(close)

        self.session.on_end.append(close)
        client.on_delete(forget)
