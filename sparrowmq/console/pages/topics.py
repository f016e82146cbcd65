"""All topics, by kind: what each has and receives, and the lags of its groups; and one topic.

/topics          the list
/topics/{name}   its queues, its route and its consumer groups
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nicegui import ui

from sparrowmq.admin import topics
from sparrowmq.admin.groups import GroupLag
from sparrowmq.admin.topics import QueueRange, Topic, TopicShare, perm_of
from sparrowmq.console.actions import change_topic, create_topic, delete_topic, reset_offsets, send_message
from sparrowmq.console.cluster_view import PAGE_AGE_S, SORTING_AGE_S, TopicFigures
from sparrowmq.console.console_metrics import CountedAdmin
from sparrowmq.console.layout.page import (
    ROWS_PER_PAGE,
    Boxes,
    Description,
    ListPage,
    Page,
    Update,
    table_part,
    text_part,
)
from sparrowmq.console.layout.tables import Amount, Column, Columns, bytes_text, link
from sparrowmq.console.layout.trouble_panel import left_out_text, trouble_panel
from sparrowmq.console.layout.view import View
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.bodies import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, with its settings on each broker."""

    name: str
    kind: str
    configs: Mapping[str, TopicConfig]
    figures: TopicFigures | None = None  # None if a broker does not report them
    lags: Mapping[str, int] | None = None  # by group; None if a broker does not report them

    def queues(self) -> Amount:
        """Return the number of queues, and how many are only read or only written."""
        readable = sum(config.read_queue_nums for config in self.configs.values())
        writable = sum(config.write_queue_nums for config in self.configs.values())
        return Amount(readable, f"{readable}" if readable == writable else f"{readable} r / {writable} w")

    def perm(self) -> str:
        perms = {perm_of(config.perm) for config in self.configs.values()}
        return perms.pop() if len(perms) == 1 else "differs"

    def size(self) -> Amount | None:
        """About how much of the log it takes."""
        size = self.figures.size if self.figures is not None else None
        return None if size is None else Amount(size, bytes_text(size))

    def lag(self) -> int | str | None:
        if self.lags is None:
            return "unknown"
        return sum(self.lags.values()) if self.lags else None


_TOPIC_COLUMNS: Final[Columns[TopicRow]] = (
    Column("Topic", lambda row: link(row.name, "topics", row.name)),
    Column("Kind", lambda row: row.kind, is_wide=True),
    Column("Messages", lambda row: row.figures.messages if row.figures else "unknown", is_number=True),
    Column("In per second", lambda row: row.figures.per_second if row.figures else None, is_number=True),
    Column("Size, about", TopicRow.size, is_number=True, is_wide=True),
    Column("Groups", lambda row: len(row.lags) if row.lags is not None else None, is_number=True, is_wide=True),
    Column("Lag", TopicRow.lag, is_number=True),
    Column("Queues", TopicRow.queues, is_number=True, is_wide=True),
    Column("Permission", TopicRow.perm, is_wide=True),
    Column("Brokers", lambda row: ", ".join(sorted(row.configs)), is_wide=True),
)
_KINDS: Final = {"topic": "Topics", "retry": "Retries", "dlq": "Dead letters", "system": "RocketMQ's own"}


async def _read_topics(view: View, ticked: Collection[str]) -> Mapping[str, TopicRow]:
    rows = [
        TopicRow(name, view.cluster.kind_of(name), configs) for name, configs in (await view.cluster.topics()).items()
    ]
    return {row.name: row for row in rows if row.kind in ticked}


async def _topic_rows(view: View, data: Mapping[str, TopicRow]) -> Sequence[TopicRow]:
    figures = await view.cluster.topic_figures(list(data), PAGE_AGE_S if len(data) <= ROWS_PER_PAGE else SORTING_AGE_S)
    try:
        lags: Mapping[str, Mapping[str, int]] | None = lags_of_topics(await view.cluster.progress())
    except SparrowError:
        lags = None
    return [
        replace(row, figures=figures[name], lags=None if lags is None else lags.get(name, {}))
        for name, row in data.items()
    ]


