"""The lag of a group in a queue: the messages that are not acknowledged.

    0 ...... offset ........... next ........... end of the queue
     consumed      in flight        ready

A group that pulls acknowledges up to its offset, so next is its offset. Of a group that pops, some messages between are
acknowledged, some are with consumers, and some are visible again, which makes them ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.topics import Topics
from sparrowmq.store.message_store import MessageStore


class GroupLag(NamedTuple):
    """A group's lag in a queue: `messages` are ready or in flight. `next_offset` and `in_flight`: None without pops."""

    end: int
    offset: int
    messages: int
    next_offset: int | None = None
    in_flight: int | None = None


class GroupLags:
    def __init__(self, store: MessageStore, topics: Topics, offsets: Offsets, clients: Clients, pops: PopTable) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._pops = pops

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group consumes: those with offsets, and those that only some of its members want."""
        topics = self._offsets.topics_of(group)
        view = self._clients.group_view(group)
        differing = view.differing_topics() if view is not None else set()
        return self.consumed(group, [*topics, *sorted(differing.difference(topics))])

    def consumed(self, group: str, topics: Iterable[str]) -> list[str]:
        view = self._clients.group_view(group)
        wanted_topics = view.wanted_topics() if view is not None and view.subscriptions else None
        return [topic for topic in topics if wanted_topics is None or topic in wanted_topics]

    def queues_of(self, topic: str) -> range:
        config = self._topics.get(topic)
        return range(config.read_queue_nums if config is not None else 0)

    def lag(self, group: str, topic: str, queue_id: int) -> GroupLag:
        offset = self._offsets.query(group, topic, queue_id)
        queue = self._store.queues.get(topic, queue_id)
        begin, end = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        popped = self._pops.get(topic, group, queue_id)
        if popped is None or offset is None:
            return GroupLag(end, offset or 0, max(end - max(offset or 0, begin), 0))
        messages = max(end - popped.next_offset, 0) + popped.count
        return GroupLag(end, offset, messages, popped.next_offset, popped.in_flight())
