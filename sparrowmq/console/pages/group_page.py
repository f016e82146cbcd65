"""One consumer group: each queue, each member, its settings; change, move, skip and delete it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nicegui import ui

from sparrowmq.client.admin.groups import Group, GroupLag, Member
from sparrowmq.console.layout.forms import buttons, destroy, dialog
from sparrowmq.console.layout.listing import Column, Row, link, sparkline, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.pages.groups_page import span_text
from sparrowmq.console.pages.topic_page import moment
from sparrowmq.console.reading.cluster_view import behind_s
from sparrowmq.console.reset_dialog import reset_dialog

_QUEUES: Final = (
    Column("topic", "Topic"),
    Column("broker", "Broker", is_wide=True),
    Column("queue", "Queue", is_number=True),
    Column("committed", "Handled up to", is_number=True, is_wide=True),
    Column("end", "Queue's end", is_number=True, is_wide=True),
    Column("lag", "Lag", is_number=True),
    Column("member", "Member", is_wide=True),
    Column("last", "Last handled was stored"),
)
_MEMBERS: Final = (
    Column("client", "Member"),
    Column("address", "Address", is_wide=True),
    Column("language", "Language", is_wide=True),
    Column("version", "Version", is_wide=True),
    Column("queues", "Queues", is_number=True),
    Column("cached", "Prefetched", is_number=True),
    Column("ok", "Handled per second", is_number=True),
    Column("failed", "Failed per second", is_number=True),
)
_SETTINGS: Final = (
    Column("broker", "Broker"),
    Column("retries", "Tries", is_number=True),
    Column("queues", "Retry queues", is_number=True),
    Column("consume", "May consume"),
    Column("broadcast", "May broadcast", is_wide=True),
)


async def draw(view: View) -> None:
    name = view.args["name"]
    group = await view.admin.group(name)
    lag = await view.admin.lag(name)
    members = await view.admin.members(name)
    with ui.row().classes("gap-2"):
        _buttons(view, group, lag)
    with ui.row().classes("items-center gap-6 text-sm"):
        said = ui.label(lag_text(view, lag)).classes("font-medium").mark("lag")
        _line(view, name)
    ui.label("Queues").classes("text-lg")
    queues = table(_QUEUES, queue_rows(view, lag, members), "it has consumed nothing yet")
    ui.label("Members").classes("text-lg")
    online = table(_MEMBERS, [member_row(view, name, each) for each in members], "no member is online")
    ui.label("Settings").classes("text-lg")
    table(_SETTINGS, setting_rows(group))

    async def again() -> None:
        now, there = await view.admin.lag(name), await view.admin.members(name)
        said.text = lag_text(view, now)
        queues.rows = [{"id": at, **row} for at, row in enumerate(queue_rows(view, now, there))]
        online.rows = [{"id": at, **member_row(view, name, each)} for at, each in enumerate(there)]
        queues.update()
        online.update()

    view.every(5.0, again)


def lag_text(view: View, lag: GroupLag) -> str:
    """How far behind it is, as a sentence."""
    if lag.lag <= 0:
        return f"No lag; {lag.per_second:,.1f} messages per second"
    age = span_text(behind_s(lag, view.look.clock.now_ms()))
    and_age = f", up to {age}" if age else ""
    return f"Lag: {lag.lag:,} messages{and_age}; {lag.per_second:,.1f} messages per second"


def queue_rows(view: View, lag: GroupLag, members: list[Member]) -> list[Row]:
    """What the table says of each queue, the ones with most behind first."""
    owners = {queue: each.client_id for each in members if each.running for queue in each.running.mq_table}
    return [
        {
            "topic": link(each.queue.topic, view.url("topics", each.queue.topic)),
            "broker": each.queue.broker_name,
            "queue": each.queue.queue_id,
            "committed": f"{each.committed:,}",
            "end": f"{each.broker_offset:,}",
            "lag": f"{each.lag:,}",
            "member": owners.get(each.queue, ""),
            "last": moment(each.last_consumed),
        }
        for each in sorted(lag.queues, key=lambda each: (-each.lag, each.queue))
    ]


def member_row(view: View, group: str, member: Member) -> Row:
    """What the table says of a member; one that does not tell what it does is shown with what is known."""
    row: Row = {
        "client": link(member.client_id, view.url("groups", group, "members", member.client_id)),
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "queues": "unknown",
        "cached": "",
        "ok": "",
        "failed": "",
    }
    running = member.running
    if running is None:
        return row
    rates = running.status_table.values()
    return row | {
        "queues": len(running.mq_table),
        "cached": f"{sum(each.cached_msg_count for each in running.mq_table.values()):,}",
        "ok": f"{sum(each.consume_ok_tps for each in rates):,.1f}",
        "failed": f"{sum(each.consume_failed_tps for each in rates):,.1f}",
    }


def setting_rows(group: Group) -> list[Row]:
    """What the table says of its settings at each broker."""
    words: Mapping[bool, str] = {True: "yes", False: "no"}
    return [
        {
            "broker": broker,
            "retries": each.retry_max_times,
            "queues": each.retry_queue_nums,
            "consume": words[each.consume_enable],
            "broadcast": words[each.consume_broadcast_enable],
        }
        for broker, each in group.settings.items()
    ]


def _line(view: View, name: str) -> None:
    line = sparkline([lag for _, lag in view.samples.lags(name)])
    if line:
        table((Column("line", ""),), [{"line": line}]).props("hide-header", remove="bordered").classes(
            replace="w-40 bare"
        )


def _buttons(view: View, group: Group, lag: GroupLag) -> None:
    name, may = group.name, view.actions.may
    topics = sorted({each.queue.topic for each in lag.queues if not each.queue.topic.startswith("%")})
    first = topics[0] if topics else ""
    ui.button("Dead letters", icon="mark_email_unread", on_click=lambda: view.go("dlq", group=name)).props(
        "outline no-caps dense"
    )
    if may("reset"):
        ui.button(
            "Reset offsets", icon="history", on_click=reset_dialog(view, group=name, topic=first).open
        ).props("outline no-caps dense")
    if may("skip") and topics:
        ui.button(
            "Skip what waits", icon="fast_forward", on_click=_skip_dialog(view, lag, topics).open
        ).props("outline no-caps dense")
    if may("change_group"):
        ui.button("Change", icon="tune", on_click=_change_dialog(view, group).open).props(
            "outline no-caps dense"
        )
    if may("delete_group"):
        ui.button("Delete", icon="delete", on_click=_delete_dialog(view, name).open).props(
            "outline no-caps dense color=negative"
        )


def _skip_dialog(view: View, lag: GroupLag, topics: list[str]) -> ui.dialog:
    async def skip() -> bool:
        return await view.act(
            view.actions.skip(lag.group, topic.value), f"group {lag.group} skips to the end"
        )

    with dialog("Skip what waits") as opened:
        topic = ui.select(topics, value=topics[0], label="Topic").classes("w-full").props("outlined dense")
        told = ui.label().classes("text-sm")
        told.bind_text_from(topic, "value", backward=lambda chosen: skip_text(lag, chosen))
        buttons(opened, "Skip", skip, "warning")
    return opened


def skip_text(lag: GroupLag, topic: str) -> str:
    """What skipping a topic's messages means."""
    waiting = sum(each.lag for each in lag.queues if each.queue.topic == topic)
    return f"{waiting:,} messages of {topic} will never be handled by {lag.group}."


