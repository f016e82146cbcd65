"""One member of a group: what it says of itself."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from sparrowmq.console.layout.listing import Column, table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import NoMessage

_PAIRS: Final = (Column("name", "Setting"), Column("value", "Value"))
_SUBSCRIPTIONS: Final = (Column("topic", "Topic"), Column("kind", "Kind"), Column("expression", "Expression"))
_QUEUES: Final = (
    Column("topic", "Topic"),
    Column("broker", "Broker", is_wide=True),
    Column("queue", "Queue", is_number=True),
    Column("commit", "Handled up to", is_number=True),
    Column("cached", "Prefetched", is_number=True),
    Column("locked", "Locked", is_wide=True),
)


async def draw(view: View) -> None:
    group, client_id = view.args["group"], view.args["name"]
    view.link(f"Group {group}", "groups", group)
    found = {each.client_id: each for each in await view.admin.members(group)}
    if client_id not in found:
        raise NoMessage(client_id, f"among the online members of {group}")
    member = found[client_id]
    ui.label(f"{member.language} {member.version} at {member.address}").classes("text-sm opacity-80")
    if member.running is None:
        ui.label(f"The member does not report its state: {member.silence}").classes("whitespace-pre-wrap")
        return
    running = member.running
    ui.label("Subscriptions").classes("text-lg")
    table(
        _SUBSCRIPTIONS,
        [
            {"topic": each.topic, "kind": each.kind, "expression": each.expression}
            for each in running.subscription_set
        ],
    )
    ui.label("Queues").classes("text-lg")
    table(
        _QUEUES,
        [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "commit": f"{state.commit_offset:,}",
                "cached": f"{state.cached_msg_count:,}",
                "locked": "yes" if state.locked else "",
            }
            for queue, state in sorted(running.mq_table.items())
        ],
        "it has no queue now",
    )
    ui.label("Settings").classes("text-lg")
    table(
        _PAIRS,
        [{"name": key, "value": value} for key, value in sorted(running.properties.items())],
        wraps=True,
    )
    if running.jstack:
        with ui.expansion("Threads").classes("w-full"):
            ui.label(running.jstack).classes("mono whitespace-pre-wrap")
