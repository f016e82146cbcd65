"""The brokers, masters and slaves: their rates, lags and disks; and the settings that differ between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparrowmq.client.admin.findings import told_conditions
from sparrowmq.client.admin.operations import version_of
from sparrowmq.console.layout.described_page import Description, Page, heading, section
from sparrowmq.console.layout.tables import NO_ANSWER, UP, Badge, Column, Columns, Link, Table, link
from sparrowmq.console.layout.view import View
from sparrowmq.console.reading.cluster_view import BrokerNow
from sparrowmq.console.reading.shown_settings import broker_settings
from sparrowmq.protocol.requests.bodies import PROTOCOL_RELEASE

# Settings that are different on each broker.
_OWN: Final = frozenset(
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
    told = told_conditions(broker.figures)
    worst = sorted(told, key=lambda name: (told[name].severity != "critical", told[name].since_ms))
    if not worst:
        return UP
    more = f" +{len(told) - 1}" if len(told) > 1 else ""
    return Badge(worst[0] + more, "red-9" if told[worst[0]].severity == "critical" else "deep-orange-10")


COLUMNS: Final[Columns[BrokerRow]] = (
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


async def _read(view: View) -> Sequence[BrokerRow]:
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
    keys = sorted({key for each in settings.values() for key in each} - _OWN)
    found = {key: {name: each.get(key, "") for name, each in settings.items()} for key in keys}
    return {key: values for key, values in found.items() if len(set(values.values())) > 1}


_BROKERS: Final = Description[Sequence[BrokerRow]](
    _read, [section("", COLUMNS, lambda rows: rows, "no broker is registered at the name server")], 5.0
)


async def draw(view: View) -> None:
    await _BROKERS(view)
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


PAGE: Final = Page("/cluster", "Cluster", draw, "dns", "c")
