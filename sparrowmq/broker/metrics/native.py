"""A broker's figures under the names that 5.x's own exporter gives them, and what only ours has as `sparrowmq_...`.

Unlike 5.x: `rocketmq_messages_in_total` counts since a topic was made, not since the broker started, so a restart is
no gap in it; there is no `message_type`, as 4.9's topics have none; `rocketmq_messages_out_total` forgets a group that
took nothing for a minute. Ages are `rocketmq_consumer_lag_latency_milliseconds`, as newer exporters spell it.
Source: BrokerMetricsConstant and DefaultStoreMetricsConstant, Java 5.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from sparrowmq.broker.clients import Clients, Member
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.metrics.consumer_lag import GroupProgress, Progress
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.topics import Topics
from sparrowmq.metrics.page import Page
from sparrowmq.protocol.names import RETRY, is_system_topic
from sparrowmq.stats import Figures

_LAG: Final = "rocketmq_consumer_lag_messages"


def tell_figures(page: Page, figures: Figures) -> None:
    """The store's and the transactions' figures under 5.x's names, and all of them under ours."""
    for name, meaning, figure in (
        ("rocketmq_storage_flush_behind_bytes", "bytes that are not on disk yet", "flush_behind_bytes"),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "bytes that queues do not know yet",
            "dispatch_behind_bytes",
        ),
        ("rocketmq_half_messages", "transactions whose end is not known", "transactions_open"),
    ):
        page.gauge(name, meaning, figures.value(figure))
    kept = figures.value("log_end_offset") - figures.value("log_begin_offset")
    page.gauge("rocketmq_storage_size", "bytes of the log that are kept", kept)
    for name, meaning, figure in (
        ("rocketmq_commit_messages_total", "transactions committed", "transactions_committed"),
        ("rocketmq_rollback_messages_total", "transactions rolled back", "transactions_rolled_back"),
    ):
        page.counter(name, meaning, figures.value(figure))
    page.figures(figures)


def tell_names(page: Page, topics: Topics, groups: Groups, permission: int) -> None:
    """How many topics and groups there are, and what clients may do."""
    page.gauge("rocketmq_broker_permission", "what clients may do: 2 write, 4 read, 6 both", permission)
    page.gauge("rocketmq_topic_number", "topics", len(topics.all()))
    page.gauge("rocketmq_consumer_group_number", "consumer groups", len(groups.all()))


async def tell_messages(
    page: Page, progress: Progress, consumption: Consumption, most: int, now_ms: int
) -> None:
    """What comes in, goes out and waits, by topic and group."""
    ends = await progress.ends()
    page.counters(
        "rocketmq_messages_in_total",
        "messages of a topic since it was made",
        ("topic", "is_system"),
        [((topic, _flag(is_system_topic(topic))), end) for topic, end in ends.items()],
    )
    page.counters(
        "rocketmq_messages_out_total",
        "messages that a group took",
        ("consumer_group", "topic", "is_retry", "is_system"),
        [((group, *_about(topic)), count) for (group, topic), count in consumption.counts()],
    )
    groups = await progress.of_groups()
    labels = ("consumer_group", "topic", "is_retry", "is_system")
    page.gauges(
        _LAG,
        "messages that a group has not consumed",
        labels,
        [((each.group, *_about(each.topic)), each.lag) for each in groups],
    )
    page.gauges(
        "rocketmq_consumer_lag_latency_milliseconds",
        "how long the oldest of them is stored",
        labels,
        await _ages(progress, groups, most, now_ms),
    )


def tell_clients(page: Page, clients: Clients) -> None:
    """Who is connected; of groups first those whose lag was told."""
    producers = [member for _, members in clients.producer_groups() for member in members]
    page.gauges("rocketmq_producer_connections", "producers", ("language", "version"), _kinds(producers))
    page.gauges(
        "rocketmq_consumer_connections",
        "members of a consumer group",
        ("consumer_group", "language", "version", "consume_mode"),
        [
            ((group.name, *kind, "push" if group.consume_type == "CONSUME_PASSIVELY" else "pull"), count)
            for group in clients.consumer_groups()
            for kind, count in _kinds(group.members.values())
        ],
        along_with=_LAG,
    )


async def _ages(
    progress: Progress, groups: list[GroupProgress], most: int, now_ms: int
) -> list[tuple[tuple[str, ...], float]]:
    found = await progress.waiting_since(groups, most)
    return [((each.group, *_about(each.topic)), max(now_ms - stored_ms, 0)) for each, stored_ms in found]


def _kinds(members: Iterable[Member]) -> list[tuple[tuple[str, ...], float]]:
    counts = Counter((member.language, str(member.version)) for member in members)
    return list(counts.items())


def _about(topic: str) -> tuple[str, str, str]:
    return topic, _flag(topic.startswith(RETRY)), _flag(is_system_topic(topic))


def _flag(is_so: bool) -> str:
    return "true" if is_so else "false"
