"""The first page: the rates of the cluster, now, in the last hour, and on the days of the history; and what is wrong.

/             figures and charts; below them the trends of one day in steps of five minutes, and the busiest topics
/conditions   conditions of brokers, brokers that do not answer, and those that are not registered
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final

from nicegui import ui

from sparrowmq.console.actions import forget_broker
from sparrowmq.console.cluster_view import BrokerNow
from sparrowmq.console.history import Kind, Points
from sparrowmq.console.layout.charts import bar_chart, line_chart
from sparrowmq.console.layout.page import Description, Page, Update, charts_part, heading, table_part
from sparrowmq.console.layout.tables import Column, Columns, filter_names
from sparrowmq.console.layout.trouble_panel import TroublePanel, trouble_panel
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.cluster import broker_link, state_of
from sparrowmq.console.samples import PERIOD_S, Rate

_BROKER_COLUMNS: Final[Columns[BrokerNow]] = (
    Column("Broker", broker_link),
    Column("Role", lambda each: each.role),
    Column("Address", lambda each: each.address, is_wide=True),
    Column("State", state_of),
    Column("In per second", lambda each: each.in_per_second, is_number=True),
    Column("Out per second", lambda each: each.out_per_second, is_number=True),
    Column("In today", lambda each: each.received_today, is_number=True, is_wide=True),
    Column("In yesterday", lambda each: each.received_yesterday, is_number=True, is_wide=True),
    Column("Out today", lambda each: each.delivered_today, is_number=True, is_wide=True),
    Column("Out yesterday", lambda each: each.delivered_yesterday, is_number=True, is_wide=True),
)
TOP: Final = 10
_REFRESH_S: Final = 5.0
_MIN_SPAN_MS: Final = 3_600_000
_MAX_OFFERED: Final = 50  # topics to choose from; typing finds all others
_HEALTHY: Final = "Nothing is wrong: every broker answers, and none reports a condition."


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The content of the page; `kinds` has the kind of each topic."""

    brokers: Sequence[BrokerNow]
    kinds: Sequence[str]
    rates: Mapping[str, Sequence[Rate]]

    def totals(self) -> dict[str, str]:
        masters = [broker for broker in self.brokers if broker.number == 0]
        return {
            "Brokers that answer": f"{sum(broker.silence is None for broker in self.brokers)} of {len(self.brokers)}",
            "In per second": f"{sum(master.in_per_second for master in masters):,.1f}",
            "Out per second": f"{sum(broker.out_per_second for broker in self.brokers):,.1f}",
            "Received today": f"{sum(master.received_today for master in masters):,}",
            "Delivered today": f"{sum(broker.delivered_today for broker in self.brokers):,}",
            "Topics": f"{self.kinds.count('topic'):,}",
            "With dead letters": f"{self.kinds.count('dlq'):,}",
        }

    def charts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            rate_chart("Messages in per second", self.rates, lambda rate: rate.received),
            rate_chart("Messages out per second", self.rates, lambda rate: rate.delivered),
        )


async def _read_cluster(view: View) -> ClusterNow:
    brokers, topics = await _brokers(view), await view.cluster.topics()
    return ClusterNow(brokers, [view.cluster.kind_of(name) for name in topics], view.samples.rates())


async def _refresh_cluster(view: View, data: ClusterNow) -> ClusterNow:
    """Read the brokers again; the table of all topics would cost more."""
    return replace(data, brokers=await _brokers(view), rates=view.samples.rates())


async def _brokers(view: View) -> list[BrokerNow]:
    return [*await view.cluster.brokers(), *view.samples.troubles.lost_brokers()]


def rate_chart(title: str, rates: Mapping[str, Sequence[Rate]], value: Callable[[Rate], float]) -> dict[str, Any]:
    """A line for each broker, over a minute at least."""
    times = [rate.time_ms for points in rates.values() for rate in points]
    span = (min(*times, max(times) - 60_000), max(times)) if times else None
    points_of = {name: [(rate.time_ms, round(value(rate), 1)) for rate in points] for name, points in rates.items()}
    return line_chart(title, points_of, span)


def _tiles(_: View, data: ClusterNow) -> Update[ClusterNow]:
    tiles: dict[str, ui.label] = {}
    with ui.element().classes("tiles gap-3 w-full"):
        for name, value in data.totals().items():
            with ui.card().classes("px-4 py-3 gap-0").props("flat bordered"):
                ui.label(name).classes("text-xs opacity-70")
                tiles[name] = ui.label(value).classes("text-lg font-semibold")

    def update(now: ClusterNow) -> None:
        for name, value in now.totals().items():
            tiles[name].text = value

    return update


def _update_trends(view: View, _: ClusterNow) -> None:
    heading("Trends")
    place = ui.column().classes("w-full gap-3")

    async def draw() -> None:
        with place:
            await Trends(view).draw()

    ui.timer(0.0, draw, once=True)


