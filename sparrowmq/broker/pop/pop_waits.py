"""Pops that wait: a bell for each topic and group, which rings when a pop may find a message.

    a queue of the topic grows   ── rings the bells of all groups that wait for the topic
    a message is visible again   ── rings the bell of its group

A queue is watched until it grows. A pop that then finds nothing watches it again.
"""

from __future__ import annotations

import asyncio
from functools import partial

from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.message_store import MessageStore


class PopWaits:
    """The bells of one broker. A bell is a `Watermark`, for `HeldPulls`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._bells: dict[str, dict[str, Watermark]] = {}  # by topic and group
        self._watched: dict[str, set[int]] = {}  # the queues that will ring, by topic

    def bell(self, topic: str, group: str) -> Watermark:
        bells = self._bells.setdefault(topic, {})
        bell = bells.get(group)
        if bell is None:
            bell = bells[group] = Watermark()
        return bell

    def watch(self, topic: str, queue_count: int) -> None:
        """Let the next message of each queue ring."""
        watched = self._watched.setdefault(topic, set())
        for queue_id in range(queue_count):
            if queue_id not in watched:
                watched.add(queue_id)
                end = self._store.queues.obtain(topic, queue_id).end
                end.when(end.value + 1, partial(self._grown, topic, queue_id))

    def ring(self, topic: str, group: str) -> None:
        bell = self._bells.get(topic, {}).get(group)
        if bell is not None:
            bell.advance(bell.value + 1)

    def ring_soon(self, topic: str, group: str) -> None:
        """Wake the pops of a group after other work."""
        asyncio.get_running_loop().call_soon(self.ring, topic, group)

    def _grown(self, topic: str, queue_id: int, error: BaseException | None) -> None:
        self._watched[topic].discard(queue_id)
        for bell in list(self._bells.get(topic, {}).values()):
            bell.advance(bell.value + 1)
