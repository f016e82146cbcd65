"""The accounts of brokers with access control, and the addresses that need none. No page shows secrets."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from sparrowmq.client.admin.operations import accounts
from sparrowmq.console.actions import BrokerAccounts, delete_account, put_account, set_white_addresses
from sparrowmq.console.layout.described_page import Page, heading
from sparrowmq.console.layout.tables import Column, Columns, Table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.bodies import AccountEntry

COLUMNS: Final[Columns[AccountEntry]] = (
    Column("Account", lambda each: each.access_key),
    Column("Administrator", lambda each: each.admin),
    Column("Default for topics", lambda each: each.default_topic_perm),
    Column("Default for groups", lambda each: each.default_group_perm, is_wide=True),
    Column("Topics and groups", lambda each: ", ".join([*(each.topic_perms or []), *(each.group_perms or [])])),
    Column("Unsigned addresses", lambda each: each.white_remote_address, is_wide=True),
)


async def draw(view: View) -> None:
    masters = [each for each in await view.look.brokers() if each.number == 0]
    for each in masters:
        heading(f"{each.name} at {each.address}")
        try:
            if each.silence is not None:
                raise each.silence
            found = await accounts(view.look.servers, each.address)
        except SparrowError as error:
            why = "It does not answer" if each.silence else "Access control is off, or the broker does not report it"
            ui.label(f"{why}: {error}").classes("text-sm opacity-80")
            continue
        white = ", ".join(found.global_white_addrs) or "none"
        ui.label(f"Addresses that need no account: {white}").classes("text-sm")
        Table(view, COLUMNS, found.plain_access_configs, "no account")
        of = BrokerAccounts(each.name, {other.name: other.address for other in masters}, found)
        with ui.row().classes("gap-2"):
            for action in (put_account, set_white_addresses, delete_account):
                action(of).button(view)


PAGE: Final = Page("/access", "Access", draw, "vpn_key", "a")
