"""Consumer groups with the lag of each in messages and in time; one group; one member of it; the producers.

/groups                          all consumer groups
/groups/{group}                  its lag in each queue, its online members and its settings
/groups/{group}/members/{name}   subscriptions, queues and settings, as the member reports them
/producers                       the online producers, by group
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nicegui import ui

from sparrowmq.admin.groups import Group, GroupLag, Member, QueueLag
from sparrowmq.console.actions import change_group, create_group, delete_group, reset_offsets, skip_waiting, topics_of
from sparrowmq.console.cluster_view import PAGE_AGE_S, SORTING_AGE_S, behind_s
from sparrowmq.console.layout.charts import line_chart
from sparrowmq.console.layout.page import (
    ROWS_PER_PAGE,
    Boxes,
    Description,
    ListPage,
    Page,
    Part,
    charts_part,
    links_part,
    table_part,
    text_part,
)
from sparrowmq.console.layout.tables import Amount, Column, Columns, Sparkline, link, pair_columns
from sparrowmq.console.layout.trouble_panel import trouble_panel
from sparrowmq.console.layout.view import NotThere, View
from sparrowmq.console.troubles import Trouble
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.codes import version_name
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerRunning, ProcessQueueState, ProducerEntry
from sparrowmq.protocol.requests.group_settings import text_of
from sparrowmq.protocol.subscription import Subscription


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group; without a lag if no broker reports it."""

    name: str
    lag: GroupLag | None
    age: Amount | None
    lag_history: Sparkline
    members: int | None


_GROUP_COLUMNS: Final[Columns[GroupRow]] = (
    Column("Group", lambda row: link(row.name, "groups", row.name)),
    Column("Lag", lambda row: row.lag.lag if row.lag else "unknown", is_number=True),
    Column("Lag time", lambda row: row.age, is_number=True),
    Column("Last hour", lambda row: row.lag_history, is_wide=True, is_sorted=False),
    Column("Members", lambda row: "unknown" if row.members is None else row.members, is_number=True),
    Column("Messages per second", lambda row: row.lag.per_second if row.lag else None, is_number=True, is_wide=True),
    Column("Topics", lambda row: ", ".join(topics_of(row.lag)) if row.lag else "", is_wide=True),
)


async def _read_groups(view: View, ticked: Collection[str]) -> Mapping[str, None]:
    return dict.fromkeys(await view.cluster.groups(hidden="1" in ticked))


async def _group_rows(view: View, names: Mapping[str, None]) -> list[GroupRow]:
    lags = await view.cluster.lags(list(names))
    is_page = len(names) <= ROWS_PER_PAGE
    members = await view.cluster.members(list(names), PAGE_AGE_S if is_page else SORTING_AGE_S)
    return [_group_row(view, name, lag, members[name], is_page) for name, lag in lags.items()]


def _group_row(view: View, name: str, lag: GroupLag | SparrowError, members: int | None, is_watched: bool) -> GroupRow:
    if isinstance(lag, SparrowError):
        return GroupRow(name, None, None, Sparkline([]), members)
    age_s = behind_s(lag, view.cluster.clock.now_ms())
    age = None if age_s is None else Amount(age_s, span_text(age_s))
    lag_history = view.samples.watch_lags(name) if is_watched else view.samples.known_lags(name)
    return GroupRow(name, lag, age, Sparkline([number for _, number in lag_history]), members)


def span_text(seconds: float | None) -> str:
    """A span as people say it: 4 s, 3 min, 5 h, 2 d."""
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


GROUPS_PAGE: Final = Page(
    "/groups",
    "Consumers",
    ListPage(
        _GROUP_COLUMNS,
        _read_groups,
        _group_rows,
        "no group fits",
        Boxes("hidden", {"1": "RocketMQ's own"}),
        lambda view: create_group().button(view, "no-caps"),
        10.0,
    ),
    "groups",
    "g",
)


@dataclass(frozen=True, slots=True)
class GroupNow:
    group: Group
    lag: GroupLag
    members: list[Member]
    lag_history: Sequence[tuple[int, int]]
    now_ms: int


