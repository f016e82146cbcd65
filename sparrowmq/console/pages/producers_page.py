"""Who is on line to send, by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparrowmq.console.layout.listing import Column, Listing, Row
from sparrowmq.console.layout.view import View
from sparrowmq.protocol.requests.bodies import ProducerEntry

_COLUMNS: Final = (
    Column("group", "Group"),
    Column("client", "Client"),
    Column("address", "Address", is_wide=True),
    Column("language", "Language", is_wide=True),
    Column("version", "Version", is_number=True, is_wide=True),
    Column("heard", "Heard of", is_wide=True),
)


async def draw(view: View) -> None:
    table: dict[str, tuple[str, ProducerEntry]] = {}

    async def names() -> Sequence[str]:
        table.clear()
        table.update(by_name(await view.look.producers()))
        return list(table)

    async def rows(page: Sequence[str]) -> list[Row]:
        now_ms = view.look.clock.now_ms()
        return [row_of(*table[name], now_ms) for name in page if name in table]

    listing = Listing(view, _COLUMNS, names, rows, "no producer is online")
    await listing.draw()
    view.every(10.0, listing.refresh)


def by_name(producers: Mapping[str, Sequence[ProducerEntry]]) -> dict[str, tuple[str, ProducerEntry]]:
    """Each producer by what a filter looks for in it."""
    return {
        f"{group} {each.client_id} {each.remote_ip} {each.language}": (group, each)
        for group, members in producers.items()
        for each in members
    }


def row_of(group: str, entry: ProducerEntry, now_ms: int) -> Row:
    """What the table says of a producer."""
    ago_s = max(0, now_ms - entry.last_update_timestamp) / 1000
    return {
        "group": group,
        "client": entry.client_id,
        "address": entry.remote_ip,
        "language": entry.language,
        "version": entry.version,
        "heard": f"{ago_s:.0f} s ago" if entry.last_update_timestamp else "",
    }
