"""All topics, by kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.client.admin.topics import perm_of
from sparrowmq.console.actions import create_topic
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.list_page import Boxes, ListPage
from sparrowmq.console.layout.tables import Column, Columns, link
from sparrowmq.console.layout.view import View
from sparrowmq.protocol.requests.bodies import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, with its settings on each broker."""

    name: str
    kind: str
    configs: Mapping[str, TopicConfig]

    def queues(self) -> str:
        """Return the number of queues, and how many are only read or only written."""
        readable = sum(each.read_queue_nums for each in self.configs.values())
        writable = sum(each.write_queue_nums for each in self.configs.values())
        return f"{readable}" if readable == writable else f"{readable} r / {writable} w"

    def perm(self) -> str:
        perms = {perm_of(each.perm) for each in self.configs.values()}
        return perms.pop() if len(perms) == 1 else "differs"


_COLUMNS: Final[Columns[TopicRow]] = (
    Column("Topic", lambda row: link(row.name, "topics", row.name)),
    Column("Kind", lambda row: row.kind, is_wide=True),
    Column("Queues", TopicRow.queues, is_number=True),
    Column("Permission", TopicRow.perm),
    Column("Brokers", lambda row: ", ".join(sorted(row.configs)), is_wide=True),
)
_KINDS: Final = {"topic": "Topics", "retry": "Retries", "dlq": "Dead letters", "system": "RocketMQ's own"}


async def _read(view: View, ticked: Collection[str]) -> Mapping[str, TopicRow]:
    rows = [
        TopicRow(name, view.look.kind_of(name), found) for name, found in (await view.look.topics()).items()
    ]
    return {row.name: row for row in rows if row.kind in ticked}


async def _rows(_: View, found: Mapping[str, TopicRow]) -> Sequence[TopicRow]:
    return list(found.values())


PAGE: Final = Page(
    "/topics",
    "Topics",
    ListPage(
        _COLUMNS,
        _read,
        _rows,
        "no topic fits",
        Boxes("kinds", _KINDS, "topic"),
        lambda view: create_topic().button(view, "no-caps"),
    ),
    "topic",
    "t",
)
