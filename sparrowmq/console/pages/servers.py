"""The name servers: their addresses, states and settings; and the findings of `sparrowmq doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from nicegui import ui

from sparrowmq.admin.findings import Finding, Verdict
from sparrowmq.console.actions import use_name_servers
from sparrowmq.console.cluster_view import namesrv_settings
from sparrowmq.console.layout.page import Page, heading
from sparrowmq.console.layout.tables import NO_ANSWER, UP, Column, Columns, Table, pair_columns
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError

# The address of a name server, and why it does not answer.
ServerRow = tuple[str, SparrowError | None]
_SERVERS: Final[Columns[ServerRow]] = (
    Column("Name server", lambda row: row[0]),
    Column("State", lambda row: UP if row[1] is None else NO_ANSWER),
    Column("Error", lambda row: str(row[1] or "")),
)


async def draw(view: View) -> None:
    rows: list[ServerRow] = []
    settings: dict[str, dict[str, str]] = {}
    for address in view.cluster.name_servers:
        try:
            settings[address] = await namesrv_settings(view.cluster.servers, address)
            rows.append((address, None))
        except SparrowError as error:
            rows.append((address, error))
    Table(view, _SERVERS, rows, "no address is known", wraps=True)
    use_name_servers(view.cluster.name_servers).button(view)
    for line in channel_lines(view.cluster.is_encrypted):
        ui.label(line).classes("text-sm opacity-80")
    _doctor(view)
    for address, of_server in settings.items():
        with ui.expansion(f"Settings of {address}").classes("w-full"):
            Table(view, pair_columns("Setting", "Value"), sorted(of_server.items()), wraps=True)


def channel_lines(is_encrypted: bool) -> list[str]:
    """Return the connection settings of the console, and the switches of Apache's dashboard that do not apply."""
    state = "on" if is_encrypted else "off"
    tls = f"TLS: {state}. The option --tls at the start sets it for all connections."
    second = (
        "VIP channel: does not apply. The console uses the main port of the brokers, which accepts every request of "
        'the second port. "sparrowmq doctor" checks whether old clients reach the second port.'
    )
    return [tls, second]


def _doctor(view: View) -> None:
    async def examine() -> None:
        place.clear()
        findings = await view.attempt(view.admin.examine())
        with place:
            for finding in problems(findings or []):
                _show(finding)
            if findings is not None:
                ui.label(summary(findings)).mark("summary")

    heading("Doctor")
    place = ui.column().classes("w-full gap-2")
    ui.button("Examine the cluster", icon="medical_services", on_click=examine).props("outline no-caps dense")


def _show(finding: Finding) -> None:
    color = "red-8" if finding.verdict is Verdict.WRONG else "deep-orange-10"
    with ui.card().classes("w-full gap-1").props("flat bordered"):
        with ui.row().classes("items-center gap-2 no-wrap"):
            ui.badge(badge_text(finding)).props(f"color={color}")
            ui.label(finding.what).classes("whitespace-pre-wrap")
        ui.label(f"checked: {finding.check}").classes("text-sm opacity-70")
        if finding.cause:
            ui.label(f"This is an effect of: {finding.cause}").classes("text-sm")
        elif finding.mend:
            ui.label(finding.mend).classes("mono whitespace-pre-wrap")


def badge_text(finding: Finding) -> str:
    return "effect" if finding.cause else finding.verdict.value


def problems(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that are not OK, the worst first."""
    ranks = list(Verdict)
    bad = [finding for finding in findings if finding.verdict is not Verdict.OK]
    return sorted(bad, key=lambda finding: -ranks.index(finding.verdict))


def summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    return f"{counts[Verdict.WRONG]} wrong, {counts[Verdict.WARNING]} warnings, {counts[Verdict.OK]} OK"


SERVERS_PAGE: Final = Page("/servers", "Name servers", draw, "hub", "s")
