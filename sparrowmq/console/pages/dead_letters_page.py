"""Dead letters: the groups that have some; of one group, search, retry after a dry run, and export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.dead_letters import reason_of
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.actions import retry_dead_letters
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.forms import Field, search_form
from sparrowmq.console.layout.list_page import ListPage
from sparrowmq.console.layout.message_results import Found, MessageResults, body_of, message_link
from sparrowmq.console.layout.tables import Column, Columns, link
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import time_of
from sparrowmq.console.reading.dead_letter_search import Wanted, file_of, line_of, topic_of
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.names import DLQ, dlq_topic

# A group, and how many dead letters it has; None if no broker reports it.
GroupRow = tuple[str, int | None]
_GROUPS: Final[Columns[GroupRow]] = (
    Column("Group", lambda row: link(row[0], "dlq", group=row[0])),
    Column("Dead letters", lambda row: "unknown" if row[1] is None else row[1], is_number=True),
)
_LETTERS: Final[Columns[ReceivedMessage]] = (
    Column("Dead since", lambda each: message_link(each, time_of(each.stored.store_timestamp_ms))),
    Column("Topic", topic_of, is_wide=True),
    Column("Retries", lambda each: each.reconsume_times, is_number=True),
    Column("Reason", reason_of, is_wide=True),
    Column("Tag", lambda each: each.stored.tags, is_wide=True),
    Column("Body", body_of),
)
_TIME: Final = "2026-11-20 08:00"
_FIELDS: Final = (
    Field("topic", "Topic"),
    Field("tag", "Tag"),
    Field("text", "Text in the body"),
    Field("since", "Since", hint=_TIME),
    Field("until", "Until", hint=_TIME),
)
SHOWN: Final = 100


async def _read(view: View, _: Collection[str]) -> Mapping[str, None]:
    names = [name for name in await view.look.topics() if view.look.kind_of(name) == "dlq"]
    return dict.fromkeys(name.removeprefix(DLQ) for name in names)


async def _rows(view: View, groups: Mapping[str, None]) -> list[GroupRow]:
    async def row(group: str) -> GroupRow:
        try:
            return group, (await view.admin.topic(dlq_topic(group))).count
        except SparrowError:
            return group, None

    return list(await asyncio.gather(*map(row, groups)))


_LIST: Final = ListPage(_GROUPS, _read, _rows, "no group has dead letters")


async def draw(view: View) -> None:
    group = view.query.get("group")
    if not group:
        explanation = "A message becomes a dead letter of a group when the last retry has failed."
        ui.label(explanation).classes("text-sm opacity-80")
        await _LIST(view)
        return
    with ui.row().classes("items-center gap-3"):
        view.link(f"Group {group}", "groups", group)
        view.link("All groups", "dlq")
    await _draw_letters(view, group)


async def _draw_letters(view: View, group: str) -> None:
    """However many dead letters there are, those of one page are in memory."""
    with ui.row().classes("w-full items-end gap-3"):
        form = search_form(view, _FIELDS)
    place = ui.row().classes("items-center gap-3")
    left_out = LeftOut(view)
    results = MessageResults(view, _LETTERS, SHOWN, "no dead letter fits", may_tick=True)
    ticked = results.table.selected

    async def chosen() -> AsyncIterator[ReceivedMessage]:
        """Those with a tick, or all that match the filters if none has one."""
        some = ticked()
        for each in some:
            yield each
        if some:
            return
        wanted = Wanted.of(view.query)
        async for each in await wanted.read(view.look.servers):
            if await wanted.fits(each):
                yield each

    async def export() -> None:
        if some := ticked():
            ui.download.content(b"".join([await line_of(each) for each in some]), file_of(group))
        else:
            view.go("dlq", "export", **view.query)

    async def search() -> None:
        view.remember(**form.values)
        servers = view.look.partial().counted
        await results.search(read(servers), lambda letter: Wanted.of(view.query).fits(letter))
        left_out.show(dlq_topic(group), servers.missing or ())

    async def read(servers: Servers) -> Found:
        return await Wanted.of(view.query).read(servers, newest_first=True)

    with place:
        retry_dead_letters(group, chosen).button(view)
        ui.button("Export", icon="download", on_click=export).props("outline no-caps dense")
    form.on_change(search, pause_ms=400)
    await search()


PAGE: Final = Page("/dlq", "Dead letters", draw, "mark_email_unread", "d")
