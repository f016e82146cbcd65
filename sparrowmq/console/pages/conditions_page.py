"""All that is wrong now: conditions of brokers, brokers that do not answer, and those that are not registered."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from sparrowmq.console.actions import forget_broker
from sparrowmq.console.history.samples import PERIOD_S
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.trouble_panel import TroublePanel
from sparrowmq.console.layout.view import View

_HEALTHY: Final = "Nothing is wrong: every broker answers, and none reports a condition."


async def draw(view: View) -> None:
    troubles = view.samples.troubles
    panel = TroublePanel(view, troubles.now(), _HEALTHY)
    place = ui.row().classes("gap-2")
    with_button: list[str] = []

    def show() -> None:
        panel.show(troubles.now())
        names = sorted({each.name for each in troubles.lost()})
        if names != with_button:
            with_button[:] = names
            place.clear()
            with place:
                for name in names:
                    forget_broker(name).button(view)

    show()
    view.every(PERIOD_S, show)


PAGE: Final = Page("/conditions", "Conditions", draw, "warning_amber", "h")
