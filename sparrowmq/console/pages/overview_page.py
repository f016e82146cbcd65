"""The first page: how much goes through the cluster now, and in the last hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from sparrowmq.client.admin.brokers import GIVEN, TAKEN
from sparrowmq.console.history.samples import PERIOD_S, Rate
from sparrowmq.console.layout.charts import lines
from sparrowmq.console.layout.listing import Column, Row, badge, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.reading.cluster_view import BrokerNow

_COLUMNS: Final = (
    Column("broker", "Broker"),
    Column("role", "Role", is_wide=True),
    Column("address", "Address", is_wide=True),
    Column("state", "State"),
    Column("taken", "In per second", is_number=True),
    Column("given", "Out per second", is_number=True),
    Column("today", "Received today", is_number=True, is_wide=True),
)


async def draw(view: View) -> None:
    brokers = await view.look.brokers()
    topics = await view.look.topics()
    kinds = [view.look.kind_of(name) for name in topics]
    with ui.element().classes("tiles gap-3 w-full"):
        tiles = {name: _tile(name) for name in totals(brokers)}
        _tile("Topics").text = f"{kinds.count('topic'):,}"
        letters = kinds.count("dlq")
        _tile("With dead letters").text = f"{letters:,}"
    place = ui.row().classes("w-full gap-3")
    with place:
        for _ in range(2):
            ui.element().classes("h-64 grow min-w-[280px] basis-0")
    charts: list[ui.echart] = []
    shown = table(_COLUMNS, [], "no broker is registered at the name server")

    def show(found: Sequence[BrokerNow]) -> None:
        for name, value in totals(found).items():
            tiles[name].text = value
        shown.rows = [{"id": at, **row_of(view, each)} for at, each in enumerate(found)]
        shown.update()

    def draw_charts() -> None:
        place.clear()
        with place:
            charts.extend(
                ui.echart(options).classes("h-64 grow min-w-[280px] basis-0")
                for options in options_of(view.samples.rates())
            )

    async def again() -> None:
        show(await view.look.brokers())
        for each, options in zip(charts, options_of(view.samples.rates()), strict=False):
            each.options.update(options)
            each.update()

    show(brokers)
    # ECharts is a megabyte of script: the page stands before a browser reads it.
    ui.timer(0.0, draw_charts, once=True)
    view.every(PERIOD_S, again)


def options_of(rates: Mapping[str, Sequence[Rate]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two charts."""
    return (
        chart("Messages in per second", rates, lambda rate: rate.taken),
        chart("Messages out per second", rates, lambda rate: rate.given),
    )


def totals(brokers: Sequence[BrokerNow]) -> dict[str, str]:
    """What the tiles say."""
    masters = [each for each in brokers if each.number == 0]
    taken = sum(each.per_second(*TAKEN) for each in masters)
    given = sum(out_of(each) for each in brokers)
    return {
        "Brokers": f"{sum(each.silence is None for each in brokers)} of {len(brokers)} answer",
        "In per second": f"{taken:,.1f}",
        "Out per second": f"{given:,.1f}",
        "Received today": f"{sum(each.received_today for each in masters):,}",
        "Delivered today": f"{sum(each.given_today for each in brokers):,}",
    }


def out_of(broker: BrokerNow) -> float:
    """Messages a second that a broker gives."""
    return broker.per_second(*GIVEN)


def row_of(view: View, broker: BrokerNow) -> Row:
    """What the table says of a broker."""
    return {
        "broker": link(broker.name, view.url("cluster", broker.name, at=broker.address)),
        "role": broker.role,
        "address": broker.address,
        "state": badge("up", "green-8") if broker.silence is None else badge("no answer", "red-8"),
        "taken": f"{broker.per_second(*TAKEN):,.1f}",
        "given": f"{out_of(broker):,.1f}",
        "today": f"{broker.received_today:,}",
    }


def chart(title: str, rates: Mapping[str, Sequence[Rate]], value: Callable[[Rate], float]) -> dict[str, Any]:
    """A line for each broker, over a minute at least."""
    times = [each.time_ms for points in rates.values() for each in points]
    span = (min(*times, max(times) - 60_000), max(times)) if times else None
    return lines(
        title,
        {name: [(each.time_ms, round(value(each), 1)) for each in points] for name, points in rates.items()},
        span,
    )


def _tile(name: str) -> ui.label:
    with ui.card().classes("px-4 py-3 gap-0").props("flat bordered"):
        ui.label(name).classes("text-xs opacity-70")
        return ui.label().classes("text-lg font-semibold")
