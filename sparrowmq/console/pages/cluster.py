"""The brokers: their rates, lags and disks; one broker with its settings and figures; the accounts of brokers.

/cluster          masters and slaves, and the settings that differ between them
/cluster/{name}   the settings of one broker beside those of others, an action to change one, and all its figures
/access           the accounts of brokers with access control, and the addresses that need none, without secrets
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from nicegui import ui

from sparrowmq.admin.catalogue import accounts, version_of
from sparrowmq.admin.findings import reported_conditions
from sparrowmq.console.actions import BrokerAccounts, change_setting, delete_account, put_account, set_white_addresses
from sparrowmq.console.cluster_view import BrokerNow, broker_settings
from sparrowmq.console.layout.page import Description, Page, heading, table_part
from sparrowmq.console.layout.tables import (
    NO_ANSWER,
    UP,
    Badge,
    Column,
    Columns,
    Link,
    Table,
    filter_names,
    link,
    pair_columns,
)
from sparrowmq.console.layout.trouble_panel import TroublePanel
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.console.samples import PERIOD_S
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.bodies import PROTOCOL_RELEASE, AccountEntry

# Settings that are different on each broker.
_SETTINGS_OF_ONE: Final = frozenset(
    {
        "brokerName",
        "brokerId",
        "listenPort",
        "haListenPort",
        "fastListenPort",
        "brokerIP1",
        "brokerIP2",
        "rocketmqHome",
        "storePathRootDir",
        "storePathCommitLog",
        "aclFile",
        "haMasterAddress",
        "haServerAddress",
        "brokerRole",
    }
)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker, and how many bytes of its master's log it lacks."""

    broker: BrokerNow
    behind: str


def broker_link(broker: BrokerNow) -> Link:
    return link(broker.name, "cluster", broker.name, at=broker.address)


def state_of(broker: BrokerNow) -> Badge:
    """Return whether a broker answers, and if so its worst condition."""
    if broker.silence is not None:
        return NO_ANSWER
    conditions = reported_conditions(broker.figures)
    if not conditions:
        return UP
    worst = min(conditions, key=lambda name: (conditions[name].severity != "critical", conditions[name].since_ms))
    others_text = f" +{len(conditions) - 1}" if len(conditions) > 1 else ""
    return Badge(worst + others_text, "red-9" if conditions[worst].severity == "critical" else "deep-orange-10")


_BROKER_COLUMNS: Final[Columns[BrokerRow]] = (
    Column("Cluster", lambda row: row.broker.cluster, is_wide=True),
    Column("Broker", lambda row: broker_link(row.broker)),
    Column("Role", lambda row: row.broker.role),
    Column("Address", lambda row: row.broker.address, is_wide=True),
    Column("Version", lambda row: version_of(row.broker.figures), is_wide=True),
    Column("Protocol", lambda row: row.broker.figures.get(PROTOCOL_RELEASE), is_wide=True),
    Column("State", lambda row: state_of(row.broker)),
    Column("In per second", lambda row: row.broker.in_per_second, is_number=True),
    Column("Out per second", lambda row: row.broker.out_per_second, is_number=True, is_wide=True),
    Column("Log lag", lambda row: row.behind, is_number=True, is_wide=True),
    Column("Disk", lambda row: percent(row.broker.figures.get("commitLogDiskRatio", "")), is_number=True),
)


async def _read_brokers(view: View) -> Sequence[BrokerRow]:
    brokers = [*await view.cluster.brokers(), *view.samples.troubles.lost_brokers()]
    ends = {broker.name: broker.number_of("commitLogMaxOffset") for broker in brokers if broker.number == 0}
    return [BrokerRow(broker, behind(broker, ends)) for broker in brokers]


def behind(broker: BrokerNow, ends: Mapping[str, int]) -> str:
    """Return the number of bytes that a slave lacks of its master's log."""
    if broker.number == 0:
        return ""
    if broker.silence is not None or broker.name not in ends:
        return "unknown"
    return f"{max(0, ends[broker.name] - broker.number_of('commitLogMaxOffset')):,} B"


def percent(ratio: str) -> str:
    """A ratio of the figures as people read it."""
    try:
        return f"{float(ratio):.0%}"
    except ValueError:
        return ""


