"""All consumer groups, with the lag of each in messages and in time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.console.actions import create_group
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.list_page import PAGE as PER_PAGE
from sparrowmq.console.layout.list_page import Boxes, ListPage
from sparrowmq.console.layout.tables import Amount, Column, Columns, Sparkline, link
from sparrowmq.console.layout.view import View
from sparrowmq.console.reading.cluster_view import behind_s
from sparrowmq.console.reading.reset_effects import topics_of
from sparrowmq.console.reading.topic_figures import FRESH_S, OLD_S


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group; without a lag if no broker reports it."""

    name: str
    lag: GroupLag | None
    age: Amount | None
    past: Sparkline
    members: int | None


_COLUMNS: Final[Columns[GroupRow]] = (
    Column("Group", lambda row: link(row.name, "groups", row.name)),
    Column("Lag", lambda row: row.lag.lag if row.lag else "unknown", is_number=True),
    Column("Lag time", lambda row: row.age, is_number=True),
    Column("Last hour", lambda row: row.past, is_wide=True, is_sorted=False),
    Column("Members", lambda row: "unknown" if row.members is None else row.members, is_number=True),
    Column(
        "Messages per second",
        lambda row: row.lag.per_second if row.lag else None,
        is_number=True,
        is_wide=True,
    ),
    Column("Topics", lambda row: ", ".join(topics_of(row.lag)) if row.lag else "", is_wide=True),
)


async def _read(view: View, ticked: Collection[str]) -> Mapping[str, None]:
    return dict.fromkeys(await view.look.groups(hidden="1" in ticked))


async def _rows(view: View, names: Mapping[str, None]) -> list[GroupRow]:
    lags = await view.look.lags(list(names))
    is_page = len(names) <= PER_PAGE
    members = await view.look.members(list(names), FRESH_S if is_page else OLD_S)
    return [
        _row(view, name, lag if isinstance(lag, GroupLag) else None, members[name], is_page)
        for name, lag in lags.items()
    ]


def _row(view: View, name: str, lag: GroupLag | None, members: int | None, is_watched: bool) -> GroupRow:
    if lag is None:
        return GroupRow(name, None, None, Sparkline([]), members)
    behind = behind_s(lag, view.look.clock.now_ms())
    age = None if behind is None else Amount(behind, span_text(behind))
    past = view.samples.lags(name) if is_watched else view.samples.known_lags(name)
    return GroupRow(name, lag, age, Sparkline([each for _, each in past]), members)


def span_text(seconds: float | None) -> str:
    """A span as people say it: 4 s, 3 min, 5 h, 2 d."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


PAGE: Final = Page(
    "/groups",
    "Consumers",
    ListPage(
        _COLUMNS,
        _read,
        _rows,
        "no group fits",
        Boxes("hidden", {"1": "RocketMQ's own"}),
        lambda view: create_group().button(view, "no-caps"),
        10.0,
    ),
    "groups",
    "g",
)
