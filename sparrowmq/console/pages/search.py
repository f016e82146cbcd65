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
    wanted = view.query.get("q", "").strip()
    if not wanted:
        ui.label("Type above what you search for: a part of a name, or the id of a message.")
        return
    rows = await _message(view, wanted) if is_id(wanted) else []
    rows += rows_of(wanted, list(await view.look.topics()), await view.look.groups(hidden=True))
    rows += [
        ("broker", link(f"{each.name} {each.role}", "cluster", each.name, at=each.address))
        for each in await view.look.brokers()
        if filter_names([f"{each.name} {each.address}"], wanted)
    ]
    more = f"; the first {MAX_ROWS} are shown" if len(rows) > MAX_ROWS else ""
    ui.label(f"{len(rows):,} for {wanted}{more}").classes("text-sm opacity-80")
    Table(view, _COLUMNS, rows[:MAX_ROWS], "no name contains it")


def rows_of(search_text: str, topics: Sequence[str], groups: Sequence[str]) -> list[SearchRow]:
    """The topics and groups that have all words in their names.

    Exact matches come first, and the topics that RocketMQ makes for groups come last.
    """
    found = [("topic", "topics", name) for name in filter_names(topics, search_text)]
    found += [("group", "groups", name) for name in filter_names(groups, search_text)]
    found.sort(key=lambda each: (each[2].lower() != search_text.lower(), each[2].startswith("%")))
    return [(kind, link(name, place, name)) for kind, place, name in found]


def is_id(text: str) -> bool:
    """Whether a text may be a message's id: 32 hexadecimal digits, or 56 with an IPv6 address."""
    return len(text) in (32, 56) and all(each in "0123456789abcdefABCDEF" for each in text)


async def _message(view: View, ident: str) -> list[SearchRow]:
    """The message of an offset id; an id that a producer made needs its topic, which the search page asks for."""
    try:
        message = await view.admin.message(ident)
    except SparrowError:
        return [("message", link(f"{ident}: name its topic", "messages", id=ident))]
    return [("message", link(ident, "messages", message.queue.topic, message.stored.offset_id))]


SEARCH_PAGE: Final = Page("/search", "Search", draw)
