"""The result of a search for messages: a table that shows one page of them at a time, and reads no further."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from nicegui import context, ui

from sparrowmq.admin.message_search import Reading, beginning
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.layout.tables import Column, Columns, Details, Folding, Link, Table, link
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import BEGINNING, body_text, form_of, one_line, time_text
from sparrowmq.core.safe_text import counted

_MESSAGES_PER_REPORT: Final = 1000  # messages searched between two reports of it
_UNFOLDED_BYTES: Final = 16 << 10  # bytes of a body below its row
_PAGE_BYTES: Final = 16 << 20  # the messages of a page

Found = Reading | list[ReceivedMessage]
Fits = Callable[[ReceivedMessage], Awaitable[bool]]


async def _fits_always(_: ReceivedMessage) -> bool:
    return True


def message_link(message: ReceivedMessage, text: str) -> Link:
    """A link to a message by its place; several topics may contain the id that its producer made."""
    return link(text, "messages", message.queue.topic, message.stored.offset_id)


def body_of(message: ReceivedMessage) -> str:
    """The beginning of its body, or why it cannot be shown."""
    body = beginning(message.stored, BEGINNING)
    return one_line(body.content) if body.trouble is None else body.trouble


def details_of(message: ReceivedMessage) -> Details:
    """The body of a message, and what may be copied of it."""
    stored = message.stored
    body = beginning(stored, _UNFOLDED_BYTES + 1)
    text = body.trouble or body_text(body.content[:_UNFOLDED_BYTES], form_of(body.content[:_UNFOLDED_BYTES]))
    if len(body.content) > _UNFOLDED_BYTES:
        text += "\n… open the message for the rest"
    position = f"{message.queue.broker_name}:{message.queue.queue_id}:{message.offset}"
    keys = " ".join(stored.keys)
    lines = {"Id": message.msg_id, "Keys": keys, "Tag": stored.tags, "Position": position}
    head = "\n".join(f"{name:<9} {value}" for name, value in lines.items() if value)
    copied = {"id": message.msg_id, "key": keys, "body": text}
    copied = {name: value for name, value in copied.items() if value}
    return Details(f"{head}\n\n{text}", copied, message_link(message, "Open the message"))


MESSAGE_ROWS: Final = Folding[ReceivedMessage](details_of, lambda message: message.stored.offset_id)
MESSAGE_COLUMNS: Final[Columns[ReceivedMessage]] = (
    Column("Stored", lambda message: message_link(message, time_text(message.stored.store_timestamp_ms))),
    Column("Tag", lambda message: message.stored.tags, is_wide=True),
    Column("Keys", lambda message: " ".join(message.stored.keys), is_wide=True),
    Column("Body", body_of),
    Column(
        "Position",
        lambda message: f"{message.queue.broker_name}:{message.queue.queue_id}:{message.offset}",
        is_wide=True,
    ),
)


class MessageResults:
    """The table, the line above it, and the button for the next page."""

    def __init__(
        self, view: View, columns: Columns[ReceivedMessage], max_rows: int, empty: str, *, may_tick: bool = False
    ) -> None:
        self.shown: list[ReceivedMessage] = []
        self._view = view
        self._max_rows = max_rows
        self._reading: Reading | None = None
        self._fits: Fits = _fits_always
        self._before = 0  # messages on the pages before
        self._search = 0  # the number of the latest search; an older one that still runs shows nothing
        self._line = ui.label().classes("text-sm opacity-80").mark("result")
        self.table = Table(view, columns, empty=empty, folding=MESSAGE_ROWS, may_tick=may_tick)
        self._next = ui.button("Next page", icon="chevron_right", on_click=self._show_next_page)
        self._next.props("outline no-caps dense").set_visibility(False)
        context.client.on_delete(self.cancel)

    def cancel(self) -> None:
        self._search += 1

    async def search(self, work: Coroutine[Any, Any, Found], fits: Fits = _fits_always) -> None:
        """Show the first page of what is found and fits, instead of what was shown before."""
        self._search += 1
        search = self._search
        self._next.set_visibility(False)
        self._show([], "", "searching …")
        result = await self._view.attempt(work)
        if search != self._search:
            return
        if result is None:
            self._show([], "", "the search failed")
        elif isinstance(result, list):
            limit_note = f" (the first {self._max_rows}; there may be more)" if len(result) == self._max_rows else ""
            self._show(result, f"{counted(len(result), 'message')}{limit_note}")
        else:
            self._reading, self._fits, self._before = result, fits, 0
            await self._view.attempt(self._read_page(result))

    async def _show_next_page(self) -> None:
        if self._next.visible and self._reading is not None:  # and not pressed twice
            self._before += len(self.shown)
            await self._view.attempt(self._read_page(self._reading))

    async def _read_page(self, reading: Reading) -> None:
        search = self._search
        messages: list[ReceivedMessage] = []
        room_bytes = _PAGE_BYTES
        self._next.set_visibility(False)
        while len(messages) < self._max_rows and room_bytes > 0 and await reading.peek():
            message = await anext(reading)
            if search != self._search:
                return
            if await self._fits(message):
                messages.append(message)
                room_bytes -= message.store_size
            if reading.looked % _MESSAGES_PER_REPORT == 0:
                self._line.text = f"searching: {reading.looked:,} of {reading.total:,}"
        has_more = await reading.peek()
        if search == self._search:
            self._show(messages, range_text(self._before, len(messages), reading, has_more))
            self._next.set_visibility(has_more)

    def _show(self, messages: list[ReceivedMessage], line: str, empty: str = "no message fits") -> None:
        self.shown = messages
        self.table.element.selected = []
        self.table.show(messages, empty)
        self._line.text = line


def range_text(before: int, count: int, reading: Reading, has_more: bool) -> str:
    if not before and not has_more:
        return f"{count:,} of {reading.looked:,} messages"
    places = f"{before + 1:,} to {before + count:,}" if count else "no more"
    return f"{places}; {reading.looked:,} of {reading.total:,} messages searched"
