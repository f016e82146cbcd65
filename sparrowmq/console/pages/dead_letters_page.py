"""Dead letters: which groups have some; of one group look, let it try them again after a dry run, and export them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from nicegui import context, ui

from sparrowmq.client.admin.topic_reading import Reading
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Listing, Row, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import time_of
from sparrowmq.console.pages.messages_page import body_of
from sparrowmq.console.reading.dead_letter_search import Wanted, file_of, line_of, topic_of
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.names import DLQ, dlq_topic

_GROUPS: Final = (Column("group", "Group"), Column("count", "Dead letters kept", is_number=True))
_LETTERS: Final = (
    Column("stored", "Given up"),
    Column("id", "Id", is_wide=True),
    Column("topic", "Topic", is_wide=True),
    Column("tries", "Tries", is_number=True),
    Column("tag", "Tag", is_wide=True),
    Column("body", "Body"),
)
_FIELDS: Final = {
    "topic": "Topic",
    "tag": "Tag",
    "text": "Text in the body",
    "since": "Since",
    "until": "Until",
}
SHOWN: Final = 100
_TELL: Final = 1000  # letters looked through between two words of it


async def draw(view: View) -> None:
    group = view.query.get("group")
    if not group:
        ui.label("What a group could not handle however often it was tried.").classes("text-sm opacity-80")
        await _groups(view).draw()
        return
    with ui.row().classes("items-center gap-3"):
        view.link(f"Group {group}", "groups", group)
        view.link("All groups", "dlq")
    await Letters(view, group).draw()


def _groups(view: View) -> Listing:
    """The groups that have some; how many, the brokers are asked for those that are shown."""

    async def names() -> Sequence[str]:
        return [
            name.removeprefix(DLQ) for name in await view.look.topics() if view.look.kind_of(name) == "dlq"
        ]

    async def row(group: str) -> Row:
        try:
            count = f"{(await view.admin.topic(dlq_topic(group))).count:,}"
        except SparrowError:
            count = "unknown"
        return {"group": link(group, view.url("dlq", group=group)), "count": count}

    async def rows(page: Sequence[str]) -> list[Row]:
        return list(await asyncio.gather(*map(row, page)))

    return Listing(view, _GROUPS, names, rows, "no group has dead letters")


class Letters:
    """The dead letters of one group: those that fit the filters are shown a page at a time, redriven and exported.

    However many there are, those of one page are in memory.
    """

    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._group = group
        self._reading: Reading | None = None
        self._shown: list[ReceivedMessage] = []
        self._before = 0
        self._search = 0  # the number of the latest; an elder one that is still under way gives up

    async def draw(self) -> None:
        """Filters, buttons, the table and its pages."""
        query = self._view.query
        with ui.row().classes("w-full items-end gap-3"):
            self._fields = {
                name: ui.input(label, value=query.get(name, "")) for name, label in _FIELDS.items()
            }
            for each in self._fields.values():
                each.props("outlined dense debounce=400").classes("grow min-w-[9rem]").on_value_change(
                    self._filtered
                )
            for name in ("since", "until"):
                self._fields[name].props["placeholder"] = "2026-11-20 08:00"
        with ui.row().classes("items-center gap-3"):
            if self._view.actions.may("resend"):
                ui.button(
                    "Let the group try again", icon="replay", on_click=self._redrive_dialog().open
                ).props("outline no-caps dense")
            ui.button("Export", icon="download", on_click=self._export).props("outline no-caps dense")
            self._told = ui.label().classes("text-sm opacity-80").mark("told")
        self._table = table(_LETTERS, [], "no dead letter fits")
        self._table.selection = "multiple"
        self._table.row_key = "at"
        self._next = ui.button("Next page", icon="chevron_right", on_click=self._go_on)
        self._next.props("outline no-caps dense").set_visibility(False)
        context.client.on_delete(self._give_up)
        await self._view.attempt(self._begin())

    # Looking --------------------------------------------------------------------------------------------------------

    async def _filtered(self) -> None:
        self._view.remember(**{name: each.value for name, each in self._fields.items()})
        await self._view.attempt(self._begin())

    async def _begin(self) -> None:
        self._give_up()
        search = self._search
        self._show([])
        reading = await Wanted.of(self._view.query).read(self._view.look)
        if search == self._search:
            self._reading, self._before = reading, 0
            await self._look_on()

    async def _go_on(self) -> None:
        if not self._next.visible:
            return  # pressed twice
        self._before += len(self._shown)
        await self._view.attempt(self._look_on())

    def _give_up(self) -> None:
        self._search += 1

    async def _look_on(self) -> None:
        """Read until a page is full."""
        assert self._reading is not None
        reading, search, wanted = self._reading, self._search, Wanted.of(self._view.query)
        found: list[ReceivedMessage] = []
        self._next.set_visibility(False)
        while len(found) < SHOWN and await reading.peek():
            letter = await anext(reading)
            if search != self._search:
                return
            if wanted.fits(letter):
                found.append(letter)
            if reading.looked % _TELL == 0:
                self._told.text = f"looking: {reading.looked:,} of {reading.total:,}"
        is_more = await reading.peek()
        if search == self._search:
            self._show(found)
            self._next.set_visibility(is_more)
            self._told.text = told_of(self._before, len(found), reading, is_more)

    def _show(self, found: list[ReceivedMessage]) -> None:
        self._shown = found
        self._table.selected = []
        self._table.rows = [{"at": at, **row_of(self._view, each)} for at, each in enumerate(found)]
        self._table.update()

    # Acting ---------------------------------------------------------------------------------------------------------

    def _selected(self) -> list[ReceivedMessage]:
        """Those with a tick."""
        return [self._shown[each["at"]] for each in self._table.selected]

    async def _chosen(self) -> AsyncIterator[ReceivedMessage]:
        """Those with a tick, or all that fit the filters where none has one."""
        selected = self._selected()
        for each in selected:
            yield each
        if selected:
            return
        wanted = Wanted.of(self._view.query)
        async for each in await wanted.read(self._view.look):
            if wanted.fits(each):
                yield each

    def _export(self) -> None:
        if selected := self._selected():
            ui.download.content(b"".join(map(line_of, selected)), file_of(self._group))
        else:
            self._view.go("dlq", "export", **self._view.query)

    def _redrive_dialog(self) -> ui.dialog:
        view = self._view

        async def count() -> None:
            topics, found = set(), 0
            async for each in self._chosen():
                topics.add(topic_of(each))
                found += 1
                if found % _TELL == 0:
                    told.text = f"{found:,} so far"
            told.text = (
                f"{found:,} dead letters of {', '.join(sorted(topics)) or 'no topic'} would be sent again."
            )

        async def dry_run() -> None:
            await view.attempt(count())

        async def redrive() -> bool:
            sent, last = 0, ""

            async def send() -> bool:
                nonlocal sent, last
                pause_s = 1 / rate.value if rate.value else 0.0
                async for each in self._chosen():
                    await view.actions.resend(each)
                    sent, last = sent + 1, time_of(each.stored.store_timestamp_ms)
                    told.text = f"{sent:,} sent"
                    await asyncio.sleep(pause_s)
                return True

            is_whole = bool(await view.attempt(send()))
            go_on = "" if is_whole or not sent else f"; it broke off after the one given up at {last}"
            view.tell(f"sent {sent:,} dead letters to {self._group} again{go_on}")
            return is_whole

        with dialog(f"Let {self._group} try again") as opened:
            ui.label(
                "Those with a tick, or all that fit the filters if none has one, go to the group once more, from the "
                "first try on; others do not get them. They stay here as well: redriven twice they come twice."
            ).classes("text-sm opacity-80")
            rate = (
                ui.number("Maximum messages per second", min=1, precision=0)
                .classes("w-full")
                .props("outlined dense")
            )
            told = ui.label().classes("text-sm font-medium").mark("dry-run")
            ui.button("Dry run", icon="visibility", on_click=dry_run).props("outline no-caps dense")
            buttons(opened, "Try again", redrive, "warning")
        return opened


def told_of(before: int, count: int, reading: Reading, is_more: bool) -> str:
    """How many of how many a page shows."""
    if not before and not is_more:
        return f"{count:,} of {reading.looked:,}"
    places = f"{before + 1:,} to {before + count:,}" if count else "no more"
    return f"{places}; {reading.looked:,} of {reading.total:,} looked through"


def row_of(view: View, letter: ReceivedMessage) -> Row:
    """What the table says of a dead letter."""
    stored = letter.stored
    place = view.url("messages", letter.queue.topic, stored.offset_id)
    return {
        "stored": link(time_of(stored.store_timestamp_ms), place),
        "id": link(letter.msg_id, place),
        "topic": topic_of(letter),
        "tries": letter.reconsume_times,
        "tag": stored.tags or "",
        "body": body_of(letter),
    }
