"""Pops that wait: a bell for each topic and group, which rings when a pop may find a message.

    a queue of the topic grows   ── rings the bells of all groups that wait for the topic
    a message is visible again   ── rings the bell of its group

A queue is watched until it grows. A pop that then finds nothing watches it again. A queue that does not exist yet is
watched as soon as it does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from time import perf_counter
from typing import Final

from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

_SLICE_S: Final = 0.001


class PopWaits:
    """The bells of one broker. A bell is a `Watermark`, for `HeldPulls`.

    Attributes:
        in_vain: by topic and group, the queues in a row in which a pop found nothing since the last ring.
    """

    def __init__(self, store: MessageStore) -> None:
        self.in_vain: Counter[tuple[str, str]] = Counter()
        self._store = store
        self._bells: dict[str, dict[str, Watermark]] = {}  # by topic and group
        # The queues that exist and will not ring, by topic. All others will.
        self._unwatched: dict[str, list[int]] = {}
        self._busy: set[str] = set()  # topics of which the next turn of the loop watches more queues
        store.queues.on_new = self._made

    def bell(self, topic: str, group: str) -> Watermark:
        bells = self._bells.setdefault(topic, {})
        bell = bells.get(group)
        if bell is None:
            bell = bells[group] = Watermark()
        return bell

    def queues_of(self, topic: str, count: int) -> list[int]:
        """Return the ids below `count` of the topic's queues that exist."""
        ids = self._store.queues.ids(topic)
        return ids if max(ids, default=0) < count else [each for each in ids if each < count]

    def watch(self, topic: str) -> None:
        """Let the next message of each queue ring. If many queues have to be watched, the bells ring at the end."""
        if topic not in self._unwatched:
            self._unwatched[topic] = self._store.queues.ids(topic)
        if self._unwatched[topic] and topic not in self._busy:
            self._watch_some(topic)

    def ring(self, topic: str, group: str) -> None:
        self.in_vain.pop((topic, group), None)
        self._go_on(topic, group)

    def ring_soon(self, topic: str, group: str) -> None:
        """Wake the pops of a group after other work, so that they go on with the next queues."""
        asyncio.get_running_loop().call_soon(self._go_on, topic, group)

    def _go_on(self, topic: str, group: str) -> None:
        bell = self._bells.get(topic, {}).get(group)
        if bell is not None:
            bell.advance(bell.value + 1)

    def _watch_some(self, topic: str) -> None:
        unwatched, end_s = self._unwatched[topic], perf_counter() + _SLICE_S
        while unwatched:
            queue = self._store.queues.get(topic, unwatched.pop())
            if queue is not None:  # else it is deleted
                self._watch(queue)
            if perf_counter() > end_s and unwatched:
                self._busy.add(topic)
                asyncio.get_running_loop().call_soon(self._watch_some, topic)
                return
        if topic in self._busy:  # a queue may have grown before it was watched
            self._busy.discard(topic)
            self._ring_all(topic)

    def _watch(self, queue: ConsumeQueue) -> None:
        end = queue.end
        end.when(end.value + 1, partial(self._grown, queue.topic, queue.queue_id))

    def _made(self, queue: ConsumeQueue) -> None:
        if queue.topic in self._unwatched:
            self._watch(queue)

    def _grown(self, topic: str, queue_id: int, error: BaseException | None) -> None:
        self._unwatched[topic].append(queue_id)
        self._ring_all(topic)

    def _ring_all(self, topic: str) -> None:
        for group in list(self._bells.get(topic, ())):
            self.ring(topic, group)
