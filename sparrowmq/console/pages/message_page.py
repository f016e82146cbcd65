"""One message: where it is, what is in it, which groups have handled it; and having a member handle it again."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.console.layout.forms import buttons, dialog
from sparrowmq.console.layout.listing import Column, Row, link, table
from sparrowmq.console.layout.view import View
from sparrowmq.console.page_times import time_of
from sparrowmq.console.reading.message_body import FORMS, form_of, shown
from sparrowmq.errors import NoRoute, SparrowError

_PAIRS: Final = (Column("name", "Name"), Column("value", "Value"))
_GROUPS: Final = (Column("group", "Group"), Column("state", "State"))
_DOWNLOADED: Final = 4 << 20  # bytes


async def draw(view: View) -> None:
    topic, ident = view.args["topic"], view.args["name"]
    message = await view.admin.message(ident, topic)
    body = message.body
    form = view.query.get("form") if view.query.get("form") in FORMS else form_of(body)
    with ui.row().classes("items-center gap-2"):
        view.link("Trace", "trace", id=message.msg_id)
        view.link(f"Topic {topic}", "topics", topic)
        if view.actions.may("consume_directly"):
            ui.button("Resend to a member", icon="replay", on_click=_resend_dialog(view, message).open).props(
                "outline no-caps dense"
            )
        if len(body) <= _DOWNLOADED:
            ui.button("Download", icon="download", on_click=lambda: _download(view, message)).props(
                "outline no-caps dense"
            )
    with ui.row().classes("items-center gap-4"):
        ui.label(f"Body, {len(body):,} bytes").classes("text-lg")
        chosen = ui.toggle(list(FORMS), value=form).props('dense no-caps unelevated padding="4px 12px"')
    with ui.card().classes("w-full overflow-auto max-h-[28rem] p-3").props("flat bordered"):
        text = ui.label(shown(body, form or "text")).classes("mono whitespace-pre").mark("body")

    def changed() -> None:
        view.remember(form=chosen.value)
        text.text = shown(body, chosen.value)

    chosen.on_value_change(changed)
    ui.label("Message").classes("text-lg")
    table(_PAIRS, [{"name": key, "value": value} for key, value in told_of(message).items()], wraps=True)
    ui.label("Properties").classes("text-lg")
    table(
        _PAIRS,
        [{"name": key, "value": value} for key, value in sorted(message.stored.properties.items())],
        wraps=True,
    )
    ui.label("Groups").classes("text-lg")
    table(_GROUPS, await _group_rows(view, message), "no group has consumed its topic", wraps=True)


def told_of(message: ReceivedMessage) -> dict[str, str]:
    """What is known of a message besides its properties and body."""
    stored = message.stored
    return {
        "Id": message.msg_id,
        "Offset id": stored.offset_id,
        "Topic": stored.topic,
        "Broker and queue": f"{message.queue.broker_name}, {stored.queue_id}",
        "Offset": f"{message.offset:,}",
        "Born": f"{time_of(stored.born_timestamp_ms)} at {stored.born_host}",
        "Stored": f"{time_of(stored.store_timestamp_ms)} at {stored.store_host}",
        "Tag": stored.tags or "",
        "Keys": " ".join(stored.keys),
        "Failed deliveries": str(message.reconsume_times),
        "Size in the log": f"{stored.store_size:,} bytes",
        "Flag and system flag": f"{stored.flag}, {stored.sys_flag}",
        "Place in the log": f"{stored.physical_offset:,}",
        "CRC of the body": str(stored.body_crc),
    }


async def _group_rows(view: View, message: ReceivedMessage) -> list[Row]:
    """Each group of its topic, and whether it is past it."""
    topic = message.stored.topic
    try:
        groups = await topics.consumers_of(view.look.servers, topic)
    except NoRoute:
        return []
    rows: list[Row] = []
    for group in groups:
        try:
            state = state_of(message, await view.admin.lag(group, topic))
        except SparrowError as error:
            state = f"unknown: {error}"
        rows.append({"group": link(group, view.url("groups", group)), "state": state})
    return rows


def state_of(message: ReceivedMessage, lag: GroupLag) -> str:
    """Whether a group has handled a message; which it filtered out is not known from its offsets."""
    for each in lag.queues:
        if (each.queue.broker_name, each.queue.queue_id) == (
            message.queue.broker_name,
            message.stored.queue_id,
        ):
            if each.committed > message.offset:
                return "passed: handled, filtered out, or waiting for a retry"
            return f"{message.offset - each.committed + 1:,} messages before it"
    return "has not consumed this queue"


def _download(view: View, message: ReceivedMessage) -> None:
    # By way of the browser's own address for bytes, so that it needs no address here.
    ui.download.content(message.body, f"{message.msg_id}.bin")


def _resend_dialog(view: View, message: ReceivedMessage) -> ui.dialog:
    async def members() -> None:
        found = await view.attempt(view.admin.members(group.value.strip())) or []
        member.options = [each.client_id for each in found]
        member.value = member.options[0] if member.options else None
        member.update()
        if not found:
            view.complain("no member of this group is online")

    async def resend() -> bool:
        if not member.value:
            view.complain("choose a member")
            return False
        outcome = await view.attempt(
            view.actions.consume_directly(message, group.value.strip(), member.value)
        )
        if outcome is None:
            return False
        told = f"{outcome.consume_result} in {outcome.spent_time_mills} ms"
        view.tell(f"{told}: {outcome.remark}" if outcome.remark else told)
        return True

    with dialog("Have a member handle it now") as opened:
        ui.label("It is handled once more by this member, whatever the group's offsets say.").classes(
            "text-sm opacity-80"
        )
        group = ui.input("Group").classes("w-full").props("outlined dense")
        ui.button("Show online members", icon="groups", on_click=members).props("outline no-caps dense")
        member = ui.select([], label="Member").classes("w-full").props("outlined dense")
        buttons(opened, "Resend", resend, "warning")
    return opened
