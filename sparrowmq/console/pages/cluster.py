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

from sparrowmq.client.admin.findings import reported_conditions
from sparrowmq.client.admin.operations import accounts, version_of
from sparrowmq.console.actions import BrokerAccounts, change_setting, delete_account, put_account, set_white_addresses
from sparrowmq.console.cluster_view import BrokerNow, broker_settings
from sparrowmq.console.layout.page import Description, Page, heading, section
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
    pairs,
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
    told = reported_conditions(broker.figures)
    worst = sorted(told, key=lambda name: (told[name].severity != "critical", told[name].since_ms))
    if not worst:
        return UP
    more = f" +{len(told) - 1}" if len(told) > 1 else ""
    return Badge(worst[0] + more, "red-9" if told[worst[0]].severity == "critical" else "deep-orange-10")


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
    found = [*await view.look.brokers(), *view.samples.troubles.lost()]
    ends = {each.name: each.number_of("commitLogMaxOffset") for each in found if each.number == 0}
    return [BrokerRow(each, behind(each, ends)) for each in found]


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
    keys = sorted({key for each in settings.values() for key in each} - _SETTINGS_OF_ONE)
    found = {key: {name: each.get(key, "") for name, each in settings.items()} for key in keys}
    return {key: values for key, values in found.items() if len(set(values.values())) > 1}


_BROKER_TABLE: Final = Description[Sequence[BrokerRow]](
    _read_brokers, [section("", _BROKER_COLUMNS, lambda rows: rows, "no broker is registered at the name server")], 5.0
)


async def _draw_cluster(view: View) -> None:
    await _BROKER_TABLE(view)
    heading("Settings that differ between brokers")
    settings = {
        f"{each.name} {each.role}": await broker_settings(view.look.servers, each.address)
        for each in await view.look.brokers()
        if each.silence is None
    }
    columns = [
        Column[tuple[str, dict[str, str]]]("Setting", lambda row: row[0]),
        *(Column(name, partial(_value_of, name)) for name in settings),
    ]
    empty = "none, except names and addresses"
    Table(view, columns, list(differences(settings).items()), empty, wraps=True)


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
    everywhere = [*await view.look.brokers(), *troubles.lost()]
    there = [each for each in everywhere if each.name == name]
    if not there:
        names = ", ".join(sorted({each.name for each in everywhere})) or "none"
        raise NotThere(f"there is no broker {name}; registered at the name server: {names}")
    broker = next((each for each in there if each.address == view.query.get("at")), there[0])
    places = _BrokerRoles(view, name, broker)
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
    table = Table(view, _SETTING_COLUMNS, empty="no setting fits", wraps=True)

    def filtered() -> None:
        view.remember(filter=words.value)
        names = filter_names([row[0] for row in rows], words.value or "")
        table.show([row for row in rows if row[0] in names])

    words.on_value_change(filtered)
    filtered()
    heading("Figures")
    Table(view, pairs("Figure", "Now"), sorted(broker.figures.items()), wraps=True)


class _BrokerRoles:
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
        Table(view, ACCOUNT_COLUMNS, found.plain_access_configs, "no account")
        of = BrokerAccounts(each.name, {other.name: other.address for other in masters}, found)
        with ui.row().classes("gap-2"):
            for action in (put_account, set_white_addresses, delete_account):
                action(of).button(view)


ACCESS_PAGE: Final = Page("/access", "Access", _draw_access, "vpn_key", "a")
