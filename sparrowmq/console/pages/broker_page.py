"""One broker: its settings, each with what others have, to be changed while it runs; and all its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.operations.broker_operations import broker_settings
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Row, chosen, table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import ConfigError

_FIGURES: Final = (Column("name", "Figure"), Column("value", "Now"))
_SETTINGS: Final = (
    Column("name", "Setting"),
    Column("value", "Value"),
    Column("others", "At other brokers", is_wide=True),
)
_SECRET: Final = ("secret", "password", "privatekey")


async def draw(view: View) -> None:
    name = view.args["name"]
    there = [each for each in await view.look.brokers() if each.name == name]
    if not there:
        raise ConfigError(f"there is no broker {name}")
    broker = next((each for each in there if each.address == view.query.get("at")), there[0])
    with ui.row().classes("items-center gap-2"):
        ui.label(f"{broker.role} at {broker.address}, cluster {broker.cluster}").classes("text-sm opacity-80")
        for each in there:
            if each.address != broker.address:
                view.link(f"{each.role} at {each.address}", "cluster", name, at=each.address)
    if broker.silence is not None:
        raise broker.silence
    settings = await broker_settings(view.look.servers, broker.address)
    others = {
        each.name + ("" if each.number == 0 else f" {each.role}"): await broker_settings(
            view.look.servers, each.address
        )
        for each in await view.look.brokers()
        if each.silence is None and each.address != broker.address
    }
    rows = setting_rows(settings, others)
    with ui.row().classes("items-center gap-3 w-full"):
        ui.label("Settings").classes("text-lg")
        words = ui.input(placeholder="Filter", value=view.query.get("filter", "")).props(
            'dense outlined clearable debounce=250 aria-label="Filter"'
        )
        if view.actions.may("change_settings"):
            ui.button(
                "Change one", icon="tune", on_click=_change_dialog(view, broker.address, settings).open
            ).props("outline no-caps dense")
    shown = table(_SETTINGS, [], "no setting fits", wraps=True)

    def filtered() -> None:
        names = set(chosen([str(row["name"]) for row in rows], words.value or ""))
        shown.rows = [{"id": row["name"], **row} for row in rows if row["name"] in names]
        shown.update()

    def typed() -> None:
        view.remember(filter=words.value)
        filtered()

    words.on_value_change(typed)
    filtered()
    ui.label("Figures").classes("text-lg")
    table(
        _FIGURES, [{"name": key, "value": value} for key, value in sorted(broker.figures.items())], wraps=True
    )


def setting_rows(settings: Mapping[str, str], others: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """What the table says of each setting: its value, and those of other brokers where they differ."""
    return [
        {
            "name": key,
            "value": hidden(key, value),
            "others": ", ".join(
                f"{name}: {hidden(key, each[key])}"
                for name, each in others.items()
                if key in each and each[key] != value
            ),
        }
        for key, value in sorted(settings.items())
    ]


def hidden(key: str, value: str) -> str:
    """The value, unless it is a secret."""
    return "••••••" if value and any(word in key.lower() for word in _SECRET) else value


def _change_dialog(view: View, address: str, settings: Mapping[str, str]) -> ui.dialog:
    async def change() -> bool:
        name, value = key.value or "", wanted.value or ""
        done = await view.act(view.actions.change_settings(address, {name: value}), f"{name} is {value}")
        if done:
            view.reload()
        return done

    def told() -> str:
        name = key.value or ""
        return f"{name}: {hidden(name, settings.get(name, ''))!r} becomes {wanted.value!r}"

    with dialog("Change a setting") as opened:
        ui.label(
            "It holds at once, and is kept in the broker's file where it has one. What needs a restart is refused."
        )
        key = (
            ui.select(sorted(settings), label="Setting", with_input=True)
            .classes("w-full")
            .props("outlined dense")
        )
        wanted = ui.input("New value").classes("w-full").props("outlined dense")
        difference = ui.label().classes("mono")
        key.on_value_change(lambda: difference.set_text(told()))
        wanted.on_value_change(lambda: difference.set_text(told()))
        buttons(opened, "Change it", change, "warning")
    return opened
