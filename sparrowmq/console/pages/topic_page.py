"""One topic: its queues, its route and its consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from nicegui import ui

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.client.admin.topics import QueueRange, Topic, TopicShare
from sparrowmq.console.actions import change_topic, delete_topic, reset_offsets, send_message
from sparrowmq.console.console_metrics import CountedAdmin
from sparrowmq.console.layout.described_page import Description, Page, Update, section, text
from sparrowmq.console.layout.tables import Column, Columns, link
from sparrowmq.console.layout.trouble_panel import left_out_text, trouble_panel
from sparrowmq.console.layout.view import View
from sparrowmq.core.safe_text import counted


@dataclass(frozen=True, slots=True)
class TopicNow:
    """The content of the page.

    Attributes:
        addresses: by broker, the address of each of its members by number.
        lags: by group; None if no broker reports it.
        left_out: the brokers whose queues are missing, with their number; 0 if it is unknown.
    """

    topic: Topic
    kind: str
    addresses: Mapping[str, Mapping[int, str]]
    lags: Mapping[str, GroupLag | None]
    left_out: Mapping[str, int]

    def addresses_of(self, broker: str) -> str:
        return ", ".join(f"{number}: {at}" for number, at in sorted(self.addresses.get(broker, {}).items()))


_QUEUES: Final[Columns[QueueRange]] = (
    Column("Broker", lambda each: each.queue.broker_name),
    Column("Queue", lambda each: each.queue.queue_id, is_number=True),
    Column("First offset", lambda each: each.min_offset, is_number=True, is_wide=True),
    Column("Next offset", lambda each: each.max_offset, is_number=True, is_wide=True),
    Column("Messages", lambda each: each.max_offset - each.min_offset, is_number=True),
    Column("Last stored", lambda each: each.last_stored, is_wide=True),
)
# A broker's share of the topic, and its addresses.
_ROUTE: Final[Columns[tuple[TopicShare, str]]] = (
    Column("Broker", lambda row: row[0].broker),
    Column("Addresses", lambda row: row[1], is_wide=True),
    Column("Read queues", lambda row: row[0].read_queues, is_number=True),
    Column("Write queues", lambda row: row[0].write_queues, is_number=True),
    Column("Permission", lambda row: row[0].perm),
    Column("Type", lambda row: row[0].message_type, is_wide=True),
)
_GROUPS: Final[Columns[tuple[str, GroupLag | None]]] = (
    Column("Group", lambda row: link(row[0], "groups", row[0])),
    Column("Lag", lambda row: row[1].lag if row[1] else "unknown", is_number=True),
    Column("Messages per second", lambda row: row[1].per_second if row[1] else None, is_number=True, is_wide=True),
)


async def _read(view: View) -> TopicNow:
    name = view.args["name"]
    admin = view.look.partial()
    topic, route = await admin.topic(name), await view.look.servers.route(name)
    groups = await topics.consumers_of(admin.servers, name)
    return TopicNow(
        topic,
        view.look.kind_of(name),
        {each.broker_name: each.broker_addrs for each in route.broker_datas},
        {group: await view.attempt(admin.lag(group, name)) for group in groups},
        _left_out(view, topic, admin),
    )


async def _refresh(view: View, found: TopicNow) -> TopicNow:
    """Read the queues again; the lags of many groups would cost more."""
    admin, name = view.look.partial(), found.topic.name
    topic = await admin.topic(name)
    return replace(found, topic=topic, left_out=_left_out(view, topic, admin))


def _left_out(view: View, topic: Topic, admin: CountedAdmin) -> dict[str, int]:
    """The brokers whose queues are missing; the route has the numbers of those that are registered."""
    found = view.samples.troubles.left_out(topic.name, admin.counted.missing or ())
    return found | {each.broker: each.read_queues for each in topic.shares if each.broker in found}


def missing_text(found: TopicNow) -> str:
    """The queues that are missing, and whose; "" if none is."""
    here, missing = len(found.topic.queues), sum(found.left_out.values())
    if not found.left_out:
        return ""
    return f"{missing} queues of {here + missing} are missing. {left_out_text(found.left_out)}"


def _missing(_: View, found: TopicNow) -> Update[TopicNow]:
    line = ui.label().classes("trouble-text").mark("missing")

    def show(now: TopicNow) -> None:
        line.text = missing_text(now)
        line.set_visibility(bool(now.left_out))

    show(found)
    return show


def _buttons(view: View, found: TopicNow) -> None:
    topic = found.topic
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


PAGE: Final = Page(
    "/topics/{name}",
    "Topic {name}",
    Description[TopicNow](
        _read,
        [
            _buttons,
            trouble_panel(lambda view, found: view.samples.troubles.of_topics([found.topic.name])),
            _missing,
            text(
                lambda found: (
                    f"{counted(found.topic.count, 'message')} in {counted(len(found.topic.queues), 'queue')}; "
                    f"kind: {found.kind}"
                )
            ),
            section("Queues", _QUEUES, lambda found: found.topic.queues, "it has no queues"),
            section(
                "Route",
                _ROUTE,
                lambda found: [(each, found.addresses_of(each.broker)) for each in found.topic.shares],
                wraps=True,
            ),
            section("Consumer groups", _GROUPS, lambda found: list(found.lags.items()), "no group has consumed it"),
        ],
        5.0,
        _refresh,
    ),
)
