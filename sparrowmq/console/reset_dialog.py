"""The dialog that moves a group to other offsets, after it has shown what that means.

The dry run asks what each queue holds at the wanted place, and tells how many messages the group would get again, and
how many it would never get.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.groups import GroupLag, ResetTo
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.view import View
from sparrowmq.protocol.messages.message import MessageQueue

PLACES: Final = {
    "earliest": "all that is kept, from the first message on",
    "latest": "skip all that waits, and go on with new messages",
    "time": "what was stored since a time",
    "offset": "an offset, the same in each queue (no member may be online)",
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reset would do: messages that come again, and messages that never come."""

    again: int
    skipped: int

    @staticmethod
    def of(lag: GroupLag, targets: dict[MessageQueue, int]) -> Meaning:
        committed = {each.queue: each.committed for each in lag.queues}
        steps = [target - committed.get(queue, target) for queue, target in targets.items()]
        return Meaning(-sum(step for step in steps if step < 0), sum(step for step in steps if step > 0))

    def text(self, group: str, topic: str) -> str:
        """As a sentence."""
        return (
            f"Group {group} would get {self.again:,} messages of {topic} again, "
            f"and would skip {self.skipped:,} that it has not handled."
        )


def place_of(kind: str, text: str) -> ResetTo:
    """Where to, from what a form says. Raises: ValueError."""
    if kind == "time":
        try:
            return datetime.fromisoformat(text.strip()).astimezone()
        except (ValueError, OverflowError):
            raise ValueError(f"{text!r} is no time; write it as 2026-11-20 08:00") from None
    if kind == "offset":
        if not (text.strip().isascii() and text.strip().isdigit()):
            raise ValueError(f"{text!r} is no offset; write a number from 0 on")
        return int(text)
    return "earliest" if kind == "earliest" else "latest"


def reset_dialog(view: View, *, group: str = "", topic: str = "") -> ui.dialog:
    """The dialog; what is given is filled in."""

    async def dry_run() -> bool:
        told.text = await view.attempt(_meaning()) or ""
        return False

    async def _meaning() -> str:
        to = place_of(place.value, at.value or "")
        targets = await view.look.targets(topic_field.value.strip(), to)
        lag = await view.admin.lag(group_field.value.strip(), topic_field.value.strip())
        return Meaning.of(lag, targets).text(group_field.value, topic_field.value)

    async def reset() -> bool:
        return await view.act(_reset(), f"offsets of group {group_field.value} are reset")

    async def _reset() -> None:
        to = place_of(place.value, at.value or "")
        await view.actions.reset(group_field.value.strip(), topic_field.value.strip(), to)

    with dialog("Reset offsets") as opened:
        group_field = ui.input("Group", value=group).classes("w-full").props("outlined dense")
        topic_field = ui.input("Topic", value=topic).classes("w-full").props("outlined dense")
        place = ui.select(PLACES, value="latest", label="Where to").classes("w-full").props("outlined dense")
        at = ui.input("Time or offset").classes("w-full").props("outlined dense")
        at.bind_visibility_from(place, "value", backward=lambda value: value in ("time", "offset"))
        told = ui.label().classes("text-sm font-medium").mark("dry-run")
        ui.button("Dry run", icon="visibility", on_click=dry_run).props("outline no-caps dense")
        buttons(opened, "Reset offsets", reset, "warning")
    return opened
