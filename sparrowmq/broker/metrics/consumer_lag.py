"""The ends of topics and the lags of groups, looked up for one visit and then forgotten.

ends      topic                  -> the sum of its queues' ends: messages since it was made
bytes     topic                  -> the bytes of its messages since the broker started
progress  group, topic           -> the sum of what it committed, what is left for it, and what is in flight
          the greatest lags only -> when the oldest message was stored that the group has not consumed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import nlargest
from typing import NamedTuple

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.group_lags import GroupLags
from sparrowmq.broker.offsets import Offsets
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.store.message_store import MessageStore


class GroupProgress(NamedTuple):
    group: str
    topic: str
    committed: int  # the sum of its offsets
    lag: int  # messages that it has not acknowledged
    in_flight: int | None = None  # of these with its consumers; None if it pops no queue


class LagFigures(NamedTuple):
    """The result of a look-up. `waiting` has the store time, in ms, of the oldest message before a group."""

    ends: Mapping[str, int] = {}
    bytes: Mapping[str, int] = {}
    groups: Sequence[GroupProgress] = ()
    waiting: Sequence[tuple[GroupProgress, int]] = ()


class LagLookup:
    """Looks up topics and groups. Within `look_up_all` it has `figures`."""

    def __init__(self, store: MessageStore, offsets: Offsets, lags: GroupLags, clients: Clients) -> None:
        self.figures = LagFigures()
        self._store = store
        self._offsets = offsets
        self._lags = lags
        self._clients = clients

    @asynccontextmanager
    async def look_up_all(self, most: int) -> AsyncIterator[None]:
        """Look up everything; of the ages those of the `most` greatest lags."""
        (ends, sizes), groups = await self.of_topics(), await self.of_groups()
        self.figures = LagFigures(ends, sizes, groups, await self.waiting_since(groups, most))
        try:
            yield
        finally:
            self.figures = LagFigures()

    async def of_topics(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of each topic, the sum of its queues' ends, and the bytes of its messages since the start."""
        return await run_to_end(self._of_topics())

    def _of_topics(self) -> Steps[tuple[dict[str, int], dict[str, int]]]:
        ends: dict[str, int] = defaultdict(int)
        sizes: dict[str, int] = defaultdict(int)
        for queue in list(self._store.queues):
            if queue.topic != STATE_TOPIC:
                ends[queue.topic] += queue.max_offset
                sizes[queue.topic] += queue.added_bytes
            yield
        return ends, sizes

    async def of_groups(self) -> list[GroupProgress]:
        """Every group in every topic of which it has offsets, and in those that only some of its members want."""
        return await run_to_end(self._of_groups())

    def _of_groups(self) -> Steps[list[GroupProgress]]:
        places = [(group, topic) for group, topic, _ in self._offsets.all()]
        for view in self._clients.consumer_groups():
            differing = sorted(view.differing_topics())
            places += [(view.name, topic) for topic in differing if not self._offsets.of_group(view.name, topic)]
        found = []
        for group, topic in places:
            found.append((yield from self._of(group, topic)))
            yield
        return found

    async def waiting_since(self, groups: Iterable[GroupProgress], most: int) -> list[tuple[GroupProgress, int]]:
        """Return for the groups with the greatest lags the store time, in ms, of the oldest unconsumed message."""
        behind = nlargest(most, (each for each in groups if each.lag), key=lambda each: each.lag)
        found = [(each, await run_to_end(self._oldest_ms(each))) for each in behind]
        return [(each, stored_ms) for each, stored_ms in found if stored_ms is not None]

    def _of(self, group: str, topic: str) -> Steps[GroupProgress]:
        lag = committed = in_flight = 0
        is_popped = False
        for queue_id in self._queues_of(group, topic):
            each = self._lags.lag(group, topic, queue_id)
            committed += each.offset
            lag += each.messages
            in_flight += each.in_flight or 0
            is_popped |= each.in_flight is not None
            yield
        return GroupProgress(group, topic, committed, lag, in_flight if is_popped else None)

    def _queues_of(self, group: str, topic: str) -> list[int]:
        return sorted({*self._lags.queues_of(topic), *self._offsets.of_group(group, topic)})

    def _oldest_ms(self, progress: GroupProgress) -> Steps[int | None]:
        oldest_ms = None
        for queue_id in self._queues_of(progress.group, progress.topic):
            queue = self._store.queues.get(progress.topic, queue_id)
            offset = self._offsets.query(progress.group, progress.topic, queue_id) or 0
            if queue is not None and offset < queue.max_offset:
                first = max(offset, queue.min_offset)
                stored_ms = self._store.store_time(progress.topic, queue_id, first)
                if stored_ms is not None and (oldest_ms is None or stored_ms < oldest_ms):
                    oldest_ms = stored_ms
            yield
        return oldest_ms