def differences(settings: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The settings that differ between brokers, with each broker's value; "" where it has none."""
    keys = sorted({key for of_broker in settings.values() for key in of_broker} - _SETTINGS_OF_ONE)
    rows = {key: {name: of_broker.get(key, "") for name, of_broker in settings.items()} for key in keys}
    return {key: values for key, values in rows.items() if len(set(values.values())) > 1}


_BROKER_TABLE: Final = Description[Sequence[BrokerRow]](
    _read_brokers,
    [table_part("", _BROKER_COLUMNS, lambda rows: rows, "no broker is registered at the name server")],
    5.0,
)


async def _draw_cluster(view: View) -> None:
    await _BROKER_TABLE(view)
    heading("Settings that differ between brokers")
    settings = {
        f"{broker.name} {broker.role}": await broker_settings(view.cluster.servers, broker.address)
        for broker in await view.cluster.brokers()
        if broker.silence is None
    }
    columns = [
        Column[tuple[str, dict[str, str]]]("Setting", lambda row: row[0]),
        *(Column(name, partial(_value_of, name)) for name in settings),
    ]
    Table(view, columns, list(differences(settings).items()), "none, except names and addresses", wraps=True)


def _value_of(name: str, row: tuple[str, dict[str, str]]) -> str:
    return row[1][name]


CLUSTER_PAGE: Final = Page("/cluster", "Cluster", _draw_cluster, "dns", "c")
# A setting's name, its value, and the other values that brokers have.
SettingRow = tuple[str, str, str]
_SETTING_COLUMNS: Final[Columns[SettingRow]] = (
    Column("Setting", lambda row: row[0]),
    Column("Value", lambda row: row[1]),
    Column("On other brokers", lambda row: row[2], is_wide=True),
)


async def _draw_broker(view: View) -> None:
    name = view.args["name"]
    troubles = view.samples.troubles
    brokers = [*await view.cluster.brokers(), *troubles.lost_brokers()]
    members = [broker for broker in brokers if broker.name == name]
    if not members:
        names = ", ".join(sorted({broker.name for broker in brokers})) or "none"
        raise NotThere(f"there is no broker {name}; registered at the name server: {names}")
    broker = next((member for member in members if member.address == view.query.get("at")), members[0])
    roles = _BrokerRoles(view, name, broker)
    roles.show(members)
    panel = TroublePanel(view, troubles.of_broker(name))

    async def refresh() -> None:
        panel.show(troubles.of_broker(name))
        roles.show(
            [broker for broker in [*await view.cluster.brokers(), *troubles.lost_brokers()] if broker.name == name]
        )

    view.every(PERIOD_S, refresh)
    if broker.silence is not None:
        raise broker.silence
    settings = await broker_settings(view.cluster.servers, broker.address)
    others = {
        other.name + ("" if other.number == 0 else f" {other.role}"): await broker_settings(
            view.cluster.servers, other.address
        )
        for other in brokers
        if other.silence is None and other.address != broker.address
    }
    rows = setting_rows(settings, others)
    with ui.row().classes("items-center gap-3 w-full"):
        heading("Settings")
        filter_input = ui.input(placeholder="Filter", value=view.query.get("filter", "")).props(
            'dense outlined clearable debounce=250 aria-label="Filter"'
        )
        change_setting(name, broker.address, settings).button(view)
    table = Table(view, _SETTING_COLUMNS, empty="no setting fits", wraps=True)

    def show_rows() -> None:
        view.remember(filter=filter_input.value)
        names = filter_names([row[0] for row in rows], filter_input.value or "")
        table.show([row for row in rows if row[0] in names])

    filter_input.on_value_change(show_rows)
    show_rows()
    heading("Figures")
    Table(view, pair_columns("Figure", "Now"), sorted(broker.figures.items()), wraps=True)


class _BrokerRoles:
    """The role of the broker of a page, and links to the others of its name; an election changes both."""

    def __init__(self, view: View, name: str, broker: BrokerNow) -> None:
        self._view, self._name = view, name
        self._broker = broker
        self._row = ui.row().classes("items-center gap-2")
        self._shown: list[tuple[int, str, str]] = []

    def show(self, members: Sequence[BrokerNow]) -> None:
        by_address = {member.address: member for member in reversed(members)}  # the first one is registered
        now = sorted((member.number, member.role, member.address) for member in by_address.values())
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
        differing = [f"{name}: {other[key]}" for name, other in others.items() if other.get(key, value) != value]
        return ", ".join(differing)

    return [(key, value, elsewhere(key, value)) for key, value in sorted(settings.items())]


BROKER_PAGE: Final = Page("/cluster/{name:path}", "Broker {name}", _draw_broker)
ACCOUNT_COLUMNS: Final[Columns[AccountEntry]] = (
    Column("Account", lambda each: each.access_key),
    Column("Administrator", lambda each: each.admin),
    Column("Default for topics", lambda each: each.default_topic_perm),
    Column("Default for groups", lambda each: each.default_group_perm, is_wide=True),
    Column("Topics and groups", lambda each: ", ".join([*(each.topic_perms or []), *(each.group_perms or [])])),
    Column("Unsigned addresses", lambda each: each.white_remote_address, is_wide=True),
)


async def _draw_access(view: View) -> None:
    masters = [broker for broker in await view.cluster.brokers() if broker.number == 0]
    for master in masters:
        heading(f"{master.name} at {master.address}")
        try:
            if master.silence is not None:
                raise master.silence
            answer = await accounts(view.cluster.servers, master.address)
        except SparrowError as error:
            reason = "Access control is off, or the broker does not report it"
            ui.label(f"{'It does not answer' if master.silence else reason}: {error}").classes("text-sm opacity-80")
            continue
        white = ", ".join(answer.global_white_addrs) or "none"
        ui.label(f"Addresses that need no account: {white}").classes("text-sm")
        Table(view, ACCOUNT_COLUMNS, answer.plain_access_configs, "no account")
        of_broker = BrokerAccounts(master.name, {other.name: other.address for other in masters}, answer)
        with ui.row().classes("gap-2"):
            for make_action in (put_account, set_white_addresses, delete_account):
                make_action(of_broker).button(view)


ACCESS_PAGE: Final = Page("/access", "Access", _draw_access, "vpn_key", "a")
