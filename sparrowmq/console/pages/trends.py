"""The trends of one day on the first page: brokers and topics in steps of five minutes, and the busiest topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from nicegui import ui

from sparrowmq.console.history.rate_history import Kind, Points
from sparrowmq.console.layout.charts import bars, lines
from sparrowmq.console.layout.tables import chosen
from sparrowmq.console.layout.view import View

TOP: Final = 10
_AGAIN_S: Final = 5.0
_LEAST_MS: Final = 3_600_000
_OFFERED: Final = 50  # topics to choose from; typing finds all others
_WAYS: Final = {"in": "in", "out": "out"}


class Trends:
    """The trends as one visitor has them: a day, a topic, and a direction of messages, all in the address."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._history = view.samples.history
        self._counting = view.samples.counting
        self._day = day_of(view.query.get("day", ""), self._history.today())
        self._way: Kind = "out" if view.query.get("way") == "out" else "in"
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
        self._view.every(_AGAIN_S, self._show)

    def _form(self) -> None:
        with ui.row().classes("w-full items-center gap-3"):
            self._date = ui.input("Day", value=self._day.isoformat(), on_change=self._turned).props(
                f'type=date outlined dense min="{self._history.first_day()}" max="{self._history.today()}"'
            )
            self._ways = ui.toggle(_WAYS, value=self._way, on_change=self._turned).props(
                'no-caps dense padding="6px 14px"'
            )
            self._topics = (
                ui.select([], label="Topic", with_input=True, on_change=self._turned)
                .props("outlined dense")
                .classes("grow min-w-[14rem]")
            )
            self._topics.on("input-value", self._typed, throttle=0.2, leading_events=False)

    async def _typed(self, event: Any) -> None:
        """Offer the topics that fit; a browser does not get all topics of a large cluster."""
        typed = str(event.args or "")
        found = chosen([name for name in await self._view.look.topics() if self._is_shown(name)], typed)
        self._offer(found[:_OFFERED])

    def _is_shown(self, topic: str) -> bool:
        return self._view.look.kind_of(topic) == "topic"

    def _offer(self, names: Sequence[str]) -> None:
        """Topics to choose from; the chosen one stays among them."""
        offered = [*dict.fromkeys([*filter(None, [self._topic]), *names])]
        if offered != self._topics.options:
            self._topics.set_options(offered, value=self._topic or None)

    def _choose(self, topic: str) -> None:
        self._topic = topic
        self._offer([name for name, _ in self._counting.top(_OFFERED)])
        self._topics.value = topic

    def _turned(self) -> None:
        """Show another day, direction or topic."""
        self._day = day_of(self._date.value or "", self._history.today())
        self._way = self._ways.value
        self._topic = self._topics.value or ""
        today = self._day == self._history.today()
        self._view.remember(
            day=None if today else self._day.isoformat(),
            way=None if self._way == "in" else self._way,
            topic=self._topic,
        )
        self._trends()

    def _show(self) -> None:
        topics = self._counting.top(_OFFERED)
        _put(self._topic_top, bars("Topic TOP 10: messages in 24 hours", topics[:TOP]))
        if not self._topic and topics:
            self._topic = topics[0][0]
        if not self._topics.options:
            self._offer([name for name, _ in topics])
        self._line.text = self._words(bool(topics))
        self._line.set_visibility(bool(self._line.text))
        self._trends()

    def _words(self, has_topics: bool) -> str:
        """Why the charts are not complete."""
        if self._counting.failure is not None:
            return f"Not all brokers report the message counts of topics: {self._counting.failure}"
        if not self._counting.is_complete:
            return "Topics are being counted for the first time."
        if has_topics:
            return ""
        return "No broker has counted a message of a topic yet. Brokers count within a minute."

    def _trends(self) -> None:
        of = self._history
        names = busiest({name: of.points(self._way, name, self._day) for name in of.names(self._way, self._day)})
        shown = {self._topic: of.points("topic", self._topic, self._day)} if self._topic else {}
        span = span_of([*names.values(), *shown.values()], of.span(self._day), self._day == of.today())
        _put(self._broker_trend, lines(f"Broker 5 min trend: messages {self._way} per second", names, span))
        _put(self._topic_trend, lines("Topic 5 min trend: messages in per second", shown, span))


def day_of(text: str, today: date) -> date:
    """The day that an address or a form names; today if it is missing, wrong or in the future."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return today
    # The calendar's first days have no midnight in every zone.
    return min(day, today) if day.year >= 1970 else today


def span_of(found: Sequence[Points], day: tuple[int, int], is_today: bool) -> tuple[int, int]:
    """The span of the trends: the whole day, or the known part of today, but at least an hour."""
    times = [time_ms for points in found for time_ms, _ in points]
    if not is_today or not times:
        return day
    return max(day[0], min(*times, max(times) - _LEAST_MS)), max(*times, day[0] + _LEAST_MS)


def busiest(found: dict[str, Points]) -> dict[str, Points]:
    """The ten lines with the greatest sums, by name."""
    order = sorted(found, key=lambda name: -sum(rate or 0.0 for _, rate in found[name]))
    return {name: found[name] for name in sorted(order[:TOP])}


def _chart() -> ui.echart:
    return ui.echart(lines("", {})).classes("h-72 grow min-w-[280px] basis-0")


def _put(shown: ui.echart, options: dict[str, Any]) -> None:
    if options != shown.options:
        shown.options.clear()
        shown.options.update(options)
        shown.update()
