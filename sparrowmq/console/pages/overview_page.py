"""The first page: the rates of the cluster, now, in the last hour, and on the days of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nicegui import ui

from sparrowmq.console.history.samples import PERIOD_S, Rate
from sparrowmq.console.layout.charts import lines
from sparrowmq.console.layout.described_page import Description, Page, Update, charts, heading, section
from sparrowmq.console.layout.tables import Column, Columns
from sparrowmq.console.layout.trouble_panel import trouble_panel
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.cluster_page import broker_link, state_of
from sparrowmq.console.pages.trends import Trends
from sparrowmq.console.reading.cluster_view import BrokerNow

_COLUMNS: Final[Columns[BrokerNow]] = (
    Column("Broker", broker_link),
    Column("Role", lambda each: each.role),
    Column("Address", lambda each: each.address, is_wide=True),
    Column("State", state_of),
    Column("In per second", lambda each: each.in_per_second, is_number=True),
    Column("Out per second", lambda each: each.out_per_second, is_number=True),
    Column("In today", lambda each: each.received_today, is_number=True, is_wide=True),
    Column("In yesterday", lambda each: each.received_yesterday, is_number=True, is_wide=True),
    Column("Out today", lambda each: each.given_today, is_number=True, is_wide=True),
    Column("Out yesterday", lambda each: each.given_yesterday, is_number=True, is_wide=True),
)


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The content of the page; `kinds` has the kind of each topic."""

    brokers: Sequence[BrokerNow]
    kinds: Sequence[str]
    rates: Mapping[str, Sequence[Rate]]

    def totals(self) -> dict[str, str]:
        masters = [each for each in self.brokers if each.number == 0]
        return {
            "Brokers that answer": f"{sum(each.silence is None for each in self.brokers)} of {len(self.brokers)}",
            "In per second": f"{sum(each.in_per_second for each in masters):,.1f}",
            "Out per second": f"{sum(each.out_per_second for each in self.brokers):,.1f}",
            "Received today": f"{sum(each.received_today for each in masters):,}",
            "Delivered today": f"{sum(each.given_today for each in self.brokers):,}",
            "Topics": f"{self.kinds.count('topic'):,}",
            "With dead letters": f"{self.kinds.count('dlq'):,}",
        }

    def charts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            chart("Messages in per second", self.rates, lambda rate: rate.taken),
            chart("Messages out per second", self.rates, lambda rate: rate.given),
        )


async def _read(view: View) -> ClusterNow:
    brokers, topics = await _brokers(view), await view.look.topics()
    return ClusterNow(brokers, [view.look.kind_of(name) for name in topics], view.samples.rates())


async def _refresh(view: View, found: ClusterNow) -> ClusterNow:
    """Read the brokers again; the table of all topics would cost more."""
    return replace(found, brokers=await _brokers(view), rates=view.samples.rates())


async def _brokers(view: View) -> list[BrokerNow]:
    """The registered brokers, and those that were registered and are no more."""
    return [*await view.look.brokers(), *view.samples.troubles.lost()]


def chart(title: str, rates: Mapping[str, Sequence[Rate]], value: Callable[[Rate], float]) -> dict[str, Any]:
    """A line for each broker, over a minute at least."""
    times = [each.time_ms for points in rates.values() for each in points]
    span = (min(*times, max(times) - 60_000), max(times)) if times else None
    return lines(
        title,
        {name: [(each.time_ms, round(value(each), 1)) for each in points] for name, points in rates.items()},
        span,
    )


def _tiles(_: View, found: ClusterNow) -> Update[ClusterNow]:
    with ui.element().classes("tiles gap-3 w-full"):
        tiles = {name: _tile(name, value) for name, value in found.totals().items()}

    def update(now: ClusterNow) -> None:
        for name, value in now.totals().items():
            tiles[name].text = value

    return update


def _tile(name: str, value: str) -> ui.label:
    with ui.card().classes("px-4 py-3 gap-0").props("flat bordered"):
        ui.label(name).classes("text-xs opacity-70")
        return ui.label(value).classes("text-lg font-semibold")


def _trends(view: View, _: ClusterNow) -> None:
    heading("Trends")
    place = ui.column().classes("w-full gap-3")

    async def draw() -> None:
        with place:
            await Trends(view).draw()

    ui.timer(0.0, draw, once=True)


PAGE: Final = Page(
    "/",
    "Overview",
    Description[ClusterNow](
        _read,
        [
            trouble_panel(lambda view, _: view.samples.troubles.now()),
            _tiles,
            charts(ClusterNow.charts, "h-64 grow min-w-[280px] basis-0"),
            section("", _COLUMNS, lambda found: found.brokers, "no broker is registered at the name server"),
            _trends,
        ],
        PERIOD_S,
        _refresh,
    ),
    "space_dashboard",
    "o",
)
