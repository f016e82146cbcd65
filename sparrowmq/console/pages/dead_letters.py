"""Dead letters: the groups that have some; of one group, search, retry after a dry run, and export.

The export is a line of JSON for each, sent while the console reads them:

GET /dlq/export?group=billing&tag=paid&since=2026-11-20    however many there are, a few are in memory at a time
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from nicegui import ui
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from sparrowmq.admin.dead_letters import reason_of
from sparrowmq.admin.message_search import Reading, read, read_aside, readable
from sparrowmq.admin.servers import Servers
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.actions import retry_dead_letters
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.layout.forms import Field, search_form
from sparrowmq.console.layout.message_results import Found, MessageResults, body_of, message_link
from sparrowmq.console.layout.page import ListPage, Page
from sparrowmq.console.layout.tables import Column, Columns, link
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import original_topic, parse_time, time_text
from sparrowmq.core.safe_text import printable_text
from sparrowmq.errors import InvalidName, NoRoute, SparrowError
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.names import DLQ, check_group, dlq_topic

# A group, and how many dead letters it has; None if no broker reports it.
GroupRow = tuple[str, int | None]
_GROUPS: Final[Columns[GroupRow]] = (
    Column("Group", lambda row: link(row[0], "dlq", group=row[0])),
    Column("Dead letters", lambda row: "unknown" if row[1] is None else row[1], is_number=True),
)
_LETTERS: Final[Columns[ReceivedMessage]] = (
    Column("Dead since", lambda each: message_link(each, time_text(each.stored.store_timestamp_ms))),
    Column("Topic", original_topic, is_wide=True),
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
ROWS_PER_PAGE: Final = 100
_LARGE_BODY_BYTES: Final = 64 << 10  # bytes of a body


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters of a group: of a topic, with a tag, with a text in their body, given up in a span of time.

    An empty text wants nothing.
    """

    group: str
    topic: str = ""
    tag: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> DeadLetterFilter:
        """The search that an address asks for. Raises: ValueError, a time is invalid."""
        topic, tag, text = (query.get(name, "").strip() for name in ("topic", "tag", "text"))
        since, until = (parse_time(query.get(name), name) for name in ("since", "until"))
        return cls(query.get("group", ""), topic, tag, text, since, until)

    async def fits(self, letter: ReceivedMessage) -> bool:
        """Return whether a dead letter of the span matches."""
        if self.topic and original_topic(letter) != self.topic:
            return False
        if self.tag and letter.stored.tags != self.tag:
            return False
        return not self.text or self.text.encode() in (await read_aside(letter.stored)).content

    async def read(self, servers: Servers, *, newest_first: bool = False) -> Reading:
        """All dead letters of the group in the span, matching or not. Raises: InvalidName."""
        topic = dlq_topic(check_group(self.group))
        try:
            return await read(servers, topic, self.since, self.until, newest_first=newest_first)
        except NoRoute:
            return Reading([])


async def _read(view: View, _: Collection[str]) -> Mapping[str, None]:
    names = [name for name in await view.cluster.topics() if view.cluster.kind_of(name) == "dlq"]
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
    if group := view.query.get("group"):
        with ui.row().classes("items-center gap-3"):
            view.link(f"Group {group}", "groups", group)
            view.link("All groups", "dlq")
        await _draw_letters(view, group)
    else:
        explanation = "A message becomes a dead letter of a group when the last retry has failed."
        ui.label(explanation).classes("text-sm opacity-80")
        await _LIST(view)