class Trends:
    """The trends as one visitor has them: a day, a topic, and a direction of messages, all in the address."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._history = view.samples.history
        self._topic_counts = view.samples.topic_counts
        self._day = day_of(view.query.get("day", ""), self._history.today())
        self._direction: Kind = "out" if view.query.get("way") == "out" else "in"
        self._topic = view.query.get("topic", "")

    async def draw(self) -> None:
        self._form()
        with ui.row().classes("w-full gap-3"):
            self._broker_trend, self._topic_top = _chart(), _chart()
        with ui.row().classes("w-full gap-3"):
            self._topic_trend = _chart()
        self._line = ui.label().classes("text-sm opacity-80")
        self._topic_top.on_point_click(lambda event: self._choose(event.name))
        self._show()
        self._view.every(_REFRESH_S, self._show)

    def _form(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._date = ui.input("Day", value=self._day.isoformat(), on_change=self._on_change).props(
                f'type=date outlined dense min="{self._history.first_day()}" max="{self._history.today()}"'
            )
            self._direction_toggle = ui.toggle(["in", "out"], value=self._direction, on_change=self._on_change).props(
                'no-caps dense padding="6px 14px"'
            )
            self._topics = (
                ui.select([], label="Topic", with_input=True, on_change=self._on_change)
                .props("outlined dense")
                .classes("grow min-w-[14rem]")
            )
            self._topics.on("input-value", self._on_typing, throttle=0.2, leading_events=False)

    async def _on_typing(self, event: Any) -> None:
        """Offer the topics that fit; a browser does not get all topics of a large cluster."""
        cluster = self._view.cluster
        names = [name for name in await cluster.topics() if cluster.kind_of(name) == "topic"]
        self._offer(filter_names(names, str(event.args or ""))[:_MAX_OFFERED])

    def _offer(self, names: Sequence[str]) -> None:
        offered = [*dict.fromkeys([*filter(None, [self._topic]), *names])]
        if offered != self._topics.options:
            self._topics.set_options(offered, value=self._topic or None)

    def _choose(self, topic: str) -> None:
        self._topic = topic
        self._offer([name for name, _ in self._topic_counts.top(_MAX_OFFERED)])
        self._topics.value = topic

    def _on_change(self) -> None:
        self._day = day_of(self._date.value or "", self._history.today())
        self._direction = self._direction_toggle.value
        self._topic = self._topics.value or ""
        day = None if self._day == self._history.today() else self._day.isoformat()
        self._view.remember(day=day, way=None if self._direction == "in" else self._direction, topic=self._topic)
        self._update_trends()

    def _show(self) -> None:
        topics = self._topic_counts.top(_MAX_OFFERED)
        _update_chart(self._topic_top, bar_chart("Topic TOP 10: messages in 24 hours", topics[:TOP]))
        if not self._topic and topics:
            self._topic = topics[0][0]
        if not self._topics.options:
            self._offer([name for name, _ in topics])
        self._line.text = self._problem(bool(topics))
        self._line.set_visibility(bool(self._line.text))
        self._update_trends()

    def _problem(self, has_topics: bool) -> str:
        """Why the charts are not complete."""
        if self._topic_counts.failure is not None:
            return f"Not all brokers report the message counts of topics: {self._topic_counts.failure}"
        if not self._topic_counts.is_complete:
            return "Topics are being counted for the first time."
        if has_topics:
            return ""
        return "No broker has counted a message of a topic yet. Brokers count within a minute."

    def _update_trends(self) -> None:
        history, day, way = self._history, self._day, self._direction
        of_brokers = busiest({name: history.points(way, name, day) for name in history.names(way, day)})
        of_topic = {self._topic: history.points("topic", self._topic, day)} if self._topic else {}
        span = span_of([*of_brokers.values(), *of_topic.values()], history.span(day), day == history.today())
        _update_chart(
            self._broker_trend, line_chart(f"Broker 5 min trend: messages {way} per second", of_brokers, span)
        )
        _update_chart(self._topic_trend, line_chart("Topic 5 min trend: messages in per second", of_topic, span))


def day_of(text: str, today: date) -> date:
    """The day that an address or a form names; today if it is missing, wrong or in the future."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return today
    # The calendar's first days have no midnight in every zone.
    return min(day, today) if day.year >= 1970 else today


def span_of(lines_shown: Sequence[Points], day: tuple[int, int], is_today: bool) -> tuple[int, int]:
    """The span of the trends: the whole day, or the known part of today, but at least an hour."""
    times = [time_ms for points in lines_shown for time_ms, _ in points]
    if not is_today or not times:
        return day
    return max(day[0], min(*times, max(times) - _MIN_SPAN_MS)), max(*times, day[0] + _MIN_SPAN_MS)


def busiest(points_of: dict[str, Points]) -> dict[str, Points]:
    """The ten lines with the greatest sums, by name."""
    order = sorted(points_of, key=lambda name: -sum(rate or 0.0 for _, rate in points_of[name]))
    return {name: points_of[name] for name in sorted(order[:TOP])}


def _chart() -> ui.echart:
    return ui.echart(line_chart("", {})).classes("h-72 grow min-w-[280px] basis-0")


def _update_chart(chart: ui.echart, options: dict[str, Any]) -> None:
    if options != chart.options:
        chart.options.clear()
        chart.options.update(options)
        chart.update()


OVERVIEW_PAGE: Final = Page(
    "/",
    "Overview",
    Description[ClusterNow](
        _read_cluster,
        [
            trouble_panel(lambda view, _: view.samples.troubles.current()),
            _tiles,
            charts_part(ClusterNow.charts, "h-64 grow min-w-[280px] basis-0"),
            table_part("", _BROKER_COLUMNS, lambda data: data.brokers, "no broker is registered at the name server"),
            _update_trends,
        ],
        PERIOD_S,
        _refresh_cluster,
    ),
    "space_dashboard",
    "o",
)


async def _draw_conditions(view: View) -> None:
    troubles = view.samples.troubles
    panel = TroublePanel(view, troubles.current(), _HEALTHY)
    place = ui.row().classes("gap-2")
    with_button: list[str] = []

    def show() -> None:
        panel.show(troubles.current())
        names = sorted({broker.name for broker in troubles.lost_brokers()})
        if names != with_button:
            with_button[:] = names
            place.clear()
            with place:
                for name in names:
                    forget_broker(name).button(view)

    show()
    view.every(PERIOD_S, show)


CONDITIONS_PAGE: Final = Page("/conditions", "Conditions", _draw_conditions, "warning_amber", "h")
