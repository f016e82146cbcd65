"""One consumer group: its lag in each queue, its online members and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nicegui import ui

from sparrowmq.client.admin.groups import Group, GroupLag, Member, QueueLag
from sparrowmq.console.actions import change_group, delete_group, reset_offsets, skip_waiting
from sparrowmq.console.layout.charts import lines
from sparrowmq.console.layout.described_page import Description, Page, charts, section, text
from sparrowmq.console.layout.tables import Column, Columns, link
from sparrowmq.console.layout.trouble_panel import trouble_panel
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.groups_page import span_text
from sparrowmq.console.reading.cluster_view import behind_s
from sparrowmq.console.reading.reset_effects import topics_of
from sparrowmq.console.reading.troubles import Trouble
from sparrowmq.core.safe_text import counted
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.group_settings import text_of


@dataclass(frozen=True, slots=True)
class GroupNow:
    group: Group
    lag: GroupLag
    members: list[Member]
    past: Sequence[tuple[int, int]]
    now_ms: int


# A queue, and the member that reads it.
QueueRow = tuple[QueueLag, str]
_QUEUES: Final[Columns[QueueRow]] = (
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
_MEMBERS: Final[Columns[MemberRow]] = (
    Column("Member", lambda row: link(row[0].client_id, "groups", row[1], "members", row[0].client_id)),
    Column("Address", lambda row: row[0].address, is_wide=True),
    Column("Language", lambda row: row[0].language, is_wide=True),
    Column("Version", lambda row: row[0].version, is_wide=True),
    Column("Queues", lambda row: len(row[0].running.mq_table) if row[0].running else "unknown", is_number=True),
    Column("Prefetched", lambda row: _prefetched(row[0]), is_number=True, is_wide=True),
    Column("Handled per second", lambda row: _per_second(row[0], "consume_ok_tps"), is_number=True),
    Column(
        "Failed per second",
        lambda row: _per_second(row[0], "consume_failed_tps"),
        is_number=True,
        is_wide=True,
    ),
)
_SETTINGS: Final[Columns[tuple[str, GroupConfig]]] = (
    Column("Broker", lambda row: row[0]),
    Column("Maximum retries", lambda row: row[1].retry_max_times, is_number=True),
    Column("Retry queues", lambda row: row[1].retry_queue_nums, is_number=True),
    Column("May consume", lambda row: row[1].consume_enable),
    Column("May broadcast", lambda row: row[1].consume_broadcast_enable, is_wide=True),
    Column("Ordered", lambda row: bool(row[1].consume_message_orderly), is_wide=True),
    Column("Retry pauses", lambda row: text_of(row[1].group_retry_policy), is_wide=True),
)


async def _read(view: View) -> GroupNow:
    name, admin = view.args["name"], view.look.partial()
    group, lag, members = await admin.group(name), await admin.lag(name), await admin.members(name)
    return GroupNow(group, lag, members, view.samples.lags(name), view.look.clock.now_ms())


async def _refresh(view: View, found: GroupNow) -> GroupNow:
    """Read the lag and the members again; for settings a broker sends those of all groups."""
    name, admin = found.group.name, view.look.partial()
    lag, members = await admin.lag(name), await admin.members(name)
    past = view.samples.lags(name)
    return replace(found, lag=lag, members=members, past=past, now_ms=view.look.clock.now_ms())


def _troubles(view: View, found: GroupNow) -> list[Trouble]:
    """Return the troubles that keep the group from its messages."""
    troubles = view.samples.troubles
    of_topics = troubles.of_topics(topics_of(found.lag))
    return [each for each in troubles.now() if each in of_topics or found.group.name in each.groups]


def lag_text(found: GroupNow) -> str:
    lag = found.lag
    rate = f"{lag.per_second:,.1f} messages per second"
    if lag.lag <= 0:
        return f"No lag; {rate}"
    age = span_text(behind_s(lag, found.now_ms))
    and_age = f", up to {age}" if age else ""
    in_flight = f" ({lag.in_flight:,} in flight)" if lag.in_flight else ""
    return f"Lag: {counted(lag.lag, 'message')}{in_flight}{and_age}; {rate}"


def queue_rows(found: GroupNow) -> list[QueueRow]:
    """Each queue, the ones with the most lag first."""
    owners = {queue: each.client_id for each in found.members if each.running for queue in each.running.mq_table}
    queues = sorted(found.lag.queues, key=lambda each: (-each.lag, each.queue))
    return [(each, owners.get(each.queue, "")) for each in queues]


def _prefetched(member: Member) -> int | None:
    running = member.running
    return sum(each.cached_msg_count for each in running.mq_table.values()) if running else None


def _per_second(member: Member, name: str) -> float | None:
    running = member.running
    return float(sum(getattr(each, name) for each in running.status_table.values())) if running else None


def _buttons(view: View, found: GroupNow) -> None:
    name, topics = found.group.name, topics_of(found.lag)
    with ui.row().classes("gap-2"):
        view.link_button("Dead letters", "mark_email_unread", "dlq", group=name)
        reset_offsets(name, topics[0] if topics else "").button(view)
        if topics:
            skip_waiting(found.lag).button(view)
        change_group(found.group).button(view)
        delete_group(name).button(view)


def lag_chart(found: GroupNow) -> dict[str, Any]:
    """The lag of the last hour as a line."""
    first = min(found.past[0][0], found.now_ms - 60_000) if found.past else found.now_ms - 60_000
    return lines("Lag of the last hour", {"messages": found.past}, (first, found.now_ms))


PAGE: Final = Page(
    "/groups/{name}",
    "Group {name}",
    Description[GroupNow](
        _read,
        [
            _buttons,
            trouble_panel(_troubles),
            text(lag_text, "lag", "text-sm font-medium"),
            charts(lambda found: [lag_chart(found)], "h-56 w-full"),
            section("Queues", _QUEUES, queue_rows, "it has consumed nothing yet"),
            section(
                "Members",
                _MEMBERS,
                lambda found: [(each, found.group.name) for each in found.members],
                "no member is online",
            ),
            section("Settings", _SETTINGS, lambda found: list(found.group.settings.items())),
        ],
        5.0,
        _refresh,
    ),
)
