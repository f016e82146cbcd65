"""The trace of one message on a time line, as its producers and consumers have reported it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

from sparrowmq.console.layout.charts import GREY, name_axis
from sparrowmq.console.layout.forms import Field, search_form
from sparrowmq.console.layout.page import Page
from sparrowmq.console.layout.tables import Badge, Column, Columns, Table
from sparrowmq.console.layout.trouble_panel import LeftOut
from sparrowmq.console.layout.view import View
from sparrowmq.console.message_body import time_text
from sparrowmq.protocol.messages.trace import EndTransactionTrace, PubTrace, SubAfterTrace, SubBeforeTrace, Trace
from sparrowmq.protocol.names import TRACE_TOPIC


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened; `end_ms` is `start_ms` if its duration is unknown."""

    start_ms: int
    end_ms: int
    text: str
    group: str
    is_success: bool | None
    detail: str


_STATES: Final = {True: Badge("done", "green-9"), False: Badge("failed", "red-9"), None: None}
COLUMNS: Final[Columns[Step]] = (
    Column("Time", lambda step: time_text(step.start_ms)),
    Column("Step", lambda step: step.text),
    Column("Group", lambda step: step.group, is_wide=True),
    Column("Took", lambda step: f"{step.end_ms - step.start_ms:,} ms", is_number=True),
    Column("State", lambda step: _STATES[step.is_success]),
    Column("Detail", lambda step: step.detail, is_wide=True),
)


async def draw(view: View) -> None:
    with ui.row().classes("w-full items-end gap-3"):
        form = search_form(view, (Field("id", "Message id"), Field("topic", "Trace topic", value=TRACE_TOPIC)))
        button = ui.button("Show", icon="search").props("no-caps")
    left_out = LeftOut(view)
    place = ui.column().classes("w-full gap-3")

    async def show() -> None:
        message_id, topic = form.values["id"], form.values["topic"] or TRACE_TOPIC
        view.remember(id=message_id, topic=topic if topic != TRACE_TOPIC else None)
        place.clear()
        admin = view.cluster.partial_admin()
        traces = await view.attempt(admin.trace(message_id, topic)) if message_id else None
        left_out.show(topic, admin.counted.missing or ())
        if traces is not None:
            with place:
                _show(view, steps_of(traces))

    form.on_enter(show)
    button.on_click(show)
    await show()


def _show(view: View, steps: Sequence[Step]) -> None:
    if not steps:
        ui.label(
            "No client has reported a trace of this message. Clients report traces with trace=True, to brokers with "
            "traceTopicEnable. A trace is deleted when its message in the trace topic expires."
        ).classes("text-sm")
        return
    ui.echart(chart(steps)).classes("w-full").style(f"height: {90 + 34 * len(steps)}px")
    Table(view, COLUMNS, steps)


def steps_of(traces: Sequence[Trace]) -> list[Step]:
    """The steps of a message; a consumer's reports before and after are one step."""
    begun = {(report.request_id, report.msg_id): report for report in traces if isinstance(report, SubBeforeTrace)}
    steps: list[Step] = []
    for report in traces:
        match report:
            case PubTrace():
                detail = f"{report.body_size:,} bytes to {report.store_host}, {report.kind.name.lower()}"
                steps.append(_step(report.time_ms, report.cost_ms, "sent", report.group, report.is_success, detail))
            case EndTransactionTrace():
                text = "transaction checked" if report.is_check else "transaction ended"
                steps.append(_step(report.time_ms, 0, text, report.group, None, report.state))
            case SubAfterTrace():
                before = begun.pop((report.request_id, report.msg_id), None)
                start_ms = before.time_ms if before is not None else (report.time_ms or 0) - report.cost_ms
                group = before.group if before is not None else report.group or ""
                detail = report.reaction.name.lower().replace("_", " ")
                if before is not None and before.retries:
                    detail += f", after {before.retries} failed"
                steps.append(_step(start_ms, report.cost_ms, "handled", group, report.is_success, detail))
            case SubBeforeTrace():
                pass
    steps += [
        _step(before.time_ms, 0, "started to handle", before.group, None, "no end was reported")
        for before in begun.values()
    ]
    return sorted(steps, key=lambda step: (step.start_ms, step.end_ms))


def _step(start_ms: int, cost_ms: int, text: str, group: str, is_success: bool | None, detail: str) -> Step:
    return Step(start_ms, start_ms + max(0, cost_ms), text, group, is_success, detail)


def chart(steps: Sequence[Step]) -> dict[str, Any]:
    """A bar for each step, at its time; a transparent bar fills the time before it."""
    first = min(step.start_ms for step in steps)
    last = max(step.end_ms for step in steps)
    min_width_ms = max(1, (last - first) // 100)  # so that a step without a duration is visible
    colors = {True: "#15803d", False: "#b91c1c", None: GREY}
    return {
        "tooltip": {"show": False},
        "grid": {"left": 12, "right": 24, "top": 8, "bottom": 32, "containLabel": True},
        "xAxis": {
            "type": "value",
            "min": 0,
            "axisLabel": {"color": GREY, "hideOverlap": True, "formatter": "{value} ms"},
            "splitLine": {"lineStyle": {"opacity": 0.2}},
        },
        "yAxis": name_axis([f"{number}. {step.text}, {step.group[:32]}" for number, step in enumerate(steps, 1)]),
        "animation": False,
        "series": [
            {
                "type": "bar",
                "stack": "time",
                "silent": True,
                "itemStyle": {"color": "transparent"},
                "data": [step.start_ms - first for step in steps],
            },
            {
                "type": "bar",
                "stack": "time",
                "barMaxWidth": 18,
                "data": [
                    {
                        "value": max(min_width_ms, step.end_ms - step.start_ms),
                        "itemStyle": {"color": colors[step.is_success]},
                    }
                    for step in steps
                ],
            },
        ],
    }


TRACE_PAGE: Final = Page("/trace", "Trace", draw, "timeline", "r")