async def _draw_letters(view: View, group: str) -> None:
    """However many dead letters there are, those of one page are in memory."""
    with ui.row().classes("w-full items-end gap-3"):
        form = search_form(view, _FIELDS)
    place = ui.row().classes("items-center gap-3")
    left_out = LeftOut(view)
    results = MessageResults(view, _LETTERS, ROWS_PER_PAGE, "no dead letter fits", may_tick=True)
    ticked = results.table.selected

    async def chosen_letters() -> AsyncIterator[ReceivedMessage]:
        """Those with a tick, or all that match the filters if none has one."""
        letters = ticked()
        for letter in letters:
            yield letter
        if letters:
            return
        letter_filter = DeadLetterFilter.from_query(view.query)
        async for letter in await letter_filter.read(view.cluster.servers):
            if await letter_filter.fits(letter):
                yield letter

    async def export() -> None:
        if letters := ticked():
            ui.download.content(b"".join([await line_of(letter) for letter in letters]), file_of(group))
        else:
            view.go("dlq", "export", **view.query)

    async def search() -> None:
        view.remember(**form.values)
        servers = view.cluster.partial_admin().counted
        await results.search(read_letters(servers), lambda letter: DeadLetterFilter.from_query(view.query).fits(letter))
        left_out.show(dlq_topic(group), servers.missing or ())

    async def read_letters(servers: Servers) -> Found:
        return await DeadLetterFilter.from_query(view.query).read(servers, newest_first=True)

    with place:
        retry_dead_letters(group, chosen_letters).button(view)
        ui.button("Export", icon="download", on_click=export).props("outline no-caps dense")
    form.on_change(search, pause_ms=400)
    await search()


async def line_of(letter: ReceivedMessage) -> bytes:
    """A dead letter as it is exported; a body that is no text is in hexadecimal digits. Made in a thread if long."""
    is_long = len(letter.stored.body) > _LARGE_BODY_BYTES or letter.stored.sys_flag & SysFlag.COMPRESSED
    return await asyncio.to_thread(_line_of, letter) if is_long else _line_of(letter)


def _line_of(letter: ReceivedMessage) -> bytes:
    stored = letter.stored
    body = readable(stored)
    text = printable_text(body.content)
    line: dict[str, Any] = {
        "id": letter.msg_id,
        "topic": original_topic(letter),
        "stored": time_text(stored.store_timestamp_ms),
        "tries": letter.reconsume_times,
        "reason": reason_of(letter),
        "tag": stored.tags,
        "keys": stored.keys,
        "properties": stored.properties,
        **({"body": text} if text is not None else {"body_hex": body.content.hex()}),
        **({"body_trouble": body.trouble} if body.trouble is not None else {}),
    }
    return msgspec.json.encode(line) + b"\n"


def file_of(group: str) -> str:
    return f"dead-letters-{group}.jsonl"


def exporting(cluster: ClusterView) -> Callable[[Request], Awaitable[Response]]:
    """Answers a visitor with all dead letters that match the address."""

    async def export(request: Request) -> Response:
        try:
            letter_filter = DeadLetterFilter.from_query(request.query_params)
            servers = cluster.partial_admin().counted
            reading = await letter_filter.read(servers)
        except (SparrowError, ValueError) as error:
            is_bad_request = isinstance(error, (ValueError, InvalidName))
            return PlainTextResponse(f"{error}\n", 400 if is_bad_request else 503)
        headers = {"content-disposition": f'attachment; filename="{file_of(letter_filter.group)}"'}
        lines = _lines(letter_filter, reading, servers, lambda: bool(request.state.session.is_alive))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    return export


async def _lines(
    letter_filter: DeadLetterFilter, reading: Reading, servers: Servers, is_logged_in: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The export. If it breaks off, or left out brokers, its last line says so: the status is already sent."""
    try:
        async for letter in reading:
            if not is_logged_in():
                yield msgspec.json.encode({"broken_off": "you are logged out; log in again"}) + b"\n"
                return
            if await letter_filter.fits(letter):
                yield await line_of(letter)
        if servers.missing:
            yield msgspec.json.encode({"left_out": sorted(servers.missing)}) + b"\n"
    except SparrowError as error:
        yield msgspec.json.encode({"broken_off": str(error)}) + b"\n"


DEAD_LETTERS_PAGE: Final = Page("/dlq", "Dead letters", draw, "mark_email_unread", "d")
