"""All topics: a filter, kinds, and the making of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from sparrowmq.client.admin.topics import PERMS, perm_of
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Listing, Row, link
from sparrowmq.console.layout.view import View
from sparrowmq.protocol.requests.bodies import TopicConfig

KINDS: Final = {"topic": "Topics", "retry": "Retries", "dlq": "Dead letters", "system": "RocketMQ's own"}
_COLUMNS: Final = (
    Column("name", "Topic"),
    Column("kind", "Kind", is_wide=True),
    Column("queues", "Queues", is_number=True),
    Column("perm", "Permission"),
    Column("brokers", "Brokers", is_wide=True),
)
EXPLAINED: Final = (
    "Each broker stores a topic's messages in this number of queues. One member of a group reads a queue at a time: "
    "the queues of all brokers together are the maximum number of members that can share the work. Messages of one "
    "queue are delivered in order. You can add queues at any time, and remove queues only in steps."
)
PERMS_EXPLAINED: Final = {
    "rw": "rw: read and written",
    "r": "r: consumers read what is there, producers get no more in",
    "w": "w: producers write, consumers do not see it",
    "none": "none: neither",
}


async def draw(view: View) -> None:
    kinds = [kind for kind in view.query.get("kinds", "topic").split(",") if kind in KINDS]
    # What the boxes say, for the listing to read whenever it is drawn anew.
    chosen = dict.fromkeys(kinds, True)

    async def names() -> Sequence[str]:
        return [name for name in await view.look.topics() if chosen.get(view.look.kind_of(name))]

    async def rows(page: Sequence[str]) -> list[Row]:
        table = await view.look.topics()
        return [row_of(view, name, table[name]) for name in page if name in table]

    listing = Listing(view, _COLUMNS, names, rows, "no topic fits")

    async def toggled(kind: str, value: bool) -> None:
        chosen[kind] = value
        view.remember(kinds=",".join(each for each, is_on in chosen.items() if is_on), page=None)
        await view.attempt(listing.refresh())

    def boxes() -> None:
        with ui.row().classes("gap-1"):
            for kind, label in KINDS.items():
                ui.checkbox(
                    label, value=kind in kinds, on_change=lambda event, kind=kind: toggled(kind, event.value)
                ).props("dense").classes("mr-2")

    def maker() -> None:
        if view.actions.may("create_topic"):
            opened = make_dialog(view)
            ui.button("New topic", icon="add", on_click=opened.open).props("no-caps")

    await listing.draw(boxes, maker)


def row_of(view: View, name: str, configs: Mapping[str, TopicConfig]) -> Row:
    """What the table says of a topic."""
    perms = {perm_of(each.perm) for each in configs.values()}
    return {
        "name": link(name, view.url("topics", name)),
        "kind": view.look.kind_of(name),
        "queues": queues_text(configs),
        "perm": perms.pop() if len(perms) == 1 else "differs",
        "brokers": ", ".join(sorted(configs)),
    }


def queues_text(configs: Mapping[str, TopicConfig]) -> str:
    """How many queues there are in all, and how many of them are only read or only written."""
    readable = sum(each.read_queue_nums for each in configs.values())
    writable = sum(each.write_queue_nums for each in configs.values())
    return f"{readable}" if readable == writable else f"{readable} r / {writable} w"


def make_dialog(view: View) -> ui.dialog:
    """The dialog that makes a topic."""

    async def make() -> bool:
        clusters = await view.attempt(view.admin.clusters()) or []
        wanted: dict[str, Any] = {
            "queues": int(queues.value or 0),
            "perm": perm.value,
            "cluster": cluster.value or (clusters[0] if len(clusters) == 1 else None),
        }
        done = await view.act(
            view.actions.create_topic(name.value.strip(), **wanted), f"topic {name.value} is there"
        )
        if done:
            view.go("topics", name.value.strip())
        return done

    with dialog("New topic") as opened:
        name = ui.input("Name").classes("w-full").props("outlined dense autofocus")
        ui.label(EXPLAINED).classes("text-sm opacity-80")
        queues = ui.number("Queues on each broker", value=8, min=1, precision=0).props("outlined dense")
        perm = (
            ui.select({each: PERMS_EXPLAINED[each] for each in PERMS}, value="rw", label="Permission")
            .classes("w-full")
            .props("outlined dense")
        )
        cluster = ui.input("Cluster, if there are several").classes("w-full").props("outlined dense")
        buttons(opened, "Make it", make)
    return opened
