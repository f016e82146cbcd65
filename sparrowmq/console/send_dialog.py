"""The dialog that sends a message to try a topic with."""

from __future__ import annotations

import msgspec
from nicegui import ui

from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.view import View


def send_dialog(view: View, topic: str) -> ui.dialog:
    """The dialog, for one topic."""

    async def send() -> bool:
        sent = await view.attempt(_send())
        if sent is None:
            return False
        view.tell(sent)
        return True

    async def _send() -> str:
        result = await view.actions.send(
            topic,
            body=(body.value or "").encode(),
            tag=(tag.value or "").strip() or None,
            keys=(keys.value or "").split(),
            properties=properties_in(properties.value or ""),
            delay=(delay.value or "").strip() or None,
        )
        return f"sent {result.msg_id} to {result.queue.broker_name}, queue {result.queue.queue_id}"

    with dialog(f"Send to {topic}") as opened:
        body = ui.textarea("Body").props("outlined autogrow").classes("w-full mono")
        with ui.row().classes("w-full no-wrap"):
            tag = ui.input("Tag").props("outlined dense").classes("grow")
            keys = ui.input("Keys, with blanks between").props("outlined dense").classes("grow")
        properties = ui.input("Properties: name=value, name=value").props("outlined dense").classes("w-full")
        delay = ui.input("Deliver later: 10s, 5m, 2h").props("outlined dense").classes("w-full")
        buttons(opened, "Send", send)
    return opened


def properties_in(text: str) -> dict[str, str]:
    """Properties as a form or JSON has them: a=1, b=2. Raises: ValueError."""
    if text.strip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.MsgspecError as error:
            raise ValueError(f"the properties are no JSON object of texts: {error}") from None
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, separator, _ in pairs:
        if not separator or not name.strip():
            raise ValueError(f"the property {name.strip()!r} has no value; write name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}
