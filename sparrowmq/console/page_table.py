"""The table of pages: which file draws which address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import ui
from nicegui.client import ClientConnectionTimeout
from starlette.requests import Request

from sparrowmq.console.history.samples import Samples
from sparrowmq.console.layout.page_frame import DARK_COOKIE, frame
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages import access_page as access
from sparrowmq.console.pages import broker_page as broker
from sparrowmq.console.pages import cluster_page as cluster
from sparrowmq.console.pages import dashboard_page as dashboard
from sparrowmq.console.pages import dead_letters_page as dlq
from sparrowmq.console.pages import group_page as group
from sparrowmq.console.pages import groups_page as groups
from sparrowmq.console.pages import member_page as member
from sparrowmq.console.pages import message_page as message
from sparrowmq.console.pages import messages_page as messages
from sparrowmq.console.pages import overview_page as overview
from sparrowmq.console.pages import producers_page as producers
from sparrowmq.console.pages import search_page as search
from sparrowmq.console.pages import servers_page as servers
from sparrowmq.console.pages import tail_page as tail
from sparrowmq.console.pages import topic_page as topic
from sparrowmq.console.pages import topics_page as topics
from sparrowmq.console.pages import trace_page as trace
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.errors import SparrowError

Draw = Callable[[View], Awaitable[None]]

# Address, what stands above the page, what draws it. {name} is a part of the address, and of the title; with :path it
# may have slashes in it.
PAGES: Final[tuple[tuple[str, str, Draw], ...]] = (
    ("/", "Overview", overview.draw),
    ("/dashboard", "Dashboard", dashboard.draw),
    ("/cluster", "Cluster", cluster.draw),
    ("/cluster/{name:path}", "Broker {name}", broker.draw),
    ("/topics", "Topics", topics.draw),
    ("/topics/{name}", "Topic {name}", topic.draw),
    ("/groups", "Consumers", groups.draw),
    ("/groups/{name}", "Group {name}", group.draw),
    ("/producers", "Producers", producers.draw),
    ("/messages", "Messages", messages.draw),
    ("/messages/{topic}/{name}", "Message {name}", message.draw),
    ("/tail", "Live tail", tail.draw),
    ("/trace", "Trace", trace.draw),
    ("/dlq", "Dead letters", dlq.draw),
    ("/access", "Access", access.draw),
    ("/servers", "Name servers", servers.draw),
    ("/search", "Search", search.draw),
    ("/groups/{group}/members/{name:path}", "Member {name}", member.draw),
)
_BUILD_S: Final = 30.0  # a cluster may be slow to answer
# What is there by then goes with the page, which saves it a way; for what takes longer, the frame is shown first.
_FRAME_S: Final = 0.2


def add_pages(look: Look, samples: Samples, prefix: str) -> None:
    """Let NiceGUI serve all pages of a console."""
    for path, title, draw in PAGES:
        ui.page(path, response_timeout=_BUILD_S)(_page(title, draw, look, samples, prefix))


def _page(
    title: str, draw: Draw, look: Look, samples: Samples, prefix: str
) -> Callable[[Request], Awaitable[None]]:
    async def page(request: Request) -> None:
        view = View(request, look, samples, prefix)
        view.end_with_session()
        shown = title.format_map(view.args)
        ui.page_title(f"{shown} · SparrowMQ")
        with frame(view, shown, dark_of(request.cookies.get(DARK_COOKIE))):
            place = ui.column().classes("w-full gap-3")
            waiting = ui.spinner(size="lg").classes("self-center waiting")
        drawing = asyncio.create_task(_drawn(view, draw, place))
        try:
            if not (await asyncio.wait([drawing], timeout=_FRAME_S))[0]:
                await ui.context.client.connected(timeout=_BUILD_S)
            await drawing
            waiting.delete()
        except ClientConnectionTimeout:
            pass  # whoever asked has gone
        finally:
            drawing.cancel()

    return page


async def _drawn(view: View, draw: Draw, place: ui.column) -> None:
    """The page's own elements, or why there are none."""
    with place:
        try:
            await draw(view)
        except SparrowError as error:
            with ui.card().classes("w-full border-l-4 border-red-600"):
                ui.label("The console cannot show this page").classes("font-semibold")
                ui.label(str(error)).classes("whitespace-pre-wrap").mark("error")
                ui.label("`sparrowmq doctor` finds out why.").classes("text-sm opacity-70")


def dark_of(cookie: str | None) -> bool | None:
    """What the visitor chose; None is what his system says."""
    return {"0": False, "1": True}.get(cookie or "")
