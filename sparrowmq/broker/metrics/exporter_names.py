"""The names of Apache's rocketmq-exporter, which most alert files use: /metrics?compat=exporter.

The exporter asks brokers every minute and keeps the answers; here they are looked up for each visit. What it
measures at clients, of thread pools, and of how long a put takes does not exist in a broker of ours, and is left out:
docs/operate/metrics.md has the table.
Source: RMQMetricsCollector and MetricsCollectTask of rocketmq-exporter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.metrics.consumer_lag import LagLookup
from sparrowmq.broker.metrics.status import Measured
from sparrowmq.core.stats import WINDOWS_S
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.protocol.names import DLQ, RETRY

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


def declare_exporter_names(
    figures: Figures, parts: Measured, progress: LagLookup, settings: BrokerSettings, clock: Clock
) -> None:
    _declare_broker(figures, parts, settings)
    _declare_topics(figures, progress, settings)
    _declare_groups(figures, parts, progress, settings, clock)


def _declare_broker(figures: Figures, parts: Measured, settings: BrokerSettings) -> None:
    broker = (settings.cluster, settings.ip, settings.name)
    labels = ("cluster", "brokerIP", "broker")
    of_runtime = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

    def per_second(key: str) -> Rows:
        return [(broker, float(parts.status.table()[key].split()[0]))]

    def runtime(name: str, key: str, window: int = 0) -> None:
        def read() -> Rows:
            table = parts.status.table()
            runtime_labels = (table["brokerVersionDesc"], table["bootTimestamp"], table["brokerVersion"])
            return [((*broker, *runtime_labels), float(table[key].split()[window]))]

        figures.gauges(f"rocketmq_brokeruntime_{name}", key, of_runtime, read)

    figures.gauges("rocketmq_broker_tps", "messages a second", labels, lambda: per_second("putTps"))
    figures.gauges("rocketmq_broker_qps", "messages a second", labels, lambda: per_second("getTransferedTps"))
    figures.gauges(
        "rocketmq_broker_commitlog_diff", "bytes that slaves lack", labels, lambda: [(broker, _lacking(parts.figures))]
    )
    for name, key in RUNTIME.items():
        runtime(name, key)
    for name, key in RATES.items():
        for window, seconds in enumerate(WINDOWS_S):
            runtime(f"{name}_tps{seconds}", key, window)


def _declare_topics(figures: Figures, progress: LagLookup, settings: BrokerSettings) -> None:
    def ends(name: str, help: str, last_label: str, is_included: Callable[[str], bool]) -> None:
        def read() -> Rows:
            for topic, end in progress.figures.ends.items():
                if is_included(topic):
                    yield (settings.cluster, settings.name, topic.removeprefix(DLQ)), end

        figures.gauges(name, help, ("cluster", "broker", last_label), read)

    about = "the sum of its queues' ends"
    ends("rocketmq_producer_offset", about, "topic", lambda topic: not topic.startswith((RETRY, DLQ)))
    ends("rocketmq_topic_retry_offset", about, "topic", lambda topic: topic.startswith(RETRY))
    ends("rocketmq_topic_dlq_offset", "dead letters of a group", "group", lambda topic: topic.startswith(DLQ))


def _declare_groups(
    figures: Figures, parts: Measured, progress: LagLookup, settings: BrokerSettings, clock: Clock
) -> None:
    broker_labels, clients = (settings.cluster, settings.name), parts.clients
    labels = ("cluster", "broker", "topic", "group")

    def lags(name: str, is_retry: bool) -> None:
        def read() -> Rows:
            for each in progress.figures.groups:
                if each.topic.startswith(RETRY) is is_retry:
                    online = str(len(clients.members(each.group)))
                    yield (each.group, each.topic, online, CLUSTERING), each.lag

        about = "messages that a group has not acknowledged"
        figures.gauges(name, about, ("group", "topic", "countOfOnlineConsumers", "msgModel"), read)

    lags("rocketmq_group_diff", is_retry=False)
    lags("rocketmq_group_retrydiff", is_retry=True)
    figures.gauges(
        "rocketmq_consumer_offset",
        "the sum of a group's offsets",
        labels,
        lambda: (((*broker_labels, each.topic, each.group), each.committed) for each in progress.figures.groups),
    )
    figures.gauges(
        "rocketmq_consumer_tps",
        "messages a second that a group took",
        labels,
        lambda: (((*broker_labels, topic, group), pace) for (group, topic), pace in parts.consumption.paces()),
    )
    figures.gauges(
        "rocketmq_group_get_latency_by_storetime",
        "how long the oldest message is stored that it has not consumed, in ms",
        labels,
        lambda: (
            ((*broker_labels, each.topic, each.group), max(clock.now_ms() - stored_ms, 0))
            for each, stored_ms in progress.figures.waiting
        ),
    )
    figures.gauges(
        "rocketmq_producer_count",
        "producers of a group",
        ("cluster", "broker", "group"),
        lambda: (((*broker_labels, group), len(members)) for group, members in clients.producer_groups()),
    )


def _lacking(figures: Figures) -> float:
    name = "sparrowmq_slave_behind_bytes"
    return sum(figures.values(name).values()) if name in figures else 0
