"""The accumulator of one producer, which makes batches of messages that are sent in one turn.

    accumulated (this turn) -> waiting (the window is full) -> in flight -> answered

    send_soon ── nothing in flight ────────────────────────────────────────> alone, at once
              ── something in flight ─> accumulated ── the turn ends ──────> one batch for each topic
                                                    └─ the batch is full ──>

While others are in flight, a message that waits for the end of the turn loses nothing: it would wait in the socket. So
a producer in a hurry makes large batches, and a quiet one makes none, as in Nagle's algorithm.

`take` is the short way of plain messages: without a `Message`, its checks, or a task (kernel/gathering.py). Source: the
idea of autoBatch, Java 5.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.client.message_ids import MessageIds
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.kernel.batch_layout import ADDED, ATTEND, LONG_WAY, MAX_PROPERTIES_BYTES, NEEDS_IDS, OVERHEAD_BYTES
from sparrowmq.kernel.gathering import Batch, Gather, Window

MAX_BODY_BYTES: Final = 4096  # a larger body gains little by company
MAX_BATCH_BYTES: Final = 128 * 1024


class Accumulator(Gather):
    """The messages of one producer that wait for the end of this turn."""

    def __init__(
        self,
        send: Callable[[Batch], object],
        settings: ProducerSettings,
        window: Window,
        ids: MessageIds,
        loop_affinity: LoopAffinity,
    ) -> None:
        max_batch = min(settings.max_batch, settings.window)
        max_body_bytes = min(settings.max_bytes, settings.compress_over_bytes, MAX_BODY_BYTES)
        self._max_fitting_bytes = max_body_bytes if max_batch > 1 else 0
        max_bytes = min(settings.max_bytes, MAX_BATCH_BYTES)
        super().__init__(window, settings.timeout_s, max_batch, max_bytes, self._max_fitting_bytes)
        self._room = window
        self._send = send
        self._message_ids = ids
        self._loop_affinity = loop_affinity
        self._is_close_due = False

    def take(self, topic: object, body: object, arguments: Any, is_awaited: bool) -> asyncio.Future[SendResult] | None:
        """Take a plain message, and return the future of its result. None: it needs the long way."""
        affinity = self._loop_affinity
        if get_ident() != affinity.thread or not affinity.loop.is_running():
            return None
        future: asyncio.Future[SendResult] = affinity.loop.create_future()
        outcome = self.put(topic, body, arguments, is_awaited, future)
        if outcome == ADDED:  # nearly always
            return future
        if outcome == NEEDS_IDS:
            self.use_ids(self._message_ids.reserve())
            outcome = self.put(topic, body, arguments, is_awaited, future)
        if outcome == ATTEND:
            self._attend()
        return None if outcome == LONG_WAY else future

    def fits(self, body: bytes, properties: str, is_awaited: bool) -> bool:
        """Return whether others are in flight, and a message is small enough for a batch and may wait."""
        size = len(body)
        return (
            self._room.may_accumulate
            and size <= self._max_fitting_bytes
            and len(properties) * 4 <= MAX_PROPERTIES_BYTES
            and (is_awaited or self._room.has_room_for_waiting(size + OVERHEAD_BYTES))
        )

    def take_checked(
        self, full_topic: str, body: bytes, head: bytes, msg_id: str, timeout_s: float
    ) -> asyncio.Future[SendResult]:
        """Take a message that was checked and `fits`. It leaves at the end of the turn, or when its batch is full."""
        future: asyncio.Future[SendResult] = self._loop_affinity.loop.create_future()
        if self.add(full_topic, body, head, msg_id, timeout_s, future) == ATTEND:
            self._attend()
        return future

    def flush_topic(self, full_topic: str) -> None:
        """Send what is accumulated of a topic, because a message after it leaves now."""
        self.close_topic(full_topic)
        self._send_ready()

    def close(self) -> None:
        """Send all that is accumulated: the turn ends."""
        self._is_close_due = False
        self.close_all()
        self._send_ready()

    def _attend(self) -> None:
        self._send_ready()
        if not self._is_close_due and self.has_open_batches():
            self._is_close_due = True
            self._loop_affinity.loop.call_soon(self.close)

    def _send_ready(self) -> None:
        while self.ready:
            self._send(self.ready.pop(0))
