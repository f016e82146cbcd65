"""Options for ECharts: lines over time, and bars with the greatest first.

Names go into a chart as values, and its tips escape them. In the dark a style makes all of a chart's colours brighter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

GREY: Final = "#64748b"
NAME_WIDTH: Final = 140  # pixels of a name beside its bar; a longer one is cut, and whole in the tip


def line_chart(
    title: str, points: Mapping[str, Sequence[tuple[int, float | None]]], span: tuple[int, int] | None = None
) -> dict[str, Any]:
    """A line for each name, of times in milliseconds and values; broken at None. `span` has the ends of the axis."""
    begin, end = span or (None, None)
    return {
        "title": _title(title),
        "tooltip": {"trigger": "axis", "confine": True},
        "legend": {"bottom": 0, "type": "scroll", "textStyle": {"color": GREY}, **_CUT},
        "grid": {"left": 56, "right": 16, "top": 36, "bottom": 52},
        "xAxis": {"type": "time", "min": begin, "max": end, "axisLabel": {"hideOverlap": True, "color": GREY}},
        "yAxis": {
            "type": "value",
            "min": 0,
            "axisLabel": {"color": GREY},
            "splitLine": {"lineStyle": {"opacity": 0.2}},
        },
        "animation": False,
        "series": [
            {"name": name, "type": "line", "showSymbol": len(line) < 3, "data": [list(point) for point in line]}
            for name, line in points.items()
        ],
    }


def bar_chart(title: str, counts: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """A bar for each name, in the given order from above."""
    return {
        "title": _title(title),
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}, "confine": True},
        "grid": {"left": NAME_WIDTH + 12, "right": 76, "top": 36, "bottom": 12},
        "xAxis": {"type": "value", "minInterval": 1, "show": False},
        "yAxis": name_axis([name for name, _ in counts]) | {"axisTick": {"show": False}},
        "animation": False,
        "series": [
            {
                "name": "messages",
                "type": "bar",
                "barMaxWidth": 18,
                "label": {"show": True, "position": "right", "color": GREY},
                "data": [{"value": count, "label": {"formatter": f"{count:,}"}} for _, count in counts],
            }
        ],
    }


def name_axis(labels: Sequence[str]) -> dict[str, Any]:
    """The axis of bars that each have a name, from above."""
    label = {"color": GREY, "width": NAME_WIDTH, "overflow": "truncate"}
    return {"type": "category", "inverse": True, "data": labels, "axisLabel": label}


_CUT: Final = {"textStyle": {"color": GREY, "width": 220, "overflow": "truncate"}, "tooltip": {"show": True}}


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "textStyle": {"fontSize": 13, "color": GREY}}
