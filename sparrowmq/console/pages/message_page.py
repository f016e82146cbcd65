"""One message: its body, its properties, and the groups that have handled it."""

from __future__ import annotations

import asyncio
from typing import Final

from nicegui import ui

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.client.admin.message_search import ReadableBody, read_aside
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.actions import resend_message
from sparrowmq.console.layout.described_page import Page, heading
from sparrowmq.console.layout.tables import Column, Columns, Table, link, pairs
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import time_of
from sparrowmq.console.reading.message_body import FORMS, form_of, shown
from sparrowmq.errors import NoRoute, SparrowError

# A group, and what it has done with the message.
GroupRow = tuple[str, str]
_GROUPS: Final[Columns[GroupRow]] = (
    Column("Group", lambda row: link(row[0], "groups", row[0])),
    Column("State", lambda row: row[1]),
)
_PAIRS: Final = pairs("Name", "Value")
_LONGEST_DOWNLOAD: Final = 4 << 20  # bytes


async def draw(view: View) -> None:
    topic = view.args["topic"]
    message = await view.admin.message(view.args["name"], topic)
    body = await read_aside(message.stored)
    with ui.row().classes("items-center gap-2"):
        view.link("Trace", "trace", id=message.msg_id)
        view.link(f"Topic {topic}", "topics", topic)
        resend_message(message).button(view)
        if len(body.content) <= _LONGEST_DOWNLOAD:

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
    Table(view, _GROUPS, await _group_rows(view, message), "no group has consumed its topic", wraps=True)


async def _body(view: View, message: ReceivedMessage, body: ReadableBody) -> None:
    """Draw the body; the page keeps only the stored bytes, and lays them out in threads."""
    form = view.query.get("form", "")
    if form not in FORMS:
        form = await asyncio.to_thread(form_of, body.content)
    drawn = await asyncio.to_thread(shown, body.content, form)
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
        text = ui.label(drawn).classes("mono whitespace-pre").mark("body")

    async def changed() -> None:
        view.remember(form=forms.value)
        content = (await read_aside(message.stored)).content
        text.text = await asyncio.to_thread(shown, content, forms.value)

    forms.on_value_change(changed)


def facts(message: ReceivedMessage) -> dict[str, str]:
    """Return the fields of a message besides its properties and body."""
    stored = message.stored
    return {
        "Id": message.msg_id,
        "Offset id": stored.offset_id,
        "Topic": stored.topic,
        "Broker and queue": f"{message.queue.broker_name}, {stored.queue_id}",
        "Offset": f"{message.offset:,}",
        "Born": f"{time_of(stored.born_timestamp_ms)} at {stored.born_host}",
        "Stored": f"{time_of(stored.store_timestamp_ms)} at {stored.store_host}",
        "Tag": stored.tags or "",
        "Keys": " ".join(stored.keys),
        "Failed deliveries": str(message.reconsume_times),
        "Size in the log": f"{stored.store_size:,} bytes",
        "Flag and system flag": f"{stored.flag}, {stored.sys_flag}",
        "Position in the log": f"{stored.physical_offset:,}",
        "CRC of the body": str(stored.body_crc),
    }


async def _group_rows(view: View, message: ReceivedMessage) -> list[GroupRow]:
    topic = message.stored.topic
    try:
        groups = await topics.consumers_of(view.look.servers, topic)
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
    for each in lag.queues:
        if (each.queue.broker_name, each.queue.queue_id) == place:
            if each.committed > message.offset:
                return "passed: handled, filtered out, or waiting for a retry"
            return f"{message.offset - each.committed + 1:,} messages before it"
    return "has not consumed this queue"


PAGE: Final = Page("/messages/{topic}/{name}", "Message {name}", draw)
