"""The live tail of a topic, with a pause and filters: tag, SQL92, JSON path, text; all of them in the address."""

from __future__ import annotations

import asyncio
from typing import Final

from nicegui import background_tasks, context, ui

from sparrowmq.console.layout.listing import table
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.messages_page import COLUMNS, row_of
from sparrowmq.console.reading.live_tail import KEPT, Tail, Wanted
from sparrowmq.console.reading.message_body import JsonPath
from sparrowmq.errors import SparrowError

_LOOK_S: Final = 0.5
_FIELDS: Final = ("topic", "tag", "where", "path", "text")


async def draw(view: View) -> None:
    page = TailPage(view)
    page.draw()
    if view.query.get("topic"):
        await page.start()


class TailPage:
    """The page, and the task that follows the topic as long as it is open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._tail: Tail | None = None
        self._task: asyncio.Task[None] | None = None
        self._shown = -1

    def draw(self) -> None:
        """The form, the counter and the table."""
        query = self._view.query
        with ui.row().classes("w-full items-end gap-3"):
            self._fields = {
                "topic": ui.input("Topic"),
                "tag": ui.input("Tags: paid || refunded"),
                "where": ui.input("SQL92: amount > 5"),
                "path": ui.input("JSON path: $.amount > 5"),
                "text": ui.input("Text in the body"),
            }
            for name, each in self._fields.items():
                each.value = query.get(name, "")
                each.props("outlined dense").classes("grow min-w-[10rem]").on("keydown.enter", self.start)
        with ui.row().classes("items-center gap-3"):
            ui.button("Follow", icon="play_arrow", on_click=self.start).props("no-caps")
            self._pause = ui.button("Pause", icon="pause", on_click=self._toggle).props("outline no-caps")
            ui.button("Clear", icon="clear_all", on_click=self._clear).props("flat no-caps")
            self._told = ui.label("not following anything").classes("text-sm opacity-80").mark("told")
        self._table = table(COLUMNS, [], f"nothing yet; the newest {KEPT} are kept")
        self._view.every(_LOOK_S, self._show)
        context.client.on_delete(self._stop)

    async def start(self) -> None:
        """Follow what the form says, instead of what was followed before."""
        values = {name: (each.value or "").strip() for name, each in self._fields.items()}
        self._view.remember(**values)
        self._stop()
        try:
            wanted = wanted_of(values)
        except ValueError as error:
            self._view.complain(str(error))
            return
        self._tail, self._shown = Tail(wanted), -1
        self._pause.text = "Pause"
        self._task = background_tasks.create(self._follow(self._tail), name="tail")

    async def _follow(self, tail: Tail) -> None:
        try:
            await tail.run(self._view.look)
        except SparrowError as error:
            with self._table:
                self._view.complain(error)
            self._tail = None

    async def _show(self) -> None:
        tail = self._tail
        if tail is None:
            self._told.text = "not following anything"
            return
        state = "paused" if tail.is_paused else "following"
        self._told.text = f"{state} {tail.wanted.topic}: {tail.found:,} of {tail.examined:,} messages fit"
        if tail.fresh != self._shown:
            self._shown = tail.fresh
            newest = list(reversed(tail.messages))
            self._table.rows = [{"id": at, **row_of(self._view, each)} for at, each in enumerate(newest)]
            self._table.update()

    def _toggle(self) -> None:
        if self._tail is not None:
            self._tail.is_paused = not self._tail.is_paused
            self._pause.text = "Go on" if self._tail.is_paused else "Pause"

    def _clear(self) -> None:
        if self._tail is not None:
            self._tail.messages.clear()
            self._tail.fresh += 1

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._tail = None


def wanted_of(values: dict[str, str]) -> Wanted:
    """What a form wants. Raises: ValueError."""
    if not values["topic"]:
        raise ValueError("name a topic")
    if values["tag"] and values["where"]:
        raise ValueError("a broker filters by tags or by SQL92, not by both; clear one of them")
    path = JsonPath.parse(values["path"]) if values["path"] else None
    return Wanted(values["topic"], values["tag"] or None, values["where"] or None, path, values["text"])
