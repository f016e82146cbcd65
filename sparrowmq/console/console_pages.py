"""All pages: their order in the menu, and how NiceGUI serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import Client, app, ui
from nicegui.client import ClientConnectionTimeout
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sparrowmq.console.history.samples import Samples
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.page_frame import DARK_COOKIE, frame
from sparrowmq.console.layout.trouble_panel import TroublePanel
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.console.login.login_guard import forwarded_prefix
from sparrowmq.console.pages import (
    access_page,
    broker_page,
    cluster_page,
    conditions_page,
    dead_letters_page,
    group_page,
    groups_page,
    member_page,
    message_page,
    messages_page,
    overview_page,
    producers_page,
    search_page,
    servers_page,
    tail_page,
    topic_page,
    topics_page,
    trace_page,
)
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.errors import NoGroup, NoMessage, NoRoute, SparrowError

PAGES: Final = (
    overview_page.PAGE,
    conditions_page.PAGE,
    cluster_page.PAGE,
    topics_page.PAGE,
    groups_page.PAGE,
    producers_page.PAGE,
    messages_page.PAGE,
    tail_page.PAGE,
    trace_page.PAGE,
    dead_letters_page.PAGE,
    access_page.PAGE,
    servers_page.PAGE,
    broker_page.PAGE,
    topic_page.PAGE,
    group_page.PAGE,
    message_page.PAGE,
    search_page.PAGE,
    member_page.PAGE,
)
_BUILD_S: Final = 30.0  # a cluster may be slow to answer
# What is read by then is part of the first answer; otherwise the frame is shown first.
_FRAME_S: Final = 0.2
# For a page of one thing: the status of the answer depends on whether the thing exists.
_OBJECT_S: Final = 5.0
_MISSING: Final = (NoRoute, NoGroup, NoMessage, NotThere)


def add_pages(look: Look, samples: Samples, prefix: str) -> None:
    """Let NiceGUI serve all pages of a console."""
    for each in PAGES:
        ui.page(each.path, response_timeout=_BUILD_S)(_served(each, look, samples, prefix))

    async def no_page(request: Request, error: Exception) -> Response:
        if request.url.path.startswith(f"{request.scope.get('root_path', '')}/_nicegui"):
            return Response("no such file\n", 404)
        with Client(ui.page(""), request=request) as client:
            view = View(request, look, samples, prefix)
            ui.page_title("Not found · SparrowMQ")
            with frame(view, "Not found", dark_of(request.cookies.get(DARK_COOKIE)), PAGES):
                _say_missing(view, NotThere(f"the console has no page {view.path}"))
        return client.build_response(request, 404)

    app.exception_handler(404)(no_page)
    app.get("/dashboard")(_overview(prefix))


def _overview(prefix: str) -> Callable[[Request], RedirectResponse]:
    """Lead from the old address of the trends to the first page, where they are now."""

    def lead(request: Request) -> RedirectResponse:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{forwarded_prefix(request.headers)}{prefix}/{query}", 301)

    return lead


def _served(page: Page, look: Look, samples: Samples, prefix: str) -> Callable[[Request], Awaitable[Response | None]]:
    async def serve(request: Request) -> Response | None:
        view = View(request, look, samples, prefix)
        view.open()
        title = page.title.format_map(view.args)
        ui.page_title(f"{title} · SparrowMQ")
        with frame(view, title, dark_of(request.cookies.get(DARK_COOKIE)), PAGES):
            place = ui.column().classes("w-full gap-3")
            waiting = ui.spinner(size="lg").classes("self-center waiting")

        async def draw() -> None:
            place.clear()
            await _draw(view, page, place)

        async def first() -> bool:
            return await _draw(view, page, place)

        view.redraw = draw
        drawing = asyncio.create_task(first())
        client = ui.context.client
        limit_s = _OBJECT_S if view.args else _FRAME_S
        try:
            is_in_time = bool((await asyncio.wait([drawing], timeout=limit_s))[0])
            if not is_in_time:
                await client.connected(timeout=_BUILD_S)
            exists = await drawing
            waiting.delete()
            if is_in_time and not exists:
                return client.build_response(request, 404)
        except ClientConnectionTimeout:
            pass  # the browser has gone
        finally:
            drawing.cancel()
        return None

    return serve


async def _draw(view: View, page: Page, place: ui.column) -> bool:
    """Draw the page's own elements, or the reason why there are none; False if its thing does not exist."""
    with place:
        try:
            await page.draw(view)
        except _MISSING as error:
            place.clear()
            _say_missing(view, error)
            return not view.args and not isinstance(error, NotThere)
        except SparrowError as error:
            with ui.card().classes("w-full border-l-4 border-red-600"):
                ui.label("The console cannot show this page").classes("font-semibold")
                ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
                ui.label("`sparrowmq doctor` finds the reason.").classes("text-sm opacity-70")
            TroublePanel(view, [each for each in view.samples.troubles.now() if each.is_urgent])
    return True


def _say_missing(view: View, error: SparrowError) -> None:
    with ui.card().classes("w-full border-l-4 border-red-600 gap-2"):
        ui.label("Not found").classes("font-semibold")
        ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
        ui.label("It may have been deleted, or the address has a wrong letter. Look for it here:").classes("text-sm")
        with ui.row().classes("items-center gap-3"):
            for name in sorted(view.args.values()):
                view.link(f"Search for {name[:64]}", "search", q=name)
            for page in PAGES:
                if page.path in ("/topics", "/groups", "/cluster", "/messages"):
                    view.link(page.title, page.path[1:])


def dark_of(cookie: str | None) -> bool | None:
    """The visitor's choice; None if the browser decides."""
    return {"0": False, "1": True}.get(cookie or "")
