"""The figures of single topics and groups, read for the rows of a list and kept for a while.

Brokers report the lags of all groups at once. What a topic has and receives, and the members of a group, each cost a
request to each of its masters. So a list of 50 rows asks for its own rows only; a list that is sorted by such a figure
asks for all rows, and then not again for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sparrowmq.client.admin import brokers
from sparrowmq.client.admin.operations import topic_offsets
from sparrowmq.client.admin.servers import Masters, Servers
from sparrowmq.errors import NetworkError, SparrowError
from sparrowmq.loop.clock import Clock

V = TypeVar("V")

_AT_ONCE: Final = 35
FRESH_S: Final = 20.0  # of the rows of a page
OLD_S: Final = 300.0  # of all rows, for sorting


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """A topic, at all its masters.

    Attributes:
        messages: in all its queues.
        per_second: messages that it received, within the last minute.
        mean_bytes: of a message within the last day, as it is stored; None if no broker reports it.
    """

    messages: int
    per_second: float
    mean_bytes: float | None

    @property
    def size(self) -> float | None:
        """About how many bytes of the log its messages take."""
        return None if self.mean_bytes is None else self.messages * self.mean_bytes


async def figures_of(servers: Servers, topic: str, masters: Masters) -> TopicFigures:
    """Ask each master of a topic. Raises: the error of a master that does not answer."""

    async def at(_: str, address: str) -> tuple[int, float, int, int]:
        offsets = await topic_offsets(servers, address, topic)
        count = sum(each.max_offset - each.min_offset for each in offsets.values())
        taken = await brokers.traffic(servers, address, "TOPIC_PUT_NUMS", topic)
        if not taken.sum_of_day:
            return count, 0.0, 0, 0
        stored = await brokers.traffic(servers, address, "TOPIC_PUT_SIZE", topic)
        return count, taken.stats_minute.tps, taken.sum_of_day, stored.sum_of_day

    found = list((await servers.all(masters, at)).values())
    taken, stored = (sum(each[at] for each in found) for at in (2, 3))
    return TopicFigures(
        sum(each[0] for each in found),
        sum(each[1] for each in found),
        stored / taken if taken and stored else None,
    )


class Kept(Generic[V]):
    """Values by name, each with the time of its reading."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[float, V | None]] = {}
        self._reading = asyncio.Lock()  # visitors who want the same wait for one reading

    async def of(self, names: Sequence[str], age_s: float, read: Callable[[str], Awaitable[V]]) -> dict[str, V | None]:
        """The values of some names, read again where they are older; None where the reading fails."""

        is_silent = False  # a broker does not answer, so each further question would wait for it

        async def one(name: str) -> None:
            nonlocal is_silent
            value = None
            try:
                value = None if is_silent else await read(name)
            except SparrowError as error:
                is_silent = is_silent or isinstance(error, NetworkError)
            self._found[name] = self._clock.monotonic(), value

        async with self._reading:
            limit_s = self._clock.monotonic() - age_s
            old = [name for name in names if name not in self._found or self._found[name][0] < limit_s]
            for begin in range(0, len(old), _AT_ONCE):
                await asyncio.gather(*map(one, old[begin : begin + _AT_ONCE]))
            return {name: self._found[name][1] for name in names}

    def forget(self) -> None:
        """Drop all values, because something has changed."""
        self._found.clear()
