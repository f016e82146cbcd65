"""One search for topics, groups, brokers, and a message by its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.console.layout.page import Page
from sparrowmq.console.layout.tables import Column, Columns, Link, Table, filter_names, link
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError

# A kind of thing, and a link to it.
SearchRow = tuple[str, Link]
_COLUMNS: Final[Columns[SearchRow]] = (Column("Kind", lambda row: row[0]), Column("Name", lambda row: row[1]))
MAX_ROWS: Final = 100


async def draw(view: View) -> None:
    search_text = view.query.get("q", "").strip()
    if not search_text:
        ui.label("Type above what you search for: a part of a name, or the id of a message.")
        return
    rows = await _message(view, search_text) if is_id(search_text) else []
    rows += rows_of(search_text, list(await view.cluster.topics()), await view.cluster.groups(hidden=True))
    rows += [
        ("broker", link(f"{broker.name} {broker.role}", "cluster", broker.name, at=broker.address))
        for broker in await view.cluster.brokers()
        if filter_names([f"{broker.name} {broker.address}"], search_text)
    ]
    limit_note = f"; the first {MAX_ROWS} are shown" if len(rows) > MAX_ROWS else ""
    ui.label(f"{len(rows):,} for {search_text}{limit_note}").classes("text-sm opacity-80")
    Table(view, _COLUMNS, rows[:MAX_ROWS], "no name contains it")


def rows_of(search_text: str, topics: Sequence[str], groups: Sequence[str]) -> list[SearchRow]:
    """The topics and groups that have all words in their names.

    Exact matches come first, and the topics that RocketMQ makes for groups come last.
    """
    matches = [("topic", "topics", name) for name in filter_names(topics, search_text)]
    matches += [("group", "groups", name) for name in filter_names(groups, search_text)]
    matches.sort(key=lambda match: (match[2].lower() != search_text.lower(), match[2].startswith("%")))
    return [(kind, link(name, place, name)) for kind, place, name in matches]


def is_id(text: str) -> bool:
    """Whether a text may be a message's id: 32 hexadecimal digits, or 56 with an IPv6 address."""
    return len(text) in (32, 56) and all(character in "0123456789abcdefABCDEF" for character in text)


async def _message(view: View, message_id: str) -> list[SearchRow]:
    """The message of an offset id; an id that a producer made needs its topic, which the search page asks for."""
    try:
        message = await view.admin.message(message_id)
    except SparrowError:
        return [("message", link(f"{message_id}: name its topic", "messages", id=message_id))]
    return [("message", link(message_id, "messages", message.queue.topic, message.stored.offset_id))]


SEARCH_PAGE: Final = Page("/search", "Search", draw)
