"""Messages looked for: of a topic by time, by key, or by id; the search stands in the address."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, Final

from nicegui import ui

from sparrowmq.client.admin.topic_reading import Reading, read
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.layout.listing import Column, Row, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import moment_of, time_of
from sparrowmq.console.reading.message_body import short
from sparrowmq.errors import RemoteProtocolError

COLUMNS: Final = (
    Column("stored", "Stored"),
    Column("id", "Id", is_wide=True),
    Column("tag", "Tag", is_wide=True),
    Column("keys", "Keys", is_wide=True),
    Column("place", "Place", is_wide=True),
    Column("body", "Body"),
)
LIMIT: Final = 200
_AGES: Final = {"5m": "5 minutes", "1h": "an hour", "1d": "a day", "7d": "7 days", "": "times below"}
_SPANS: Final = {"5m": timedelta(minutes=5), "1h": timedelta(hours=1), "1d": timedelta(1), "7d": timedelta(7)}


async def draw(view: View) -> None:
    await Messages(view).draw()


class Messages:
    """The form, what was found last, and the next page of it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._reading: Reading | None = None
        self._before = 0
        self._search_number = 0  # of the latest; what an elder one finds is not shown

    async def draw(self) -> None:
        """The form and the table; what the address asks for is searched at once."""
        query = self._view.query
        with ui.row().classes("w-full items-end gap-3"):
            topic = ui.input("Topic", value=query.get("topic", "")).classes("grow min-w-[10rem]")
            key = ui.input("Key", value=query.get("key", "")).classes("grow min-w-[8rem]")
            ident = ui.input("Id", value=query.get("id", "")).classes("grow min-w-[12rem]")
        with ui.row().classes("w-full items-end gap-3"):
            wanted = query.get("age", "" if query.get("since") else "1h")
            age = ui.select(_AGES, value=wanted if wanted in _AGES else "", label="Stored in the last")
            age.classes("min-w-[11rem]")
            since = ui.input("Since", value=query.get("since", ""), placeholder="2026-11-20 08:00")
            until = ui.input("Until", value=query.get("until", ""), placeholder="2026-11-20 09:00")
            for each in (since, until):
                each.bind_visibility_from(age, "value", backward=lambda value: not value)
                each.on("keydown.enter", self._search)
            ui.button("Search", icon="search", on_click=self._search).props("no-caps")
        for each in (topic, key, ident):
            each.on("keydown.enter", self._search)
        self._fields: dict[str, ui.input | ui.select] = {
            "topic": topic, "key": key, "id": ident, "age": age, "since": since, "until": until
        }  # fmt: skip
        for entry in self._fields.values():
            entry.props("outlined dense")
        self._told = ui.label().classes("text-sm opacity-80").mark("told")
        self._shown = table(COLUMNS, [], "nothing was looked for yet")
        self._next = ui.button("Next page", icon="chevron_right", on_click=self._go_on)
        self._next.props("outline no-caps dense").set_visibility(False)
        if query.get("topic") or query.get("id"):
            await self._search()

    async def _search(self) -> None:
        values = {name: (entry.value or "").strip() for name, entry in self._fields.items()}
        if values["age"]:
            values |= {"since": "", "until": ""}
        self._view.remember(**values)
        self._reading, self._before = None, 0
        self._search_number += 1
        await self._look(self._found())

    async def _go_on(self) -> None:
        if self._next.visible and self._reading is not None:
            self._before += LIMIT
            await self._look(_page(self._reading))

    async def _look(self, work: Coroutine[Any, Any, list[ReceivedMessage]]) -> None:
        """Show what comes of it, and meanwhile that it is under way."""
        self._next.set_visibility(False)
        self._show([], "looking …")
        search = self._search_number
        found = await self._view.attempt(work)
        if search != self._search_number:
            return
        if found is None:
            self._show([], "nothing was found out")
            return
        is_more = self._reading is not None and bool(await self._view.attempt(self._reading.peek()))
        self._show(found, "no message fits")
        self._next.set_visibility(is_more)
        if self._before or is_more:
            self._told.text = f"messages {self._before + 1:,} to {self._before + len(found):,}"
        else:
            more = (
                f" (the first {LIMIT}; there may be more)"
                if len(found) == LIMIT and not self._reading
                else ""
            )
            self._told.text = f"{len(found):,} messages{more}"

    def _show(self, found: list[ReceivedMessage], empty: str) -> None:
        self._told.text = ""
        self._shown.props["no-data-label"] = empty
        self._shown.rows = [{"at": at, **row_of(self._view, each)} for at, each in enumerate(found)]
        self._shown.update()

    async def _found(self) -> list[ReceivedMessage]:
        """What the address asks for. Raises: ValueError, it is not enough."""
        query, view = self._view.query, self._view
        topic, key, ident = query.get("topic"), query.get("key"), query.get("id")
        if ident:
            return [await view.admin.message(ident, topic)]
        if not topic:
            raise ValueError("name a topic; an id that its producer made needs one too")
        now = datetime.fromtimestamp(view.look.clock.now_ms() / 1000).astimezone()
        span = _SPANS.get(query.get("age", ""))
        since = now - span if span else moment_of(query.get("since"), "since")
        until = None if span else moment_of(query.get("until"), "until")
        if key:
            return await view.admin.find(topic, key, since=since, until=until, limit=LIMIT)
        if since is None:
            raise ValueError("say since when")
        search = self._search_number
        reading = await read(view.look.servers, topic, since, until)
        if search == self._search_number:
            self._reading = reading
        return await _page(reading)


async def _page(reading: Reading) -> list[ReceivedMessage]:
    """The next so many."""
    found: list[ReceivedMessage] = []
    while len(found) < LIMIT and await reading.peek():
        found.append(await anext(reading))
    return found


def row_of(view: View, message: ReceivedMessage) -> Row:
    """What the table says of a message."""
    stored = message.stored
    # By its place, as an id that its producer made may be in several topics.
    place = view.url("messages", message.queue.topic, stored.offset_id)
    return {
        "stored": link(time_of(stored.store_timestamp_ms), place),
        "id": link(message.msg_id, place),
        "tag": stored.tags or "",
        "keys": " ".join(stored.keys),
        "place": f"{message.queue.broker_name}:{message.queue.queue_id}:{message.offset}",
        "body": body_of(message),
    }


def body_of(message: ReceivedMessage) -> str:
    """The beginning of its body, or why it cannot be shown."""
    try:
        return short(message.body)
    except RemoteProtocolError as error:
        return str(error)
