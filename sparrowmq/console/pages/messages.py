"""A search for messages by topic and time, by key, or by id; and one message.

/messages                  the search, which is in the address
/messages/{topic}/{name}   its body, its properties, and the groups that have handled it
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Final

from nicegui import ui

from sparrowmq.admin import topics
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.groups import GroupLag
from sparrowmq.admin.message_search import ReadableBody, read, read_aside
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.actions import resend_message
from sparrowmq.console.layout.forms import Field, search_form
from sparrowmq.console.layout.message_results import MESSAGE_COLUMNS, Found, MessageResults
from sparrowmq.console.layout.page import Page, heading
from sparrowmq.console.layout.tables import Column, Columns, Table, link, pair_columns
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import FORMS, body_text, form_of, parse_time, time_text
from sparrowmq.errors import NoRoute, SparrowError

MAX_FOUND: Final = 200
_AGES: Final = {"5m": "5 minutes", "1h": "1 hour", "1d": "1 day", "7d": "7 days", "": "times below"}
_SPANS: Final = {"5m": timedelta(minutes=5), "1h": timedelta(hours=1), "1d": timedelta(1), "7d": timedelta(7)}


async def _draw_messages(view: View) -> None:
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
    results = MessageResults(view, MESSAGE_COLUMNS, MAX_FOUND, "no search yet")

    async def search() -> None:
        values = form.values
        view.remember(**values | ({"since": "", "until": ""} if values["age"] else {}))
        admin = view.cluster.partial_admin()
        await results.search(_find(view, admin))
        left_out.show(values["topic"], admin.counted.missing or ())

    form.on_enter(search)
    button.on_click(search)
    if view.query.get("topic") or view.query.get("id"):
        await search()


async def _find(view: View, admin: Admin) -> Found:
    """Return the messages that the address asks for. Raises: ValueError, the address lacks a field."""
    query = view.query
    topic, key, message_id = query.get("topic"), query.get("key"), query.get("id")
    if message_id:
        return [await admin.message(message_id, topic)]
    if not topic:
        raise ValueError("name a topic; an id that a producer made needs one too")
    now = datetime.fromtimestamp(view.cluster.clock.now_ms() / 1000).astimezone()
    span = _SPANS.get(query.get("age", ""))
    since = now - span if span else parse_time(query.get("since"), "since")
    until = None if span else parse_time(query.get("until"), "until")
    if key:
        messages = await admin.find(topic, key, since=since, until=until, limit=MAX_FOUND)
        return sorted(messages, key=lambda message: -message.stored.store_timestamp_ms)
    if since is None:
        raise ValueError("say since when")
    return await read(admin.servers, topic, since, until, newest_first=True)


MESSAGES_PAGE: Final = Page("/messages", "Messages", _draw_messages, "mail", "m")
# A group, and what it has done with the message.
MessageGroupRow = tuple[str, str]
_GROUP_COLUMNS: Final[Columns[MessageGroupRow]] = (
    Column("Group", lambda row: link(row[0], "groups", row[0])),
    Column("State", lambda row: row[1]),
)
_PAIRS: Final = pair_columns("Name", "Value")
_MAX_DOWNLOAD_BYTES: Final = 4 << 20  # bytes


async def _draw_message(view: View) -> None:
    topic = view.args["topic"]
    message = await view.admin.message(view.args["name"], topic)
    body = await read_aside(message.stored)
    with ui.row().classes("items-center gap-2"):
        view.link("Trace", "trace", id=message.msg_id)
        view.link(f"Topic {topic}", "topics", topic)
        resend_message(message).button(view)
        if len(body.content) <= _MAX_DOWNLOAD_BYTES:

            async def download() -> None:
                content = (await read_aside(message.stored)).content
                # The browser gets an address for the bytes of its own, so the console needs none.
                ui.download.content(content, f"{message.msg_id}.bin")

            ui.button("Download", icon="download", on_click=download).props("outline no-caps dense")
    await _body(view, message, body)
    heading("Message")
    Table(view, _PAIRS, list(facts(message).items()), wraps=True)
    heading("Properties")
    Table(view, _PAIRS, sorted(message.stored.properties.items()), wraps=True)
    heading("Groups")
    Table(view, _GROUP_COLUMNS, await _group_rows(view, message), "no group has consumed its topic", wraps=True)


async def _body(view: View, message: ReceivedMessage, body: ReadableBody) -> None:
    """Draw the body; the page keeps only the stored bytes, and lays them out in threads."""
    form = view.query.get("form", "")
    if form not in FORMS:
        form = await asyncio.to_thread(form_of, body.content)
    text = await asyncio.to_thread(body_text, body.content, form)
    with ui.row().classes("items-center gap-4"):
        heading(f"Body, {len(body.content):,} bytes")
        forms = ui.toggle(list(FORMS), value=form)
        forms.props('dense no-caps unelevated padding="4px 12px"')
    if body.trouble is not None:
        ui.label(f"It is shown as it is stored, since no consumer can read it: {body.trouble}").classes("trouble-text")
    with (
        ui.card()
        .classes("w-full overflow-auto max-h-[28rem] p-3")
        .props('flat bordered tabindex=0 role=region aria-label="Body"')
    ):
        label = ui.label(text).classes("mono whitespace-pre").mark("body")

    async def change_form() -> None:
        view.remember(form=forms.value)
        content = (await read_aside(message.stored)).content
        label.text = await asyncio.to_thread(body_text, content, forms.value)

    forms.on_value_change(change_form)


def facts(message: ReceivedMessage) -> dict[str, str]:
    """Return the fields of a message besides its properties and body."""
    stored = message.stored
    return {
        "Id": message.msg_id,
        "Offset id": stored.offset_id,
        "Topic": stored.topic,
        "Broker and queue": f"{message.queue.broker_name}, {stored.queue_id}",
        "Offset": f"{message.offset:,}",
        "Born": f"{time_text(stored.born_timestamp_ms)} at {stored.born_host}",
        "Stored": f"{time_text(stored.store_timestamp_ms)} at {stored.store_host}",
        "Tag": stored.tags or "",
        "Keys": " ".join(stored.keys),
        "Failed deliveries": str(message.reconsume_times),
        "Size in the log": f"{stored.store_size:,} bytes",
        "Flag and system flag": f"{stored.flag}, {stored.sys_flag}",
        "Position in the log": f"{stored.physical_offset:,}",
        "CRC of the body": str(stored.body_crc),
    }


async def _group_rows(view: View, message: ReceivedMessage) -> list[MessageGroupRow]:
    topic = message.stored.topic
    try:
        groups = await topics.consumers_of(view.cluster.servers, topic)
    except NoRoute:
        return []
    rows = []
    for group in groups:
        try:
            state = state_of(message, await view.admin.lag(group, topic))
        except SparrowError as error:
            state = f"unknown: {error}"
        rows.append((group, state))
    return rows


def state_of(message: ReceivedMessage, lag: GroupLag) -> str:
    """Whether a group has handled a message; offsets do not show which messages it filtered out."""
    place = message.queue.broker_name, message.stored.queue_id
    for queue_lag in lag.queues:
        if (queue_lag.queue.broker_name, queue_lag.queue.queue_id) == place:
            if queue_lag.committed > message.offset:
                return "passed: handled, filtered out, or waiting for a retry"
            return f"{message.offset - queue_lag.committed + 1:,} messages before it"
    return "has not consumed this queue"


MESSAGE_PAGE: Final = Page("/messages/{topic}/{name}", "Message {name}", _draw_message)
