"""One topic: its queues, route and groups; change, delete, send, reset and skip."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from nicegui import ui

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.topics import Topic
from sparrowmq.console.layout.forms import buttons, destroy, dialog
from sparrowmq.console.layout.listing import Column, Row, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.topics_page import PERMS_EXPLAINED
from sparrowmq.console.reset_dialog import reset_dialog
from sparrowmq.console.send_dialog import send_dialog

_QUEUES: Final = (
    Column("broker", "Broker"),
    Column("queue", "Queue", is_number=True),
    Column("first", "First", is_number=True, is_wide=True),
    Column("next", "Next", is_number=True, is_wide=True),
    Column("count", "Messages", is_number=True),
    Column("stored", "Last stored"),
)
_SHARES: Final = (
    Column("broker", "Broker"),
    Column("addresses", "Addresses"),
    Column("read", "Read queues", is_number=True),
    Column("write", "Write queues", is_number=True),
    Column("perm", "Permission"),
)
_GROUPS: Final = (
    Column("group", "Group"),
    Column("lag", "Lag", is_number=True),
    Column("rate", "Messages per second", is_number=True, is_wide=True),
)


async def draw(view: View) -> None:
    name = view.args["name"]
    topic = await view.admin.topic(name)
    route = await view.look.servers.route(name)
    with ui.row().classes("gap-2"):
        _buttons(view, topic)
    with ui.row().classes("gap-6 text-sm opacity-80"):
        ui.label(f"{topic.count:,} messages in {len(topic.queues)} queues")
        ui.label(f"kind: {view.look.kind_of(name)}")
    ui.label("Queues").classes("text-lg")
    shown = table(_QUEUES, queue_rows(topic), "it has no queues")
    ui.label("Route").classes("text-lg")
    addresses = {each.broker_name: each.broker_addrs for each in route.broker_datas}
    table(_SHARES, share_rows(topic, addresses), wraps=True)
    ui.label("Consumer groups").classes("text-lg")
    await _groups(view, name)

    async def again() -> None:
        shown.rows = [{"id": at, **row} for at, row in enumerate(queue_rows(await view.admin.topic(name)))]
        shown.update()

    view.every(5.0, again)


def queue_rows(topic: Topic) -> list[Row]:
    """What the table says of a topic's queues."""
    return [
        {
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "first": f"{each.min_offset:,}",
            "next": f"{each.max_offset:,}",
            "count": f"{each.max_offset - each.min_offset:,}",
            "stored": moment(each.last_stored),
        }
        for each in topic.queues
    ]


def share_rows(topic: Topic, addresses: dict[str, dict[int, str]]) -> list[Row]:
    """What the table says of a topic's brokers."""
    return [
        {
            "broker": each.broker,
            "addresses": ", ".join(
                f"{number}: {at}" for number, at in sorted(addresses.get(each.broker, {}).items())
            ),
            "read": each.read_queues,
            "write": each.write_queues,
            "perm": each.perm,
        }
        for each in topic.shares
    ]


def moment(time: datetime | None) -> str:
    """A time as tables show it."""
    return time.strftime("%Y-%m-%d %H:%M:%S") if time is not None else ""


async def _groups(view: View, name: str) -> None:
    groups = await topics.consumers_of(view.look.servers, name)
    lags = {group: await view.attempt(view.admin.lag(group, name)) for group in groups}
    rows: list[Row] = [
        {
            "group": link(group, view.url("groups", group)),
            "lag": "unknown" if lag is None else f"{lag.lag:,}",
            "rate": "" if lag is None else f"{lag.per_second:.1f}",
        }
        for group, lag in lags.items()
    ]
    table(_GROUPS, rows, "no group has consumed it")


def _buttons(view: View, topic: Topic) -> None:
    name, may = topic.name, view.actions.may
    ui.button("Messages", icon="mail", on_click=lambda: view.go("messages", topic=name)).props(
        "outline no-caps dense"
    )
    ui.button("Live tail", icon="stream", on_click=lambda: view.go("tail", topic=name)).props(
        "outline no-caps dense"
    )
    if may("send"):
        ui.button("Send", icon="send", on_click=send_dialog(view, name).open).props("outline no-caps dense")
    if may("reset"):
        ui.button("Reset offsets", icon="history", on_click=reset_dialog(view, topic=name).open).props(
            "outline no-caps dense"
        )
    if may("change_topic"):
        ui.button("Change", icon="tune", on_click=_change_dialog(view, topic).open).props(
            "outline no-caps dense"
        )
    if may("delete_topic"):
        ui.button("Delete", icon="delete", on_click=_delete_dialog(view, topic).open).props(
            "outline no-caps dense color=negative"
        )


def _change_dialog(view: View, topic: Topic) -> ui.dialog:
    first = topic.shares[0]

    async def change() -> bool:
        wanted: dict[str, Any] = {
            "read_queues": int(read.value or 0),
            "write_queues": int(write.value or 0),
            "perm": perm.value,
        }
        done = await view.act(
            view.actions.change_topic(topic.name, **wanted), f"topic {topic.name} is changed"
        )
        if done:
            view.reload()
        return done

    with dialog(f"Change {topic.name}") as opened:
        ui.label(
            "To have fewer queues without losing messages, lower the write queues first, wait until all is consumed, "
            "and then lower the read queues."
        ).classes("text-sm opacity-80")
        read = ui.number("Read queues on each broker", value=first.read_queues, min=0, precision=0)
        write = ui.number("Write queues on each broker", value=first.write_queues, min=0, precision=0)
        perm = ui.select(dict(PERMS_EXPLAINED), value=first.perm, label="Permission")
        for each in (read, write, perm):
            each.classes("w-full").props("outlined dense")
        buttons(opened, "Change it", change)
    return opened


def _delete_dialog(view: View, topic: Topic) -> ui.dialog:
    async def delete() -> bool:
        done = await view.act(view.actions.delete_topic(topic.name), f"topic {topic.name} is deleted")
        if done:
            view.go("topics")
        return done

    warning = (
        f"{topic.count:,} messages go with it, on {len(topic.shares)} brokers. Nothing brings them back."
    )
    return destroy(view, f"Delete {topic.name}", warning, topic.name, delete)