def lags_of_topics(progress: Mapping[str, GroupLag]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for group, lag in progress.items():
        for queue_lag in lag.queues:
            by_group = by_topic.setdefault(queue_lag.queue.topic, {})
            by_group[group] = by_group.get(group, 0) + queue_lag.lag
    return by_topic


TOPICS_PAGE: Final = Page(
    "/topics",
    "Topics",
    ListPage(
        _TOPIC_COLUMNS,
        _read_topics,
        _topic_rows,
        "no topic fits",
        Boxes("kinds", _KINDS, "topic"),
        lambda view: create_topic().button(view, "no-caps"),
        10.0,
    ),
    "topic",
    "t",
)


@dataclass(frozen=True, slots=True)
class TopicNow:
    topic: Topic
    kind: str
    addresses: Mapping[str, Mapping[int, str]]  # by broker, the address of each of its members by number
    lags: Mapping[str, GroupLag | None]  # by group; None if no broker reports it
    left_out_queues: Mapping[str, int]  # brokers whose queues are missing, with their number; 0 if it is unknown

    def addresses_of(self, broker: str) -> str:
        return ", ".join(f"{number}: {at}" for number, at in sorted(self.addresses.get(broker, {}).items()))


_QUEUE_COLUMNS: Final[Columns[QueueRange]] = (
    Column("Broker", lambda each: each.queue.broker_name),
    Column("Queue", lambda each: each.queue.queue_id, is_number=True),
    Column("First offset", lambda each: each.min_offset, is_number=True, is_wide=True),
    Column("Next offset", lambda each: each.max_offset, is_number=True, is_wide=True),
    Column("Messages", lambda each: each.max_offset - each.min_offset, is_number=True),
    Column("Last stored", lambda each: each.last_stored, is_wide=True),
)
# A broker's share of the topic, and its addresses.
_ROUTE_COLUMNS: Final[Columns[tuple[TopicShare, str]]] = (
    Column("Broker", lambda row: row[0].broker),
    Column("Addresses", lambda row: row[1], is_wide=True),
    Column("Read queues", lambda row: row[0].read_queues, is_number=True),
    Column("Write queues", lambda row: row[0].write_queues, is_number=True),
    Column("Permission", lambda row: row[0].perm),
    Column("Type", lambda row: row[0].message_type, is_wide=True),
)
_GROUP_COLUMNS: Final[Columns[tuple[str, GroupLag | None]]] = (
    Column("Group", lambda row: link(row[0], "groups", row[0])),
    Column("Lag", lambda row: row[1].lag if row[1] else "unknown", is_number=True),
    Column("Messages per second", lambda row: row[1].per_second if row[1] else None, is_number=True, is_wide=True),
)


async def _read_topic(view: View) -> TopicNow:
    name = view.args["name"]
    admin = view.cluster.partial_admin()
    topic, route = await admin.topic(name), await view.cluster.servers.route(name)
    groups = await topics.consumers_of(admin.servers, name)
    return TopicNow(
        topic,
        view.cluster.kind_of(name),
        {broker.broker_name: broker.broker_addrs for broker in route.broker_datas},
        {group: await view.attempt(admin.lag(group, name)) for group in groups},
        _left_out(view, topic, admin),
    )


async def _refresh_topic(view: View, data: TopicNow) -> TopicNow:
    """Read the queues again; the lags of many groups would cost more."""
    admin, name = view.cluster.partial_admin(), data.topic.name
    topic = await admin.topic(name)
    return replace(data, topic=topic, left_out_queues=_left_out(view, topic, admin))


def _left_out(view: View, topic: Topic, admin: CountedAdmin) -> dict[str, int]:
    left_out = view.samples.troubles.left_out_queues(topic.name, admin.counted.missing or ())
    return left_out | {share.broker: share.read_queues for share in topic.shares if share.broker in left_out}


def missing_text(data: TopicNow) -> str:
    """The queues that are missing, and whose; "" if none is."""
    if not data.left_out_queues:
        return ""
    missing = sum(data.left_out_queues.values())
    return f"{missing} queues of {len(data.topic.queues) + missing} are missing. {left_out_text(data.left_out_queues)}"


def _missing(_: View, data: TopicNow) -> Update[TopicNow]:
    line = ui.label().classes("trouble-text").mark("missing")

    def show(now: TopicNow) -> None:
        line.text = missing_text(now)
        line.set_visibility(bool(now.left_out_queues))

    show(data)
    return show


def _buttons(view: View, data: TopicNow) -> None:
    topic = data.topic
    with ui.row().classes("gap-2"):
        view.link_button("Messages", "mail", "messages", topic=topic.name)
        view.link_button("Live tail", "stream", "tail", topic=topic.name)
        for action in (
            send_message(topic.name),
            reset_offsets(topic=topic.name),
            change_topic(topic),
            delete_topic(topic),
        ):
            action.button(view)


TOPIC_PAGE: Final = Page(
    "/topics/{name}",
    "Topic {name}",
    Description[TopicNow](
        _read_topic,
        [
            _buttons,
            trouble_panel(lambda view, data: view.samples.troubles.of_topics([data.topic.name])),
            _missing,
            text_part(
                lambda data: (
                    f"{counted(data.topic.count, 'message')} in {counted(len(data.topic.queues), 'queue')}; "
                    f"kind: {data.kind}"
                )
            ),
            table_part("Queues", _QUEUE_COLUMNS, lambda data: data.topic.queues, "it has no queues"),
            table_part(
                "Route",
                _ROUTE_COLUMNS,
                lambda data: [(share, data.addresses_of(share.broker)) for share in data.topic.shares],
                wraps=True,
            ),
            table_part(
                "Consumer groups", _GROUP_COLUMNS, lambda data: list(data.lags.items()), "no group has consumed it"
            ),
        ],
        5.0,
        _refresh_topic,
    ),
)
