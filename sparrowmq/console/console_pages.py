"""All pages: their order in the menu, and how NiceGUI serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import ui
from nicegui.client import ClientConnectionTimeout
from starlette.requests import Request

from sparrowmq.console.history.samples import Samples
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.page_frame import DARK_COOKIE, frame
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages import (
    access_page,
    broker_page,
    cluster_page,
    dashboard_page,
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
from sparrowmq.errors import SparrowError

PAGES: Final = (
    overview_page.PAGE,
    dashboard_page.PAGE,
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


def add_pages(look: Look, samples: Samples, prefix: str) -> None:
    """Let NiceGUI serve all pages of a console."""
    for each in PAGES:
        ui.page(each.path, response_timeout=_BUILD_S)(_served(each, look, samples, prefix))


def _served(page: Page, look: Look, samples: Samples, prefix: str) -> Callable[[Request], Awaitable[None]]:
    async def serve(request: Request) -> None:
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

        view.redraw = draw
        drawing = asyncio.create_task(draw())
        try:
            if not (await asyncio.wait([drawing], timeout=_FRAME_S))[0]:
                await ui.context.client.connected(timeout=_BUILD_S)
            await drawing
            waiting.delete()
        except ClientConnectionTimeout:
            pass  # the browser has gone
        finally:
            drawing.cancel()

    return serve


async def _draw(view: View, page: Page, place: ui.column) -> None:
    """Draw the page's own elements, or the reason why there are none."""
    with place:
        try:
            await page.draw(view)
        except SparrowError as error:
            with ui.card().classes("w-full border-l-4 border-red-600"):
                ui.label("The console cannot show this page").classes("font-semibold")
                ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
                ui.label("`sparrowmq doctor` finds the reason.").classes("text-sm opacity-70")


def dark_of(cookie: str | None) -> bool | None:
    """The visitor's choice; None if the browser decides."""
    return {"0": False, "1": True}.get(cookie or "")
