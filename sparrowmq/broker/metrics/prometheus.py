"""The metrics of a broker for Prometheus and for a collector.

The figures of topics and groups are looked up for each visit (consumer_lag.py). They have the names that 5.x's own
exporter gives them; with /metrics?compat=exporter those of Apache's rocketmq-exporter (exporter_names.py).

Unlike 5.x: `rocketmq_messages_in_total` counts since a topic was created, not since the broker started.
`rocketmq_send_to_dlq_messages_total` counts as long, and by dead-letter topic. `rocketmq_messages_out_total` forgets a
group that received nothing for a minute. There is no `message_type`, as 4.9's topics have none. Ages are
`rocketmq_consumer_lag_latency_milliseconds`, as newer exporters spell it.

Only the master shows topics, groups and transactions, so sums over all brokers count nothing twice.
Source: BrokerMetricsConstant and DefaultStoreMetricsConstant, Java 5.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients, Member
from sparrowmq.broker.group_lags import GroupLags
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.metrics.consumer_lag import LagLookup
from sparrowmq.broker.metrics.exporter_names import declare_exporter_names
from sparrowmq.broker.metrics.status import Measured
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.replication.slave_link import declare_lags
from sparrowmq.broker.store import folders
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.metrics.http_endpoint import Endpoint
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.metrics.server_figures import declare_disks, declare_latencies
from sparrowmq.protocol.names import DLQ, RETRY, is_system_group, is_system_topic
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.listener import Listener

# Names of 5.x for figures that parts of the broker declare.
NAMES_OF_5X: Final = {
    "rocketmq_storage_flush_behind_bytes": "sparrowmq_flush_behind_bytes",
    "rocketmq_storage_dispatch_behind_bytes": "sparrowmq_dispatch_behind_bytes",
}
NAMES_OF_5X_AT_MASTERS: Final = {
    "rocketmq_half_messages": "sparrowmq_transactions_open",
    "rocketmq_commit_messages_total": "sparrowmq_transactions_committed_total",
    "rocketmq_rollback_messages_total": "sparrowmq_transactions_rolled_back_total",
}
_GROUP_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")


def metrics_part(
    door: Listener | Endpoint | None,
    settings: BrokerSettings,
    parts: Measured,
    pops: PopTable,
    latencies: Latencies,
    clock: Clock,
    ready: Callable[[], Awaitable[str]],
) -> Part:
    """Return the part that answers Prometheus and sends to a collector. Raises: ConfigError, no exporter is there."""
    lags = GroupLags(parts.store, parts.topics, parts.offsets, parts.clients, pops)
    progress, exporter_figures = LagLookup(parts.store, parts.offsets, lags, parts.clients), Figures()
    declare_names_of_5x(parts, progress, settings, latencies, clock)
    audit_folder = {} if settings.audit_path is None else {"audit": settings.audit_path.parent}
    declare_disks(parts.figures, folders(parts.store) | audit_folder)
    if not settings.is_slave:  # Apache's exporter asks masters only
        declare_exporter_names(exporter_figures, parts, progress, settings, clock)
    role = "slave" if settings.is_slave else "master"

    port = MetricsPort(
        door,
        settings,
        parts.figures,
        {"cluster": settings.cluster, "node_type": "broker", "node_id": settings.name, "role": role},
        {"service.name": "sparrowmq-broker", "service.instance.id": f"{settings.name}:{settings.broker_id}"},
        clock,
        ready=ready,
        lookup=lambda: progress.look_up_all(settings.metrics_series),
        exporter=exporter_figures,
    )
    return Part(tasks=tuple(Task(name, start) for name, start in port.tasks.items()))


def declare_names_of_5x(
    parts: Measured, progress: LagLookup, settings: BrokerSettings, latencies: Latencies, clock: Clock
) -> None:
    figures, store = parts.figures, parts.store
    figures.gauge(
        "rocketmq_broker_permission", "permission of clients: 2 write, 4 read, 6 both", lambda: settings.permission
    )
    figures.gauge("rocketmq_storage_size", "size of the log in bytes", lambda: store.end - store.begin)
    _declare_received(parts)
    if not settings.is_slave:
        _declare_topics(parts, progress, clock)
    _declare_clients(figures, parts.clients)
    declare_latencies(figures, latencies)
    declare_lags(store, clock, figures)
    figures.time_histogram("sparrowmq_sync_seconds", "time to sync the log to disk", lambda: store.flusher.times)
    for name, own_name in (NAMES_OF_5X if settings.is_slave else NAMES_OF_5X | NAMES_OF_5X_AT_MASTERS).items():
        figures.add_alias(name, own_name)


def _declare_received(parts: Measured) -> None:
    parts.figures.counters(
        "rocketmq_messages_out_total",
        "messages that a group received",
        _GROUP_LABELS,
        lambda: (((group, *_topic_labels(topic)), count) for (group, topic), count in parts.consumption.counts()),
    )
    parts.figures.counters(
        "rocketmq_throughput_out_total",
        "bytes of the messages that a group received",
        _GROUP_LABELS,
        lambda: (
            ((group, *_topic_labels(topic)), sum(pull_counts.size_bytes for pull_counts in pair.queues.values()))
            for (group, topic), pair in parts.consumption.pairs()
        ),
    )


def _declare_topics(parts: Measured, progress: LagLookup, clock: Clock) -> None:
    figures = parts.figures
    figures.gauge("rocketmq_topic_number", "number of topics", lambda: len(parts.topics.all()))
    figures.gauge("rocketmq_consumer_group_number", "number of consumer groups", lambda: len(parts.groups.all()))
    figures.counters(
        "rocketmq_messages_in_total",
        "messages of a topic since it was created",
        ("topic", "is_system"),
        lambda: (((topic, _flag_text(is_system_topic(topic))), end) for topic, end in progress.figures.ends.items()),
    )
    figures.counters(
        "rocketmq_throughput_in_total",
        "bytes of the messages of a topic since the broker started",
        ("topic", "is_system"),
        lambda: (((topic, _flag_text(is_system_topic(topic))), size) for topic, size in progress.figures.bytes.items()),
    )
    figures.counters(
        "rocketmq_send_to_dlq_messages_total",
        "dead letters of a group; topic is its dead-letter topic",
        ("consumer_group", "topic", "is_system"),
        lambda: _dead_letters(parts.groups, progress.figures.ends),
    )
    _declare_lags(figures, progress, clock)


def _declare_lags(figures: Figures, progress: LagLookup, clock: Clock) -> None:
    figures.gauges(
        "rocketmq_consumer_lag_messages",
        "messages that a group has not acknowledged: ready or in flight",
        _GROUP_LABELS,
        lambda: (((each.group, *_topic_labels(each.topic)), each.lag) for each in progress.figures.groups),
    )

    figures.gauges(
        "rocketmq_consumer_inflight_messages",
        "messages of a group that pops: with its consumers",
        _GROUP_LABELS,
        lambda: _of_pops(progress, lambda lag, in_flight: in_flight),
    )
    figures.gauges(
        "rocketmq_consumer_ready_messages",
        "messages of a group that pops: ready to be received",
        _GROUP_LABELS,
        lambda: _of_pops(progress, lambda lag, in_flight: lag - in_flight),
    )
    figures.gauges(
        "rocketmq_consumer_lag_latency_milliseconds",
        "age of the oldest message that a group has not consumed",
        _GROUP_LABELS,
        lambda: (
            ((each.group, *_topic_labels(each.topic)), max(clock.now_ms() - stored_ms, 0))
            for each, stored_ms in progress.figures.waiting
        ),
    )


def _of_pops(progress: LagLookup, count: Callable[[int, int], int]) -> Rows:
    for each in progress.figures.groups:
        if each.in_flight is not None:
            yield (each.group, *_topic_labels(each.topic)), count(each.lag, each.in_flight)


def _dead_letters(groups: Groups, ends: Mapping[str, int]) -> Rows:
    """Every group has a row, because the rise from a missing row to the first dead letter is no rise for Prometheus."""
    names = {topic.removeprefix(DLQ) for topic in ends if topic.startswith(DLQ)} | {
        group.group_name for group in groups.all()
    }
    for group in sorted(names):
        yield (group, DLQ + group, _flag_text(is_system_group(group))), ends.get(DLQ + group, 0)


def _declare_clients(figures: Figures, clients: Clients) -> None:
    figures.gauges(
        "rocketmq_producer_connections",
        "producers",
        ("language", "version"),
        lambda: _client_kinds(member for _, members in clients.producer_groups() for member in members),
    )
    figures.gauges(
        "rocketmq_consumer_connections",
        "online members of a consumer group",
        ("consumer_group", "language", "version", "consume_mode"),
        lambda: _consumer_rows(clients),
        along_with="rocketmq_consumer_lag_messages",
    )


def _consumer_rows(clients: Clients) -> Rows:
    for group in clients.consumer_groups():
        mode = "push" if group.consume_type == "CONSUME_PASSIVELY" else "pull"
        for kind, count in _client_kinds(group.members.values()):
            yield (group.name, *kind, mode), count


def _client_kinds(members: Iterable[Member]) -> Rows:
    return Counter((member.language, str(member.version)) for member in members).items()


def _topic_labels(topic: str) -> tuple[str, str, str]:
    return topic, _flag_text(topic.startswith(RETRY)), _flag_text(is_system_topic(topic))


def _flag_text(flag: bool) -> str:
    return "true" if flag else "false"
