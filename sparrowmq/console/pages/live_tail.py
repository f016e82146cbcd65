"""The live tail of a topic, with a pause and filters: tag, SQL92, JSON path, text. The filters are in the address.

Each page has one reader, without a group whose offsets it could move. Each reader has its own client, so several
people, or several pages of one person, can look at once.

A reader keeps the newest two hundred messages, of at most 16 MiB; a page shows them when it asks. A pause freezes the
shown messages, and new ones are still counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from nicegui import background_tasks, context, ui

from sparrowmq.admin.message_search import read_aside
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.layout.forms import Field, Values, search_form
from sparrowmq.console.layout.message_results import MESSAGE_COLUMNS, MESSAGE_ROWS
from sparrowmq.console.layout.page import Page
from sparrowmq.console.layout.tables import Table
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import JsonPath
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.names import TOOLS_GROUP

MAX_KEPT: Final = 200
MAX_KEPT_BYTES: Final = 16 << 20
_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class TailFilter:
    """The topic and the filters; the broker filters by tag or SQL92, and the console by path and text."""

    topic: str
    tag: str | None = None
    where: str | None = None
    path: JsonPath | None = None
    text: str = ""

    async def fits(self, message: ReceivedMessage) -> bool:
        """Return whether to show a message; no path and no text is in a body that cannot be decompressed."""
        if self.path is None and not self.text:
            return True
        body = await read_aside(message.stored)
        if body.trouble is not None or (self.path is not None and not self.path.fits(body.content)):
            return False
        return not self.text or self.text.encode() in body.content


@dataclass(slots=True)
class Tail:
    """The messages that have come."""

    filter: TailFilter
    messages: deque[ReceivedMessage] = field(default_factory=deque)
    examined_count: int = 0  # messages that came from the brokers
    matching_count: int = 0
    version: int = 0  # rises with each change of `messages`
    is_paused: bool = False
    is_begun: bool = False  # the reader has places in the queues

    async def take(self, messages: list[ReceivedMessage]) -> None:
        """Keep the messages that fit; while paused, only count them."""
        matching = [message for message in messages if await self.filter.fits(message)]
        self.examined_count += len(messages)
        self.matching_count += len(matching)
        if matching and not self.is_paused:
            self.messages.extend(matching)
            size_bytes = sum(message.store_size for message in self.messages)
            while len(self.messages) > MAX_KEPT or (size_bytes > MAX_KEPT_BYTES and len(self.messages) > 1):
                size_bytes -= self.messages.popleft().store_size
            self.version += 1

    async def run(self, cluster: ClusterView, silent_brokers: Callable[[], Collection[str]] = tuple) -> None:
        """Follow the topic until cancelled; the queues of silent brokers as soon as they answer.

        Raises: SparrowError, what the reader raises.
        """
        topic, tag, where = self.filter.topic, self.filter.tag, self.filter.where
        async with cluster.new_client() as mq, mq.pull_consumer(group=TOOLS_GROUP, start="latest") as reader:
            while True:
                silent = set(silent_brokers())
                queues = [queue for queue in await reader.queues(topic) if queue.broker_name not in silent]
                reader.assign(queues, tag, where=where)
                if not self.is_begun and queues:
                    await reader.seek_to_end()
                    self.is_begun = True
                while set(silent_brokers()) == silent:
                    if queues:
                        await self.take(await reader.poll())
                    else:
                        await cluster.clock.sleep(_RETRY_S)


_REFRESH_S: Final = 0.5
_IDLE: Final = "not following a topic"
_FIELDS: Final = (
    Field("topic", "Topic"),
    Field("tag", "Tags: paid || refunded"),
    Field("where", "SQL92: amount > 5"),
    Field("path", "JSON path: $.amount > 5"),
    Field("text", "Text in the body"),
)


async def draw(view: View) -> None:
    page = TailPage(view)
    if view.query.get("topic"):
        page.start()


class TailPage:
    """The page, and the task that follows the topic while the page is open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._tail: Tail | None = None
        self._task: asyncio.Task[None] | None = None
        self._shown_version = -1
        with ui.row().classes("w-full items-end gap-3"):
            self._form = search_form(view, _FIELDS)
        self._form.on_enter(self.start)
        with ui.row().classes("items-center gap-3"):
            ui.button("Follow", icon="play_arrow", on_click=self.start).props("no-caps")
            self._pause = ui.button("Pause", icon="pause", on_click=self._toggle_pause).props("outline no-caps")
            ui.button("Clear", icon="clear_all", on_click=self._clear).props("flat no-caps")
            self._line = ui.label(_IDLE).classes("text-sm opacity-80").mark("tail")
        self._left_out = LeftOut(view)
        self._table = Table(
            view, MESSAGE_COLUMNS, empty=f"no message yet; the newest {MAX_KEPT} are kept", folding=MESSAGE_ROWS
        )
        view.every(_REFRESH_S, self._show)
        context.client.on_delete(self._stop)

    def start(self) -> None:
        """Follow the topic of the form, and no longer the topic before."""
        self._view.remember(**self._form.values)
        self._stop()
        try:
            self._tail, self._shown_version = Tail(filter_of(self._form.values)), -1
        except ValueError as error:
            self._view.complain(str(error))
            return
        self._pause.text = "Pause"
        self._task = background_tasks.create(self._follow(self._tail), name="tail")

    async def _follow(self, tail: Tail) -> None:
        try:
            troubles = self._view.samples.troubles
            await tail.run(self._view.cluster, lambda: troubles.left_out_queues(tail.filter.topic))
        except SparrowError as error:
            with self._table.element:
                self._view.complain(error)
            self._tail = None

    def _show(self) -> None:
        tail = self._tail
        if tail is None:
            self._line.text = _IDLE
            return
        state = "paused" if tail.is_paused else "following"
        self._line.text = (
            f"{state} {tail.filter.topic}: {tail.matching_count:,} of {tail.examined_count:,} messages fit"
        )
        self._left_out.show(tail.filter.topic)
        if tail.version != self._shown_version:
            self._shown_version = tail.version
            self._table.show(list(reversed(tail.messages)))

    def _toggle_pause(self) -> None:
        if self._tail is not None:
            self._tail.is_paused = not self._tail.is_paused
            self._pause.text = "Continue" if self._tail.is_paused else "Pause"

    def _clear(self) -> None:
        if self._tail is not None:
            self._tail.messages.clear()
            self._tail.version += 1

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._tail = None


def filter_of(values: Values) -> TailFilter:
    """The filters of a form. Raises: ValueError."""
    if not values["topic"]:
        raise ValueError("name a topic")
    if values["tag"] and values["where"]:
        raise ValueError("a broker filters by tags or by SQL92, not by both; clear one of them")
    path = JsonPath.parse(values["path"]) if values["path"] else None
    return TailFilter(values["topic"], values["tag"] or None, values["where"] or None, path, values["text"])


TAIL_PAGE: Final = Page("/tail", "Live tail", draw, "stream", "l")
