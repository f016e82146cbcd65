"""Dialogs: fields and a button, and for what destroys the name to type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import ui

from sparrowmq.console.layout.view import View


@contextmanager
def dialog(title: str) -> Iterator[ui.dialog]:
    """A dialog to fill; it opens by `open`."""
    with ui.dialog() as opened, ui.card().classes("w-[32rem] max-w-full gap-3"):
        ui.label(title).classes("text-lg font-semibold")
        yield opened


def buttons(opened: ui.dialog, text: str, act: Callable[[], Awaitable[bool]], color: str = "primary") -> None:
    """The end of a dialog: it closes once `act` has succeeded, and cannot be pressed twice meanwhile."""

    async def pressed() -> None:
        button.disable()
        try:
            if await act():
                opened.close()
        finally:
            button.enable()

    with ui.row().classes("w-full justify-end gap-2"):
        ui.button("Cancel", on_click=opened.close).props("flat")
        button = ui.button(text, on_click=pressed).props(f"color={color}")


def destroy(view: View, title: str, warning: str, name: str, act: Callable[[], Awaitable[bool]]) -> ui.dialog:
    """A dialog that wants the name typed before anything is destroyed."""

    async def checked() -> bool:
        if typed.value != name:
            view.complain(f"type {name} to confirm")
            return False
        return await act()

    with dialog(title) as opened:
        ui.label(warning)
        typed = ui.input(f"Type {name} to confirm").classes("w-full").props("outlined dense")
        buttons(opened, "Delete", checked, "negative")
    return opened
