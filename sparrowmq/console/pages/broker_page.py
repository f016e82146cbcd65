"""One broker: its settings beside those of other brokers, with an action to change one; and all its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nicegui import ui

from sparrowmq.console.actions import change_setting
from sparrowmq.console.history.samples import PERIOD_S
from sparrowmq.console.layout.described_page import Page, heading
from sparrowmq.console.layout.tables import Column, Columns, Table, chosen, pairs
from sparrowmq.console.layout.trouble_panel import TroublePanel
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.console.reading.cluster_view import BrokerNow
from sparrowmq.console.reading.shown_settings import broker_settings

# A setting's name, its value, and the other values that brokers have.
SettingRow = tuple[str, str, str]
_SETTINGS: Final[Columns[SettingRow]] = (
    Column("Setting", lambda row: row[0]),
    Column("Value", lambda row: row[1]),
    Column("On other brokers", lambda row: row[2], is_wide=True),
)


async def draw(view: View) -> None:
    name = view.args["name"]
    troubles = view.samples.troubles
    everywhere = [*await view.look.brokers(), *troubles.lost()]
    there = [each for each in everywhere if each.name == name]
    if not there:
        names = ", ".join(sorted({each.name for each in everywhere})) or "none"
        raise NotThere(f"there is no broker {name}; registered at the name server: {names}")
    broker = next((each for each in there if each.address == view.query.get("at")), there[0])
    places = _Places(view, name, broker)
    places.show(there)
    panel = TroublePanel(view, troubles.of_broker(name))

    async def again() -> None:
        panel.show(troubles.of_broker(name))
        places.show([each for each in [*await view.look.brokers(), *troubles.lost()] if each.name == name])

    view.every(PERIOD_S, again)
    if broker.silence is not None:
        raise broker.silence
    settings = await broker_settings(view.look.servers, broker.address)
    others = {
        each.name + ("" if each.number == 0 else f" {each.role}"): await broker_settings(
            view.look.servers, each.address
        )
        for each in everywhere
        if each.silence is None and each.address != broker.address
    }
    rows = setting_rows(settings, others)
    with ui.row().classes("items-center gap-3 w-full"):
        heading("Settings")
        words = ui.input(placeholder="Filter", value=view.query.get("filter", "")).props(
            'dense outlined clearable debounce=250 aria-label="Filter"'
        )
        change_setting(name, broker.address, settings).button(view)
    table = Table(view, _SETTINGS, empty="no setting fits", wraps=True)

    def filtered() -> None:
        view.remember(filter=words.value)
        names = chosen([row[0] for row in rows], words.value or "")
        table.show([row for row in rows if row[0] in names])

    words.on_value_change(filtered)
    filtered()
    heading("Figures")
    Table(view, pairs("Figure", "Now"), sorted(broker.figures.items()), wraps=True)


class _Places:
    """The role of the broker of a page, and links to the others of its name; an election changes both."""

    def __init__(self, view: View, name: str, broker: BrokerNow) -> None:
        self._view, self._name = view, name
        self._broker = broker
        self._row = ui.row().classes("items-center gap-2")
        self._shown: list[tuple[int, str, str]] = []

    def show(self, there: Sequence[BrokerNow]) -> None:
        by_address = {each.address: each for each in reversed(there)}  # the first of an address: it is registered
        now = sorted((each.number, each.role, each.address) for each in by_address.values())
        if now == self._shown:
            return
        self._shown = now
        self._broker = by_address.get(self._broker.address, self._broker)
        self._row.clear()
        with self._row:
            role, address = self._broker.role, self._broker.address
            ui.label(f"{role} at {address}, cluster {self._broker.cluster}").classes("text-sm opacity-80")
            for _, role, address in now:
                if address != self._broker.address:
                    self._view.link(f"{role} at {address}", "cluster", self._name, at=address)


def setting_rows(settings: Mapping[str, str], others: Mapping[str, Mapping[str, str]]) -> list[SettingRow]:
    """Each setting with its value, and the values of other brokers where they differ."""

    def elsewhere(key: str, value: str) -> str:
        differing = {name: each[key] for name, each in others.items() if each.get(key, value) != value}
        return ", ".join(f"{name}: {other}" for name, other in differing.items())

    return [(key, value, elsewhere(key, value)) for key, value in sorted(settings.items())]


PAGE: Final = Page("/cluster/{name:path}", "Broker {name}", draw)
