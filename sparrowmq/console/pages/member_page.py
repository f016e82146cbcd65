"""One member of a group: its subscriptions, its queues and its settings, as the member reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.groups import Member
from sparrowmq.console.layout.described_page import Description, Page, Part, links, section, text
from sparrowmq.console.layout.tables import Column, Columns, link, pairs
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumerRunning, ProcessQueueState
from sparrowmq.protocol.subscription import Subscription

_SUBSCRIPTIONS: Final[Columns[Subscription]] = (
    Column("Topic", lambda each: each.topic),
    Column("Kind", lambda each: each.kind),
    Column("Expression", lambda each: each.expression),
)
_QUEUES: Final[Columns[tuple[MessageQueue, ProcessQueueState]]] = (
    Column("Topic", lambda row: row[0].topic),
    Column("Broker", lambda row: row[0].broker_name),
    Column("Queue", lambda row: row[0].queue_id, is_number=True),
    Column("Committed offset", lambda row: row[1].commit_offset, is_number=True, is_wide=True),
    Column("Prefetched", lambda row: row[1].cached_msg_count, is_number=True),
    Column("Locked", lambda row: row[1].locked, is_wide=True),
)
# A member, and its group.
_Found = tuple[Member, str]


_RUNNING: Final[Sequence[Part[ConsumerRunning]]] = (
    section("Subscriptions", _SUBSCRIPTIONS, lambda running: running.subscription_set),
    section("Queues", _QUEUES, lambda running: sorted(running.mq_table.items()), "it has no queue now"),
    section("Settings", pairs("Setting", "Value"), lambda running: sorted(running.properties.items()), wraps=True),
)


async def _read(view: View) -> _Found:
    group, client_id = view.args["group"], view.args["name"]
    found = {each.client_id: each for each in await view.admin.members(group)}
    if client_id not in found:
        online = ", ".join(sorted(found)) or "none"
        raise NotThere(f"{client_id} is no online member of group {group}; online: {online}")
    return found[client_id], group


def _state(view: View, found: _Found) -> None:
    running = found[0].running
    if running is None:
        why = f"The member does not report its state: {found[0].silence}"
        ui.label(why).classes("whitespace-pre-wrap")
        return
    for part in _RUNNING:
        part(view, running)
    if running.jstack:
        with ui.expansion("Threads").classes("w-full"):
            ui.label(running.jstack).classes("mono whitespace-pre-wrap")


PAGE: Final = Page(
    "/groups/{group}/members/{name:path}",
    "Member {name}",
    Description[_Found](
        _read,
        [
            links(lambda found: [link(f"Group {found[1]}", "groups", found[1])]),
            text(lambda found: f"{found[0].language} {found[0].version} at {found[0].address}"),
            _state,
        ],
    ),
)
