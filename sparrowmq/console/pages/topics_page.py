"""All topics, by kind: what each has and receives, and the lags of its groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.client.admin.topics import perm_of
from sparrowmq.console.actions import create_topic
from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.list_page import PAGE as PER_PAGE
from sparrowmq.console.layout.list_page import Boxes, ListPage
from sparrowmq.console.layout.tables import Amount, Column, Columns, bytes_text, link
from sparrowmq.console.layout.view import View
from sparrowmq.console.reading.topic_figures import FRESH_S, OLD_S, TopicFigures
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
        readable = sum(each.read_queue_nums for each in self.configs.values())
        writable = sum(each.write_queue_nums for each in self.configs.values())
        return Amount(readable, f"{readable}" if readable == writable else f"{readable} r / {writable} w")

    def perm(self) -> str:
        perms = {perm_of(each.perm) for each in self.configs.values()}
        return perms.pop() if len(perms) == 1 else "differs"

    def size(self) -> Amount | None:
        """About how much of the log it takes."""
        size = self.figures.size if self.figures is not None else None
        return None if size is None else Amount(size, bytes_text(size))

    def lag(self) -> int | str | None:
        if self.lags is None:
            return "unknown"
        return sum(self.lags.values()) if self.lags else None


_COLUMNS: Final[Columns[TopicRow]] = (
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


async def _read(view: View, ticked: Collection[str]) -> Mapping[str, TopicRow]:
    rows = [TopicRow(name, view.look.kind_of(name), found) for name, found in (await view.look.topics()).items()]
    return {row.name: row for row in rows if row.kind in ticked}


async def _rows(view: View, found: Mapping[str, TopicRow]) -> Sequence[TopicRow]:
    figures = await view.look.topic_figures(list(found), FRESH_S if len(found) <= PER_PAGE else OLD_S)
    try:
        lags: Mapping[str, Mapping[str, int]] | None = lags_of_topics(await view.look.progress())
    except SparrowError:
        lags = None
    return [
        replace(row, figures=figures[name], lags=None if lags is None else lags.get(name, {}))
        for name, row in found.items()
    ]


def lags_of_topics(progress: Mapping[str, GroupLag]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for group, lag in progress.items():
        for each in lag.queues:
            of = found.setdefault(each.queue.topic, {})
            of[group] = of.get(group, 0) + each.lag
    return found


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
        10.0,
    ),
    "topic",
    "t",
)
