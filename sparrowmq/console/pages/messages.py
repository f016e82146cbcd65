"""Messages looked for: of a topic by time, by key, or by id; the search stands in the address."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from nicegui import ui

from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.bodies import short
from sparrowmq.console.listing import Column, Row, link, table
from sparrowmq.console.moments import moment_of, time_of
from sparrowmq.console.view import View
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
    query = view.query
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
        ui.button("Search", icon="search", on_click=lambda: search()).props("no-caps")
    fields: tuple[ui.input | ui.select, ...] = (topic, key, ident, age, since, until)
    for entry in fields:
        entry.props("outlined dense")
    told = ui.label().classes("text-sm opacity-80").mark("told")
    shown = table(COLUMNS, [], "no message fits")

    async def search() -> None:
        wanted = {"topic": topic.value, "key": key.value, "id": ident.value, "age": age.value}
        view.remember(**{name: (value or "").strip() for name, value in wanted.items()})
        view.remember(
            since=since.value if not age.value else None, until=until.value if not age.value else None
        )
        found = await view.attempt(_found(view))
        if found is None:
            return
        more = f" (the first {LIMIT}; there may be more)" if len(found) == LIMIT else ""
        told.text = f"{len(found):,} messages{more}"
        shown.rows = [{"id": at, **row_of(view, each)} for at, each in enumerate(found)]
        shown.update()

    for field in (topic, key, ident, since, until):
        field.on("keydown.enter", search)
    if query.get("topic") or query.get("id"):
        await search()


async def _found(view: View) -> list[ReceivedMessage]:
    """What the address asks for. Raises: ValueError, it is not enough."""
    query = view.query
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
    return await view.admin.find(topic, since=since, until=until, limit=LIMIT)


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
