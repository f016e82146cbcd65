"""A search for dead letters, and their export: a line of JSON each, sent while the console reads them.

GET /dlq/export?group=billing&tag=paid&since=2026-11-20    however many there are, a few are in memory at a time
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from sparrowmq.client.admin.dead_letters import reason_of
from sparrowmq.client.admin.message_search import Reading, read, read_aside, readable
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.page_times import moment_of, time_of
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.reading.message_body import text_of
from sparrowmq.errors import InvalidName, NoRoute, SparrowError
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import check_group, dlq_topic

_LONG: Final = 64 << 10  # bytes of a body


@dataclass(frozen=True, slots=True)
class Wanted:
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
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """The search that an address asks for. Raises: ValueError, a time is invalid."""
        topic, tag, text = (query.get(name, "").strip() for name in ("topic", "tag", "text"))
        since, until = (moment_of(query.get(name), name) for name in ("since", "until"))
        return cls(query.get("group", ""), topic, tag, text, since, until)

    async def fits(self, letter: ReceivedMessage) -> bool:
        """Return whether a dead letter of the span matches."""
        if self.topic and topic_of(letter) != self.topic:
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


def topic_of(letter: ReceivedMessage) -> str:
    """The topic that it was sent to."""
    return letter.stored.properties.get(Property.RETRY_TOPIC, "an unknown topic")


async def line_of(letter: ReceivedMessage) -> bytes:
    """A dead letter as it is exported; a body that is no text is in hexadecimal digits. Made in a thread if long."""
    is_long = len(letter.stored.body) > _LONG or letter.stored.sys_flag & SysFlag.COMPRESSED
    return await asyncio.to_thread(_line_of, letter) if is_long else _line_of(letter)


def _line_of(letter: ReceivedMessage) -> bytes:
    stored = letter.stored
    body = readable(stored)
    text = text_of(body.content)
    line: dict[str, Any] = {
        "id": letter.msg_id,
        "topic": topic_of(letter),
        "stored": time_of(stored.store_timestamp_ms),
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
    """The file name of an export."""
    return f"dead-letters-{group}.jsonl"


def exporting(look: Look) -> Callable[[Request], Awaitable[Response]]:
    """Answers a visitor with all dead letters that match the address."""

    async def export(request: Request) -> Response:
        try:
            wanted = Wanted.of(request.query_params)
            servers = look.partial().counted
            reading = await wanted.read(servers)
        except (SparrowError, ValueError) as error:
            is_asked_wrong = isinstance(error, (ValueError, InvalidName))
            return PlainTextResponse(f"{error}\n", 400 if is_asked_wrong else 503)
        headers = {"content-disposition": f'attachment; filename="{file_of(wanted.group)}"'}
        lines = _lines(wanted, reading, servers, lambda: bool(request.state.session.is_alive))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    return export


async def _lines(wanted: Wanted, reading: Reading, servers: Servers, may: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The export. If it breaks off, or left out brokers, its last line says so: the status is already sent."""
    try:
        async for letter in reading:
            if not may():
                yield msgspec.json.encode({"broken_off": "you are logged out; log in again"}) + b"\n"
                return
            if await wanted.fits(letter):
                yield await line_of(letter)
        if servers.missing:
            yield msgspec.json.encode({"left_out": sorted(servers.missing)}) + b"\n"
    except SparrowError as error:
        yield msgspec.json.encode({"broken_off": str(error)}) + b"\n"