# A queue, and the member that reads it.
QueueRow = tuple[QueueLag, str]
_QUEUE_COLUMNS: Final[Columns[QueueRow]] = (
    Column("Topic", lambda row: link(row[0].queue.topic, "topics", row[0].queue.topic)),
    Column("Broker", lambda row: row[0].queue.broker_name),
    Column("Queue", lambda row: row[0].queue.queue_id, is_number=True),
    Column("Committed offset", lambda row: row[0].committed, is_number=True, is_wide=True),
    Column("Queue's end", lambda row: row[0].broker_offset, is_number=True, is_wide=True),
    Column("Lag", lambda row: row[0].lag, is_number=True),
    Column("In flight", lambda row: row[0].in_flight, is_number=True, is_wide=True),
    Column("Member", lambda row: row[1], is_wide=True),
    Column("Last handled", lambda row: row[0].last_consumed, is_wide=True),
)
# A member, and its group.
MemberRow = tuple[Member, str]
_MEMBER_COLUMNS: Final[Columns[MemberRow]] = (
    Column("Member", lambda row: link(row[0].client_id, "groups", row[1], "members", row[0].client_id)),
    Column("Address", lambda row: row[0].address, is_wide=True),
    Column("Language", lambda row: row[0].language, is_wide=True),
    Column("Version", lambda row: row[0].version, is_wide=True),
    Column("Queues", lambda row: len(row[0].running.mq_table) if row[0].running else "unknown", is_number=True),
    Column("Prefetched", lambda row: _prefetched(row[0]), is_number=True, is_wide=True),
    Column("Handled per second", lambda row: _per_second(row[0], "consume_ok_tps"), is_number=True),
    Column("Failed per second", lambda row: _per_second(row[0], "consume_failed_tps"), is_number=True, is_wide=True),
)
_SETTING_COLUMNS: Final[Columns[tuple[str, GroupConfig]]] = (
    Column("Broker", lambda row: row[0]),
    Column("Maximum retries", lambda row: row[1].retry_max_times, is_number=True),
    Column("Retry queues", lambda row: row[1].retry_queue_nums, is_number=True),
    Column("May consume", lambda row: row[1].consume_enable),
    Column("May broadcast", lambda row: row[1].consume_broadcast_enable, is_wide=True),
    Column("Ordered", lambda row: bool(row[1].consume_message_orderly), is_wide=True),
    Column("Retry pauses", lambda row: text_of(row[1].group_retry_policy), is_wide=True),
)


async def _read_group(view: View) -> GroupNow:
    name, admin = view.args["name"], view.cluster.partial_admin()
    group, lag, members = await admin.group(name), await admin.lag(name), await admin.members(name)
    return GroupNow(group, lag, members, view.samples.watch_lags(name), view.cluster.clock.now_ms())


async def _refresh_group(view: View, data: GroupNow) -> GroupNow:
    """Read the lag and the members again; for settings a broker sends those of all groups."""
    name, admin = data.group.name, view.cluster.partial_admin()
    lag, members = await admin.lag(name), await admin.members(name)
    lag_history = view.samples.watch_lags(name)
    return replace(data, lag=lag, members=members, lag_history=lag_history, now_ms=view.cluster.clock.now_ms())


def _troubles(view: View, data: GroupNow) -> list[Trouble]:
    troubles = view.samples.troubles
    of_topics = troubles.of_topics(topics_of(data.lag))
    return [trouble for trouble in troubles.current() if trouble in of_topics or data.group.name in trouble.groups]


def lag_text(data: GroupNow) -> str:
    lag = data.lag
    rate = f"{lag.per_second:,.1f} messages per second"
    if lag.lag <= 0:
        return f"No lag; {rate}"
    age = span_text(behind_s(lag, data.now_ms))
    and_age = f", up to {age}" if age else ""
    in_flight = f" ({lag.in_flight:,} in flight)" if lag.in_flight else ""
    return f"Lag: {counted(lag.lag, 'message')}{in_flight}{and_age}; {rate}"


def queue_rows(data: GroupNow) -> list[QueueRow]:
    """Each queue, the ones with the most lag first."""
    owners = {queue: member.client_id for member in data.members if member.running for queue in member.running.mq_table}
    queue_lags = sorted(data.lag.queues, key=lambda queue_lag: (-queue_lag.lag, queue_lag.queue))
    return [(queue_lag, owners.get(queue_lag.queue, "")) for queue_lag in queue_lags]


def _prefetched(member: Member) -> int | None:
    running = member.running
    return sum(state.cached_msg_count for state in running.mq_table.values()) if running else None


def _per_second(member: Member, name: str) -> float | None:
    running = member.running
    return float(sum(getattr(status, name) for status in running.status_table.values())) if running else None


def _group_buttons(view: View, data: GroupNow) -> None:
    name, topics = data.group.name, topics_of(data.lag)
    with ui.row().classes("gap-2"):
        view.link_button("Dead letters", "mark_email_unread", "dlq", group=name)
        reset_offsets(name, topics[0] if topics else "").button(view)
        if topics:
            skip_waiting(data.lag).button(view)
        change_group(data.group).button(view)
        delete_group(name).button(view)


def lag_chart(data: GroupNow) -> dict[str, Any]:
    first = min(data.lag_history[0][0], data.now_ms - 60_000) if data.lag_history else data.now_ms - 60_000
    return line_chart("Lag of the last hour", {"messages": data.lag_history}, (first, data.now_ms))


