"""A search for messages: by topic and time, by key, or by id. The search is in the address."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.message_search import read
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.forms import Field, search_form
from sparrowmq.console.layout.message_results import MESSAGE_COLUMNS, Found, MessageResults
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import moment_of

LIMIT: Final = 200
_AGES: Final = {"5m": "5 minutes", "1h": "1 hour", "1d": "1 day", "7d": "7 days", "": "times below"}
_SPANS: Final = {"5m": timedelta(minutes=5), "1h": timedelta(hours=1), "1d": timedelta(1), "7d": timedelta(7)}


async def draw(view: View) -> None:
    age = view.query.get("age", "" if view.query.get("since") else "1h")
    view.query["age"] = age if age in _AGES else ""
    with ui.row().classes("w-full items-end gap-3"):
        form = search_form(
            view,
            (
                Field("topic", "Topic"),
                Field("key", "Key"),
                Field("id", "Id"),
                Field("age", "Stored in the last", "choice", choices=_AGES),
                Field("since", "Since", hint="2026-11-20 08:00", shown_if=lambda values: not values["age"]),
                Field("until", "Until", hint="2026-11-20 09:00", shown_if=lambda values: not values["age"]),
            ),
        )
        button = ui.button("Search", icon="search").props("no-caps")
    left_out = LeftOut(view)
    results = MessageResults(view, MESSAGE_COLUMNS, LIMIT, "no search yet")

    async def search() -> None:
        values = form.values
        view.remember(**values | ({"since": "", "until": ""} if values["age"] else {}))
        admin = view.look.partial()
        await results.search(find(view, admin))
        left_out.show(values["topic"], admin.counted.missing or ())

    form.on_enter(search)
    button.on_click(search)
    if view.query.get("topic") or view.query.get("id"):
        await search()


async def find(view: View, admin: Admin) -> Found:
    """Return the messages that the address asks for. Raises: ValueError, the address lacks a field."""
    query = view.query
    topic, key, ident = query.get("topic"), query.get("key"), query.get("id")
    if ident:
        return [await admin.message(ident, topic)]
    if not topic:
        raise ValueError("name a topic; an id that a producer made needs one too")
    now = datetime.fromtimestamp(view.look.clock.now_ms() / 1000).astimezone()
    span = _SPANS.get(query.get("age", ""))
    since = now - span if span else moment_of(query.get("since"), "since")
    until = None if span else moment_of(query.get("until"), "until")
    if key:
        found = await admin.find(topic, key, since=since, until=until, limit=LIMIT)
        return sorted(found, key=lambda each: -each.stored.store_timestamp_ms)
    if since is None:
        raise ValueError("say since when")
    return await read(admin.servers, topic, since, until, newest_first=True)


PAGE: Final = Page("/messages", "Messages", draw, "mail", "m")
