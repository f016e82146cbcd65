"""One search for everything: topics, groups, brokers, and a message by its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.console.layout.listing import Column, Row, chosen, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError

_COLUMNS: Final = (Column("what", "What"), Column("name", "Name"))
MOST: Final = 100


async def draw(view: View) -> None:
    wanted = view.query.get("q", "").strip()
    if not wanted:
        ui.label("Type what you look for above: a part of a name, or the id of a message.")
        return
    rows = rows_of(view, wanted, list(await view.look.topics()), await view.look.groups(hidden=True))
    rows += [
        {
            "what": "broker",
            "name": link(f"{each.name} {each.role}", view.url("cluster", each.name, at=each.address)),
        }
        for each in await view.look.brokers()
        if chosen([f"{each.name} {each.address}"], wanted)
    ]
    if is_id(wanted):
        rows[:0] = await _messages(view, wanted)
    more = f"; the first {MOST} are shown" if len(rows) > MOST else ""
    ui.label(f"{len(rows):,} for {wanted}{more}").classes("text-sm opacity-80")
    table(_COLUMNS, rows[:MOST], "nothing has it in its name")


def rows_of(view: View, wanted: str, topics: Sequence[str], groups: Sequence[str]) -> list[Row]:
    """The topics and groups that have all words in their names.

    Those that are called so exactly come first, and after all others the topics that RocketMQ makes for groups.
    """
    found: list[tuple[bool, bool, str, str, str]] = []
    for what, place, names in (("topic", "topics", topics), ("group", "groups", groups)):
        found += [
            (name.lower() != wanted.lower(), name.startswith("%"), what, place, name)
            for name in chosen(names, wanted)
        ]
    found.sort(key=lambda each: each[:2])
    return [{"what": what, "name": link(name, view.url(place, name))} for *_, what, place, name in found]


def is_id(text: str) -> bool:
    """Whether it may be a message's id: 32 hexadecimal digits, or 56 with an address of IPv6."""
    return len(text) in (32, 56) and all(each in "0123456789abcdefABCDEF" for each in text)


async def _messages(view: View, ident: str) -> list[Row]:
    """The message of an offset id; one that its producer made needs its topic, which the search page asks for."""
    try:
        message = await view.admin.message(ident)
    except SparrowError:
        return [{"what": "message", "name": link(f"{ident}: name its topic", view.url("messages", id=ident))}]
    place = view.url("messages", message.queue.topic, message.stored.offset_id)
    return [{"what": "message", "name": link(ident, place)}]
