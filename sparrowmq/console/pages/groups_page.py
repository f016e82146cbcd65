"""All consumer groups: how far behind each is, in messages and in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Listing, Row, link, sparkline
from sparrowmq.console.layout.view import View
from sparrowmq.console.reading.cluster_view import behind_s
from sparrowmq.errors import SparrowError

_COLUMNS: Final = (
    Column("group", "Group"),
    Column("lag", "Lag", is_number=True),
    Column("age", "Lag time", is_number=True),
    Column("line", "Last hour", is_wide=True),
    Column("rate", "Messages per second", is_number=True, is_wide=True),
    Column("topics", "Topics", is_wide=True),
)
_PERIOD_S: Final = 10.0


async def draw(view: View) -> None:
    hidden = view.query.get("hidden") == "1"

    async def names() -> Sequence[str]:
        return await view.look.groups(hidden=hidden)

    async def rows(page: Sequence[str]) -> list[Row]:
        lags = await view.look.lags(list(page))
        return [row_of(view, name, lags[name]) for name in page]

    listing = Listing(view, _COLUMNS, names, rows, "no group fits")

    async def toggled(value: bool) -> None:
        nonlocal hidden
        hidden = value
        view.remember(hidden=1 if value else None, page=None)
        await view.attempt(listing.refresh())

    def box() -> None:
        ui.checkbox("RocketMQ's own", value=hidden, on_change=lambda event: toggled(event.value)).props(
            "dense"
        )

    def maker() -> None:
        if view.actions.may("create_group"):
            ui.button("New group", icon="add", on_click=_make_dialog(view).open).props("no-caps")

    await listing.draw(box, maker)
    view.every(_PERIOD_S, listing.refresh)


def row_of(view: View, name: str, found: GroupLag | SparrowError) -> Row:
    """What the table says of a group; one that nobody can tell of is told so."""
    row: Row = {"group": link(name, view.url("groups", name)), "line": "", "rate": "", "topics": ""}
    if isinstance(found, SparrowError):
        return row | {"lag": "unknown", "age": ""}
    past = view.samples.lags(name)
    return row | {
        "lag": f"{found.lag:,}",
        "age": span_text(behind_s(found, view.look.clock.now_ms())),
        "line": sparkline([lag for _, lag in past]),
        "rate": f"{found.per_second:,.1f}",
        "topics": ", ".join(
            sorted({each.queue.topic for each in found.queues if not each.queue.topic.startswith("%")})
        ),
    }


def span_text(seconds: float | None) -> str:
    """A span as people say it: 4 s, 3 min, 5 h, 2 d."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _make_dialog(view: View) -> ui.dialog:
    async def make() -> bool:
        wanted = name.value.strip()
        work = view.actions.create_group(
            wanted, max_retries=int(retries.value or 0), cluster=cluster.value.strip() or None
        )
        done = await view.act(work, f"group {wanted} is there")
        if done:
            view.go("groups", wanted)
        return done

    with dialog("New group") as opened:
        name = ui.input("Name").classes("w-full").props("outlined dense autofocus")
        retries = ui.number("Tries before the dead letters", value=16, min=0, precision=0).props(
            "outlined dense"
        )
        cluster = ui.input("Cluster, if there are several").classes("w-full").props("outlined dense")
        buttons(opened, "Make it", make)
    return opened
