"""The name servers: where they are, whether they answer, how they are set; and what `sparrowmq doctor` finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.doctor import Finding, Verdict
from sparrowmq.client.admin.operations.namesrv_operations import namesrv_settings
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Row, badge, table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError

_SERVERS: Final = (Column("address", "Name server"), Column("state", "State"), Column("told", "What it says"))
_SETTINGS: Final = (Column("key", "Setting"), Column("value", "Value"))


async def draw(view: View) -> None:
    rows: list[Row] = []
    settings: dict[str, dict[str, str]] = {}
    for address in view.look.name_servers:
        try:
            settings[address] = await namesrv_settings(view.look.servers, address)
            rows.append({"address": address, "state": badge("up", "green-8"), "told": ""})
        except SparrowError as error:
            rows.append({"address": address, "state": badge("no answer", "red-8"), "told": str(error)})
    table(_SERVERS, rows, "no address is known")
    if view.actions.may("use_name_servers"):
        ui.button("Ask others", icon="swap_horiz", on_click=_others_dialog(view).open).props(
            "outline no-caps dense"
        )
    for line in channel_lines(view.look.is_encrypted):
        ui.label(line).classes("text-sm opacity-80")
    ui.label("The doctor").classes("text-lg")
    place = ui.column().classes("w-full gap-2")

    async def examine() -> None:
        place.clear()
        found = await view.attempt(view.admin.examine())
        with place:
            for each in wrong_in(found or []):
                _show(each)
            if found is not None:
                ui.label(summary(found)).mark("summary")

    ui.button("Examine the cluster", icon="medical_services", on_click=examine).props("outline no-caps dense")
    for address, each in settings.items():
        with ui.expansion(f"Settings of {address}").classes("w-full"):
            table(
                _SETTINGS, [{"key": key, "value": value} for key, value in sorted(each.items())], wraps=True
            )


def _others_dialog(view: View) -> ui.dialog:
    async def use() -> bool:
        done = await view.act(
            view.actions.use_name_servers(addresses.value or ""), "the console asks these now"
        )
        if done:
            view.reload()
        return done

    with dialog("Ask other name servers") as opened:
        ui.label(
            "For all visitors, until the console stops; its next start asks those of -n again. Each has to answer."
        ).classes("text-sm opacity-80")
        addresses = ui.input("Addresses", value=";".join(view.look.name_servers)).classes("w-full")
        addresses.props('outlined dense placeholder="host:port;host:port"')
        buttons(opened, "Ask these", use)
    return opened


def channel_lines(is_encrypted: bool) -> list[str]:
    """How the console reaches the servers, and what of the official one's switches means nothing here."""
    state = "on" if is_encrypted else "off"
    encrypted = f"TLS: {state}. It is chosen at the start, with --tls, for all connections."
    second = (
        "VIP channel: does not apply. The console sends to the brokers' own port, which takes all that the second one "
        "takes; `sparrowmq doctor` looks whether old clients reach that."
    )
    return [encrypted, second]


def _show(finding: Finding) -> None:
    color = "red-8" if finding.verdict is Verdict.WRONG else "orange-9"
    with ui.card().classes("w-full gap-1").props("flat bordered"):
        with ui.row().classes("items-center gap-2 no-wrap"):
            ui.badge(finding.verdict.value).props(f"color={color}")
            ui.label(finding.what).classes("whitespace-pre-wrap")
        ui.label(f"looked at: {finding.check}").classes("text-sm opacity-70")
        if finding.mend:
            ui.label(finding.mend).classes("mono whitespace-pre-wrap")


def wrong_in(findings: Sequence[Finding]) -> list[Finding]:
    """What is not well, the worst first."""
    ranks = list(Verdict)
    return sorted(
        (each for each in findings if each.verdict is not Verdict.OK),
        key=lambda each: -ranks.index(each.verdict),
    )


def summary(findings: Sequence[Finding]) -> str:
    """How many things are how."""
    counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in Verdict}
    return f"{counts[Verdict.WRONG]} wrong, {counts[Verdict.WARNING]} warnings, {counts[Verdict.OK]} things are well"
