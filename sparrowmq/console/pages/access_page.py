"""Accounts of brokers with access control, and the addresses that need none; secrets are set here and shown nowhere."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from sparrowmq.client.admin.operations.account_operations import accounts
from sparrowmq.console.layout.forms import buttons, destroy, dialog
from sparrowmq.console.layout.listing import Column, Row, table
from sparrowmq.console.layout.view import View
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import AccountList

_COLUMNS: Final = (
    Column("key", "Account"),
    Column("admin", "Admin"),
    Column("topics", "Other topics", is_wide=True),
    Column("groups", "Other groups", is_wide=True),
    Column("perms", "Topics and groups"),
    Column("white", "Addresses without signing", is_wide=True),
)
_PERMS: Final = ("", "DENY", "PUB", "SUB", "PUB|SUB")


async def draw(view: View) -> None:
    found = [each for each in await view.look.brokers() if each.silence is None]
    masters = [each.address for each in found if each.number == 0]
    for each in found:
        if each.number:
            continue
        with ui.row().classes("items-center gap-3"):
            ui.label(f"{each.name} at {each.address}").classes("text-lg")
        try:
            told = await accounts(view.look.servers, each.address)
        except SparrowError as error:
            ui.label(f"Access control is off, or the broker does not report it: {error}").classes(
                "text-sm opacity-80"
            )
            continue
        white = ", ".join(told.global_white_addrs) or "none"
        ui.label(f"Addresses that need no account: {white}").classes("text-sm")
        table(_COLUMNS, account_rows(told), "no account")
        with ui.row().classes("gap-2"):
            _buttons(view, each.address, masters, told)


def account_rows(told: AccountList) -> list[Row]:
    """What the table says of the accounts; nothing of their secrets."""
    return [
        {
            "key": each.access_key,
            "admin": "yes" if each.admin else "",
            "topics": each.default_topic_perm or "",
            "groups": each.default_group_perm or "",
            "perms": ", ".join([*(each.topic_perms or []), *(each.group_perms or [])]),
            "white": each.white_remote_address or "",
        }
        for each in told.plain_access_configs
    ]


def _buttons(view: View, address: str, masters: list[str], told: AccountList) -> None:
    if view.actions.may("put_account"):
        ui.button(
            "Make or change an account",
            icon="person_add",
            on_click=_account_dialog(view, address, masters).open,
        ).props("outline no-caps dense")
    if view.actions.may("set_white_addresses"):
        ui.button("Addresses", icon="lan", on_click=_white_dialog(view, address, masters, told).open).props(
            "outline no-caps dense"
        )
    if view.actions.may("delete_account"):
        keys = [each.access_key for each in told.plain_access_configs]
        with ui.dropdown_button("Delete an account", icon="delete", auto_close=True).props(
            "outline no-caps dense color=negative"
        ):
            for key in keys:
                ui.item(key, on_click=_delete_dialog(view, address, key).open)


def _account_dialog(view: View, address: str, masters: list[str]) -> ui.dialog:
    async def put() -> bool:
        wanted = UpdateAndCreateAclConfig(
            access_key=key.value.strip(),
            secret_key=secret.value or None,
            white_remote_address=(white.value or "").strip() or None,
            admin=bool(admin.value),
            default_topic_perm=topic_perm.value or None,
            default_group_perm=group_perm.value or None,
            topic_perms=(topics.value or "").strip() or None,
            group_perms=(groups.value or "").strip() or None,
        )
        places = masters if everywhere.value else [address]
        done = await view.act(view.actions.put_account(places, wanted), f"account {wanted.access_key} is set")
        if done:
            view.reload()
        return done

    with dialog("Make or change an account") as opened:
        key = ui.input("Access key, more than 6 characters")
        secret = ui.input("Secret key; empty leaves it", password=True)
        topic_perm = ui.select(list(_PERMS), value="", label="Topics that are not named")
        group_perm = ui.select(list(_PERMS), value="", label="Groups that are not named")
        topics = ui.input("Topics: orders=PUB|SUB,logs=SUB")
        groups = ui.input("Groups: billing=SUB")
        white = ui.input("Addresses that need not sign")
        for each in (key, secret, topic_perm, group_perm, topics, groups, white):
            each.classes("w-full").props("outlined dense")
        admin = ui.checkbox("May do everything, and change brokers")
        everywhere = ui.checkbox("At all masters", value=True)
        buttons(opened, "Set it", put)
    return opened


def _white_dialog(view: View, address: str, masters: list[str], told: AccountList) -> ui.dialog:
    async def put() -> bool:
        places = masters if everywhere.value else [address]
        done = await view.act(
            view.actions.set_white_addresses(places, patterns.value.strip()), "the addresses are set"
        )
        if done:
            view.reload()
        return done

    with dialog("Addresses that need no account") as opened:
        ui.label(
            "Clients at these addresses may do everything. Separate addresses with commas: 10.0.0.*,192.168.1.1-9"
        ).classes("text-sm")
        patterns = ui.input("Addresses", value=",".join(told.global_white_addrs)).classes("w-full")
        patterns.props("outlined dense")
        everywhere = ui.checkbox("At all masters", value=False)
        buttons(opened, "Set them", put, "warning")
    return opened


def _delete_dialog(view: View, address: str, key: str) -> ui.dialog:
    async def delete() -> bool:
        done = await view.act(
            view.actions.delete_account([address], key), f"account {key} is deleted at {address}"
        )
        if done:
            view.reload()
        return done

    warning = f"Who signs as {key} is refused by {address} from then on."
    return destroy(view, f"Delete {key}", warning, key, delete)