GROUP_PAGE: Final = Page(
    "/groups/{name}",
    "Group {name}",
    Description[GroupNow](
        _read_group,
        [
            _group_buttons,
            trouble_panel(_troubles),
            text_part(lag_text, "lag", "text-sm font-medium"),
            charts_part(lambda data: [lag_chart(data)], "h-56 w-full"),
            table_part("Queues", _QUEUE_COLUMNS, queue_rows, "it has consumed nothing yet"),
            table_part(
                "Members",
                _MEMBER_COLUMNS,
                lambda data: [(member, data.group.name) for member in data.members],
                "no member is online",
            ),
            table_part("Settings", _SETTING_COLUMNS, lambda data: list(data.group.settings.items())),
        ],
        5.0,
        _refresh_group,
    ),
)
_SUBSCRIPTION_COLUMNS: Final[Columns[Subscription]] = (
    Column("Topic", lambda each: each.topic),
    Column("Kind", lambda each: each.kind),
    Column("Expression", lambda each: each.expression),
)
_MEMBER_QUEUE_COLUMNS: Final[Columns[tuple[MessageQueue, ProcessQueueState]]] = (
    Column("Topic", lambda row: row[0].topic),
    Column("Broker", lambda row: row[0].broker_name),
    Column("Queue", lambda row: row[0].queue_id, is_number=True),
    Column("Committed offset", lambda row: row[1].commit_offset, is_number=True, is_wide=True),
    Column("Prefetched", lambda row: row[1].cached_msg_count, is_number=True),
    Column("Locked", lambda row: row[1].locked, is_wide=True),
)
# A member, and its group.
_STATE_PARTS: Final[Sequence[Part[ConsumerRunning]]] = (
    table_part("Subscriptions", _SUBSCRIPTION_COLUMNS, lambda running: running.subscription_set),
    table_part(
        "Queues", _MEMBER_QUEUE_COLUMNS, lambda running: sorted(running.mq_table.items()), "it has no queue now"
    ),
    table_part(
        "Settings", pair_columns("Setting", "Value"), lambda running: sorted(running.properties.items()), wraps=True
    ),
)


async def _read_member(view: View) -> MemberRow:
    group, client_id = view.args["group"], view.args["name"]
    members = {member.client_id: member for member in await view.admin.members(group)}
    if client_id not in members:
        online = ", ".join(sorted(members)) or "none"
        raise NotThere(f"{client_id} is not an online member of group {group}; online: {online}")
    return members[client_id], group


def _draw_member_state(view: View, data: MemberRow) -> None:
    running = data[0].running
    if running is None:
        ui.label(f"The member does not report its state: {data[0].silence}").classes("whitespace-pre-wrap")
        return
    for part in _STATE_PARTS:
        part(view, running)
    if running.jstack:
        with ui.expansion("Threads").classes("w-full"):
            ui.label(running.jstack).classes("mono whitespace-pre-wrap")


MEMBER_PAGE: Final = Page(
    "/groups/{group}/members/{name:path}",
    "Member {name}",
    Description[MemberRow](
        _read_member,
        [
            links_part(lambda data: [link(f"Group {data[1]}", "groups", data[1])]),
            text_part(lambda data: f"{data[0].language} {data[0].version} at {data[0].address}"),
            _draw_member_state,
        ],
    ),
)
# A group, one of its producers, and how long ago its last heartbeat came.
ProducerRow = tuple[str, ProducerEntry, str]
PRODUCER_COLUMNS: Final[Columns[ProducerRow]] = (
    Column("Group", lambda row: row[0]),
    Column("Client", lambda row: row[1].client_id),
    Column("Address", lambda row: row[1].remote_ip.removeprefix("/"), is_wide=True),
    Column("Language", lambda row: row[1].language, is_wide=True),
    Column("Version", lambda row: version_name(row[1].version), is_wide=True),
    Column("Last heartbeat", lambda row: row[2], is_wide=True),
)


async def _read_producers(view: View, _: Collection[str]) -> Mapping[str, ProducerRow]:
    return producers_by_text(await view.cluster.producers(), view.cluster.clock.now_ms())


async def _producer_rows(_: View, data: Mapping[str, ProducerRow]) -> Sequence[ProducerRow]:
    return list(data.values())


def producers_by_text(producers: Mapping[str, Sequence[ProducerEntry]], now_ms: int) -> dict[str, ProducerRow]:
    """Each producer by the text that a filter searches."""
    return {
        f"{group} {entry.client_id} {entry.remote_ip} {entry.language}": (group, entry, _age_text(entry, now_ms))
        for group, entries in producers.items()
        for entry in entries
    }


def _age_text(entry: ProducerEntry, now_ms: int) -> str:
    ago_s = max(0, now_ms - entry.last_update_timestamp) / 1000
    return f"{ago_s:.0f} s ago" if entry.last_update_timestamp else ""


PRODUCERS_PAGE: Final = Page(
    "/producers",
    "Producers",
    ListPage(PRODUCER_COLUMNS, _read_producers, _producer_rows, "no producer is online", period_s=10.0),
    "outbox",
    "p",
)
