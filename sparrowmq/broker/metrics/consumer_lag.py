"""The ends of topics and the lags of groups, looked up for one visit and then forgotten.

    ends      topic                  -> the sum of its queues' ends: messages since it was made
    bytes     topic                  -> the bytes of its messages since the broker started
    progress  group, topic           -> the sum of what it committed, what is left for it, and what is in flight
              the greatest lags only -> when the oldest message was stored that the group has not consumed

A broker may have 200,000 queues, so the look-up lets the loop serve requests in between.
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
    def __init__(self, store: MessageStore, offsets: Offsets, lags: GroupLags, clients: Clients) -> None:
        self.figures = LagFigures()
        self._store = store
        self._offsets = offsets
        self._lags = lags
        self._clients = clients

    @asynccontextmanager
    async def look_up_all(self, max_ages: int) -> AsyncIterator[None]:
        """Look up everything; of the ages those of the `max_ages` greatest lags."""
        (ends, sizes), groups = await run_to_end(self.of_topics()), await run_to_end(self.of_groups())
        self.figures = LagFigures(ends, sizes, groups, await self.waiting_since(groups, max_ages))
        try:
            yield
        finally:
            self.figures = LagFigures()

    def of_topics(self) -> Steps[tuple[dict[str, int], dict[str, int]]]:
        """Return, by topic, the sum of its queues' ends, and the bytes of its messages since the start."""
        ends: dict[str, int] = defaultdict(int)
        sizes: dict[str, int] = defaultdict(int)
        for queue in list(self._store.queues):
            if queue.topic != STATE_TOPIC:
                ends[queue.topic] += queue.max_offset
                sizes[queue.topic] += queue.added_bytes
            yield
        return ends, sizes

    def of_groups(self) -> Steps[list[GroupProgress]]:
        """Return every group in each topic of which it has offsets, or that only some of its members want."""
        places = [(group, topic) for group, topic, _ in self._offsets.all()]
        for view in self._clients.consumer_groups():
            differing = sorted(view.differing_topics())
            places += [(view.name, topic) for topic in differing if not self._offsets.of_group(view.name, topic)]
        progress_of_groups = []
        for group, topic in places:
            progress_of_groups.append((yield from self._progress_of(group, topic)))
            yield
        return progress_of_groups

    async def waiting_since(self, groups: Iterable[GroupProgress], max_ages: int) -> list[tuple[GroupProgress, int]]:
        """Return for the groups with the greatest lags the store time, in ms, of the oldest unconsumed message."""
        behind = nlargest(
            max_ages, (progress for progress in groups if progress.lag), key=lambda progress: progress.lag
        )
        ages = [(progress, await run_to_end(self._oldest_ms(progress))) for progress in behind]
        return [(progress, stored_ms) for progress, stored_ms in ages if stored_ms is not None]

    def _progress_of(self, group: str, topic: str) -> Steps[GroupProgress]:
        lag = committed = in_flight = 0
        is_popped = False
        for queue_id in self._queues_of(group, topic):
            queue_lag = self._lags.lag(group, topic, queue_id)
            committed += queue_lag.offset
            lag += queue_lag.messages
            in_flight += queue_lag.in_flight or 0
            is_popped |= queue_lag.in_flight is not None
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
                first_offset = max(offset, queue.min_offset)
                stored_ms = self._store.store_time(progress.topic, queue_id, first_offset)
                if stored_ms is not None and (oldest_ms is None or stored_ms < oldest_ms):
                    oldest_ms = stored_ms
            yield
        return oldest_ms
