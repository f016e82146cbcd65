"""A view of the console as a request makes it, and elements without a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from nicegui import Client, ui
from starlette.requests import Request

from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.layout.view import View
from sparrowmq.console.samples import Samples
from sparrowmq.console.sessions import Session
from sparrowmq.console.users import Role
from sparrowmq.testing import ManualClock


def seen(
    path: str = "/topics",
    query: str = "",
    prefix: str = "",
    root: str = "",
    headers: Sequence[tuple[str, str]] = (),
    args: Mapping[str, str] | None = None,
    role: Role = Role.VIEW,
    look: ClusterView | None = None,
) -> View:
    """Return a visitor's view of a page."""
    scope = {
        "type": "http",
        "path": root + path,
        "root_path": root,
        "query_string": query.encode(),
        "headers": [(key.encode(), value.encode()) for key, value in headers],
        "path_params": args or {},
        "state": {"session": Session("somebody", role, 1e9)},
    }
    look = look or ClusterView("127.0.0.1:1")
    return View(Request(scope), look, Samples(look, ManualClock()), prefix)


@contextmanager
def page() -> Iterator[None]:
    """A page that no browser shows."""
    with Client(ui.page("/test"), request=None):
        yield
