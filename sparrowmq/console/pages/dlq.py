"""Dead letters: which groups have some; of one group look, let it try them again after a dry run, and export them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from nicegui import ui

from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.bodies import text_of
from sparrowmq.console.forms import buttons, dialog
from sparrowmq.console.listing import Column, Listing, Row, link, table
from sparrowmq.console.pages.messages import body_of, time_of
from sparrowmq.console.view import View
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.property_names import Property
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
MOST: Final = 1000
SHOWN: Final = 100


async def draw(view: View) -> None:
    group = view.query.get("group")
    if not group:
        ui.label("What a group could not handle however often it was tried.").classes("text-sm opacity-80")
        await _groups(view).draw()
        return
    with ui.row().classes("items-center gap-3"):
        view.link(f"Group {group}", "groups", group)
        view.link("All groups", "dlq")
    page = Letters(view, group, await view.admin.dead_letters(group, limit=MOST))
    page.draw()


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
    """The dead letters of one group: those that fit the filters are shown, redriven and exported."""

    def __init__(self, view: View, group: str, letters: Sequence[ReceivedMessage]) -> None:
        self._view = view
        self._group = group
        self._letters = letters

    def draw(self) -> None:
        """Filters, buttons and the table."""
        query = self._view.query
        with ui.row().classes("w-full items-end gap-3"):
            self._topic = ui.input("Topic", value=query.get("topic", ""))
            self._tag = ui.input("Tag", value=query.get("tag", ""))
            self._text = ui.input("Text in the body", value=query.get("text", ""))
            for each in (self._topic, self._tag, self._text):
                each.props("outlined dense debounce=250").classes("grow min-w-[9rem]").on_value_change(
                    self._filtered
                )
        with ui.row().classes("items-center gap-3"):
            if self._view.actions.may("resend"):
                ui.button(
                    "Let the group try again", icon="replay", on_click=self._redrive_dialog().open
                ).props("outline no-caps dense")
            ui.button("Export", icon="download", on_click=self._export).props("outline no-caps dense")
            self._told = ui.label().classes("text-sm opacity-80").mark("told")
        self._table = table(_LETTERS, [], "no dead letter fits")
        self._show()

    def chosen(self) -> list[ReceivedMessage]:
        """Those that fit the filters."""
        values = [(each.value or "").strip() for each in (self._topic, self._tag, self._text)]
        return fitting(self._letters, *values)

    def _filtered(self) -> None:
        self._view.remember(topic=self._topic.value, tag=self._tag.value, text=self._text.value)
        self._show()

    def _show(self) -> None:
        found = self.chosen()
        more = f", the eldest {MOST:,} looked at" if len(self._letters) == MOST else ""
        self._told.text = f"{len(found):,} of {len(self._letters):,}{more}" + (
            f"; the first {SHOWN} are shown" if len(found) > SHOWN else ""
        )
        self._table.rows = [{"id": at, **row_of(self._view, each)} for at, each in enumerate(found[:SHOWN])]
        self._table.update()

    def _export(self) -> None:
        lines = b"".join(msgspec.json.encode(as_json(each)) + b"\n" for each in self.chosen())
        ui.download.content(lines, f"dead-letters-{self._group}.jsonl")

    def _redrive_dialog(self) -> ui.dialog:
        view = self._view

        def dry_run() -> None:
            topics = sorted({topic_of(each) for each in self.chosen()})
            told.text = f"{len(self.chosen()):,} dead letters of {', '.join(topics) or 'no topic'} would be sent again."

        async def redrive() -> bool:
            letters, count = self.chosen(), 0
            pause_s = 1 / rate.value if rate.value else 0.0
            for each in letters:
                if await view.attempt(_sent(each)) is None:
                    break
                count += 1
                told.text = f"{count:,} of {len(letters):,}"
                await asyncio.sleep(pause_s)
            view.tell(f"sent {count:,} of {len(letters):,} dead letters to {self._group} again")
            return count == len(letters)

        async def _sent(letter: ReceivedMessage) -> bool:
            await view.actions.resend(letter)
            return True

        with dialog(f"Let {self._group} try again") as opened:
            ui.label(
                "Those that fit the filters go to the group once more, from the first try on; others do not get them. "
                "They stay here as well: redriven twice they come twice."
            ).classes("text-sm opacity-80")
            rate = (
                ui.number("At most so many a second", min=1, precision=0)
                .classes("w-full")
                .props("outlined dense")
            )
            told = ui.label().classes("text-sm font-medium").mark("dry-run")
            ui.button("Dry run", icon="visibility", on_click=dry_run).props("outline no-caps dense")
            buttons(opened, "Try again", redrive, "warning")
        return opened


def fitting(letters: Sequence[ReceivedMessage], topic: str, tag: str, text: str) -> list[ReceivedMessage]:
    """The letters of a topic, with a tag, and with a text in their body; an empty one wants nothing."""
    return [
        each
        for each in letters
        if (not topic or topic_of(each) == topic)
        and (not tag or each.stored.tags == tag)
        and (not text or text.encode() in each.stored.body or text in (text_of(each.stored.body) or ""))
    ]


def topic_of(letter: ReceivedMessage) -> str:
    """The topic that it was sent to."""
    return letter.stored.properties.get(Property.RETRY_TOPIC, "an unknown topic")


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


def as_json(letter: ReceivedMessage) -> dict[str, Any]:
    """A dead letter as it is exported; a body that is no text is in hexadecimal digits."""
    stored = letter.stored
    text = text_of(letter.body)
    return {
        "id": letter.msg_id,
        "topic": topic_of(letter),
        "stored": time_of(stored.store_timestamp_ms),
        "tries": letter.reconsume_times,
        "tag": stored.tags,
        "keys": stored.keys,
        "properties": stored.properties,
        **({"body": text} if text is not None else {"body_hex": letter.body.hex()}),
    }
