"""The online producers, by group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sparrowmq.console.layout.described_page import Page
from sparrowmq.console.layout.list_page import ListPage
from sparrowmq.console.layout.tables import Column, Columns
from sparrowmq.console.layout.view import View
from sparrowmq.protocol.codes import version_name
from sparrowmq.protocol.requests.client_bodies import ProducerEntry

# A group, one of its producers, and how long ago its last heartbeat came.
ProducerRow = tuple[str, ProducerEntry, str]
COLUMNS: Final[Columns[ProducerRow]] = (
    Column("Group", lambda row: row[0]),
    Column("Client", lambda row: row[1].client_id),
    Column("Address", lambda row: row[1].remote_ip.removeprefix("/"), is_wide=True),
    Column("Language", lambda row: row[1].language, is_wide=True),
    Column("Version", lambda row: version_name(row[1].version), is_wide=True),
    Column("Last heartbeat", lambda row: row[2], is_wide=True),
)


async def _read(view: View, _: Collection[str]) -> Mapping[str, ProducerRow]:
    return by_name(await view.look.producers(), view.look.clock.now_ms())


async def _rows(_: View, found: Mapping[str, ProducerRow]) -> Sequence[ProducerRow]:
    return list(found.values())


def by_name(producers: Mapping[str, Sequence[ProducerEntry]], now_ms: int) -> dict[str, ProducerRow]:
    """Each producer by the text that a filter searches."""
    return {
        f"{group} {each.client_id} {each.remote_ip} {each.language}": (group, each, _ago(each, now_ms))
        for group, members in producers.items()
        for each in members
    }


def _ago(entry: ProducerEntry, now_ms: int) -> str:
    ago_s = max(0, now_ms - entry.last_update_timestamp) / 1000
    return f"{ago_s:.0f} s ago" if entry.last_update_timestamp else ""


PAGE: Final = Page(
    "/producers",
    "Producers",
    ListPage(COLUMNS, _read, _rows, "no producer is online", period_s=10.0),
    "outbox",
    "p",
)
