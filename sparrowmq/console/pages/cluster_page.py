"""The brokers, masters and slaves: what each counts, how full its disk is, and which settings differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.brokers import TAKEN
from sparrowmq.client.admin.operations.broker_operations import broker_settings
from sparrowmq.console.layout.listing import Column, Row, badge, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.overview_page import out_of
from sparrowmq.console.reading.cluster_view import BrokerNow

_COLUMNS: Final = (
    Column("cluster", "Cluster", is_wide=True),
    Column("broker", "Broker"),
    Column("role", "Role"),
    Column("address", "Address", is_wide=True),
    Column("version", "Version", is_wide=True),
    Column("state", "State"),
    Column("taken", "In per second", is_number=True),
    Column("given", "Out per second", is_number=True, is_wide=True),
    Column("behind", "Log lag", is_number=True, is_wide=True),
    Column("disk", "Disk", is_number=True),
)
# What is another one at each broker, and says nothing when it differs.
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
    }
    | {
        "storePathRootDir",
        "storePathCommitLog",
        "aclFile",
        "haMasterAddress",
        "haServerAddress",
        "brokerRole",
    }
)
_PERIOD_S: Final = 5.0


async def draw(view: View) -> None:
    found = await view.look.brokers()
    shown = table(_COLUMNS, rows_of(view, found), "no broker is registered at the name server")
    ui.label("Settings that differ between brokers").classes("text-lg")
    settings = {
        f"{each.name} {each.role}": await broker_settings(view.look.servers, each.address)
        for each in found
        if each.silence is None
    }
    differing = differences(settings)
    columns = (Column("key", "Setting"), *(Column(name, name) for name in settings))
    table(
        columns,
        [{"key": key, **values} for key, values in differing.items()],
        "none but their names and addresses",
        wraps=True,
    )

    async def again() -> None:
        shown.rows = [{"id": at, **row} for at, row in enumerate(rows_of(view, await view.look.brokers()))]
        shown.update()

    view.every(_PERIOD_S, again)


def rows_of(view: View, found: Sequence[BrokerNow]) -> list[Row]:
    """What the table says of the brokers; a slave's log is compared with its master's."""
    ends = {each.name: each.number_of("commitLogMaxOffset") for each in found if each.number == 0}
    return [
        {
            "cluster": each.cluster,
            "broker": link(each.name, view.url("cluster", each.name, at=each.address)),
            "role": each.role,
            "address": each.address,
            "version": each.figures.get("brokerVersionDesc", ""),
            "state": badge("up", "green-8") if each.silence is None else badge("no answer", "red-8"),
            "taken": f"{each.per_second(*TAKEN):,.1f}",
            "given": f"{out_of(each):,.1f}",
            "behind": behind(each, ends),
            "disk": percent(each.figures.get("commitLogDiskRatio", "")),
        }
        for each in found
    ]


def behind(broker: BrokerNow, ends: Mapping[str, int]) -> str:
    """How many bytes of its master's log a slave does not have."""
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
    """The settings that are not the same at all brokers, with each broker's value; "" where it has none."""
    keys = sorted({key for each in settings.values() for key in each} - _OWN)
    found = {key: {name: each.get(key, "") for name, each in settings.items()} for key in keys}
    return {key: values for key, values in found.items() if len(set(values.values())) > 1}
