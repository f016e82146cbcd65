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

    def buttons() -> None:
        place.clear()
        with place:
            for name in sorted({each.name for each in troubles.lost()}):
                forget_broker(name).button(view)

    async def again() -> None:
        panel.show(troubles.now())
        if {each.name for each in troubles.lost()} != shown:
            shown.clear()
            shown.update(each.name for each in troubles.lost())
            buttons()

    shown = {each.name for each in troubles.lost()}
    buttons()
    view.every(PERIOD_S, again)


PAGE: Final = Page("/conditions", "Conditions", draw, "warning_amber", "h")
