"""clusterList. Source: ClusterListSubCommand, Java 4.9.8."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.client.admin.brokers import GIVEN, TAKEN, per_second
from sparrowmq.client.admin.operations import broker_figures, cluster_table
from sparrowmq.protocol.requests.bodies import ClusterTable

_BASE: Final = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
_BASE_HEADS: Final = (
    "#Cluster Name|#Broker Name|#BID|#Addr|#Version|#InTPS(LOAD)|#OutTPS(LOAD)|#PCWait(ms)|#Hour|#SPACE"
)
_MORE: Final = "%-16s  %-32s %14s %14s %14s %14s"
_MS_AN_HOUR: Final = 3_600_000


async def cluster_list(call: Call) -> None:
    show = _show_more if call.has("m") else _show
    await show(call)
    while call.has("i"):
        await call.pause(call.number("i"))
        await show(call)


async def _show(call: Call) -> None:
    call.heads(_BASE, _BASE_HEADS)
    for cluster, name, broker_id, address in _brokers(await cluster_table(call)):
        figures = await _figures(call, address)
        place = cluster, name, broker_id, address, figures.get("brokerVersionDesc", "")
        loads = _load(figures, TAKEN, "send"), _load(figures, GIVEN, "pull")
        space = f"{float(figures.get('commitLogDiskRatio') or 0):.4f}"
        disk = figures.get("pageCacheLockTimeMills", ""), _hours(figures), space
        call.line(_BASE, *place, *loads, *disk)


async def _show_more(call: Call) -> None:
    call.heads(_MORE, "#Cluster Name|#Broker Name|#InTotalYest|#OutTotalYest|#InTotalToday|#OutTotalToday")
    for cluster, name, _, address in _brokers(await cluster_table(call)):
        figures = await _figures(call, address, silently=True)

        def total(way: str, end: str, begin: str, figures: Mapping[str, str] = figures) -> int:
            if not figures:
                return 0
            return int(figures[f"msg{way}Total{end}"]) - int(figures[f"msg{way}Total{begin}"])

        yesterday = [total(way, "TodayMorning", "YesterdayMorning") for way in ("Put", "Get")]
        today = [total(way, "TodayNow", "TodayMorning") for way in ("Put", "Get")]
        call.line(_MORE, cluster, name, *yesterday, *today)


def _brokers(table: ClusterTable) -> Iterator[tuple[str, str, int, str]]:
    for cluster, names in java.table(table.cluster_addr_table):
        for name in sorted(names):
            row = table.broker_addr_table.get(name)
            for broker_id, address in sorted(row.broker_addrs.items()) if row is not None else ():
                yield cluster, name, broker_id, address


async def _figures(call: Call, address: str, silently: bool = False) -> dict[str, str]:
    """Return a broker's figures; {} if it does not answer."""
    try:
        return await broker_figures(call, address)
    except Failure as failure:
        if not silently:
            call.complain(failure)
        return {}


def _load(figures: Mapping[str, str], rates: tuple[str, ...], pool: str) -> str:
    """Unlike Java, which knows one spelling of the rate: so it shows none for brokers since 4.9.5."""
    rate = per_second(figures, *rates) or 0.0
    waiting = figures.get(f"{pool}ThreadPoolQueueSize", "")
    head = figures.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{rate:9.2f}({waiting},{head}ms)"


def _hours(figures: Mapping[str, str]) -> str:
    oldest = figures.get("earliestMessageTimeStamp")
    return f"{(time.time() * 1000 - int(oldest)) / _MS_AN_HOUR if oldest else 0.0:2.2f}"
