"""The same under the names of Apache's rocketmq-exporter, which stand in most alert files: /metrics?compat=exporter.

The exporter asks brokers every minute and keeps the answers; here they are looked up when somebody asks. What it
measures at clients, of thread pools, and of how long a put takes does not exist in a broker of ours, and is left out:
docs/operate/metrics.md has the table.
Source: RMQMetricsCollector and MetricsCollectTask of rocketmq-exporter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients
from sparrowmq.broker.metrics.consumer_lag import GroupProgress, Progress
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.metrics.page import Page
from sparrowmq.protocol.names import DLQ, RETRY
from sparrowmq.stats import Figures

CLUSTERING: Final = "1"  # as Java numbers MessageModel
# The exporter's name behind rocketmq_brokeruntime_, and brokerStatus's.
RUNTIME: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "putmessage_times_total": "putMessageTimesTotal",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
}
RATES: Final = {
    "put": "putTps",
    "getfound": "getFoundTps",
    "getmiss": "getMissTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferedTps",
}
_WINDOWS: Final = ("10", "60", "600")


def tell_broker(page: Page, settings: BrokerSettings, status: Mapping[str, str], figures: Figures) -> None:
    """What it says of the broker as a whole.

    Args:
        status: brokerStatus.
    """
    broker = (settings.cluster, settings.ip, settings.name)
    labels = ("cluster", "brokerIP", "broker")
    for name, key in (("tps", "putTps"), ("qps", "getTransferedTps")):
        per_second = float(status[key].split()[0])
        page.gauges(f"rocketmq_broker_{name}", "messages a second", labels, [(broker, per_second)])
    behind = (
        sum(lacks for _, lacks in figures.values("slave_behind_bytes").items()) if _has_slaves(figures) else 0
    )
    page.gauges("rocketmq_broker_commitlog_diff", "bytes that slaves lack", labels, [(broker, behind)])
    of_runtime = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
    who = (
        *(settings.cluster, settings.ip, settings.name),
        *(status["brokerVersionDesc"], status["bootTimestamp"], status["brokerVersion"]),
    )
    for name, key in RUNTIME.items():
        page.gauges(f"rocketmq_brokeruntime_{name}", key, of_runtime, [(who, float(status[key]))])
    for name, key in RATES.items():
        for window, rate in zip(_WINDOWS, status[key].split(), strict=True):
            page.gauges(f"rocketmq_brokeruntime_{name}_tps{window}", key, of_runtime, [(who, float(rate))])


async def tell_topics(page: Page, settings: BrokerSettings, progress: Progress) -> None:
    """Where topics end."""
    ends, where = await progress.ends(), (settings.cluster, settings.name)
    plain = [name for name in ends if not name.startswith((RETRY, DLQ))]
    retries = [name for name in ends if name.startswith(RETRY)]
    dead = [name for name in ends if name.startswith(DLQ)]
    labels = ("cluster", "broker", "topic")
    for name, topics in (("rocketmq_producer_offset", plain), ("rocketmq_topic_retry_offset", retries)):
        page.gauges(
            name, "the sum of its queues' ends", labels, [((*where, topic), ends[topic]) for topic in topics]
        )
    page.gauges(
        "rocketmq_topic_dlq_offset",
        "dead letters of a group",
        ("cluster", "broker", "group"),
        [((*where, topic.removeprefix(DLQ)), ends[topic]) for topic in dead],
    )


async def tell_groups(
    page: Page,
    settings: BrokerSettings,
    progress: Progress,
    clients: Clients,
    consumption: Consumption,
    now_ms: int,
) -> None:
    """How far groups are, and who is there."""
    groups, where = await progress.of_groups(), (settings.cluster, settings.name)
    labels = ("group", "topic", "countOfOnlineConsumers", "msgModel")
    for name, is_retry in (("rocketmq_group_diff", False), ("rocketmq_group_retrydiff", True)):
        told = [each for each in groups if each.topic.startswith(RETRY) is is_retry]
        rows = [((*_who(each, clients), CLUSTERING), each.lag) for each in told]
        page.gauges(name, "messages that a group has not consumed", labels, rows)
    labels = ("cluster", "broker", "topic", "group")
    page.gauges(
        "rocketmq_consumer_offset",
        "the sum of a group's offsets",
        labels,
        [((*where, each.topic, each.group), each.committed) for each in groups],
    )
    page.gauges(
        "rocketmq_consumer_tps",
        "messages a second that a group took",
        labels,
        [((*where, topic, group), pace) for (group, topic), pace in consumption.paces()],
    )
    waiting = await progress.waiting_since(groups, settings.metrics_series)
    page.gauges(
        "rocketmq_group_get_latency_by_storetime",
        "how long the oldest message is stored that it has not consumed, in ms",
        labels,
        [((*where, each.topic, each.group), max(now_ms - stored, 0)) for each, stored in waiting],
    )
    page.gauges(
        "rocketmq_producer_count",
        "producers of a group",
        ("cluster", "broker", "group"),
        [((*where, group), len(members)) for group, members in clients.producer_groups()],
    )


def _who(each: GroupProgress, clients: Clients) -> tuple[str, str, str]:
    return each.group, each.topic, str(len(clients.members(each.group)))


def _has_slaves(figures: Figures) -> bool:
    return any(figure.name == "slave_behind_bytes" for figure in figures)