def _change_dialog(view: View, group: Group) -> ui.dialog:
    first = next(iter(group.settings.values()))

    async def change() -> bool:
        work = view.actions.change_group(
            group.name,
            max_retries=int(retries.value or 0),
            retry_queues=int(queues.value or 0),
            may_consume=bool(consume.value),
            may_broadcast=bool(broadcast.value),
        )
        done = await view.act(work, f"group {group.name} is changed")
        if done:
            view.reload()
        return done

    with dialog(f"Change {group.name}") as opened:
        retries = ui.number("Tries before the dead letters", value=first.retry_max_times, min=-1, precision=0)
        queues = ui.number(
            "Queues of its retry topic on each broker", value=first.retry_queue_nums, min=0, precision=0
        )
        for each in (retries, queues):
            each.classes("w-full").props("outlined dense")
        consume = ui.checkbox("May consume", value=first.consume_enable)
        broadcast = ui.checkbox("May broadcast", value=first.consume_broadcast_enable)
        buttons(opened, "Change it", change)
    return opened


def _delete_dialog(view: View, name: str) -> ui.dialog:
    async def delete() -> bool:
        done = await view.act(view.actions.delete_group(name), f"group {name} is deleted")
        if done:
            view.go("groups")
        return done

    warning = (
        "Its offsets, retries and dead letters are deleted with it. An online member creates the group again."
    )
    return destroy(view, f"Delete {name}", warning, name, delete)
