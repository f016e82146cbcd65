"""The outboxes of a client: it waits for their messages when it ends, or says how many were not answered.

leaving ──> waits for answers, also to new messages, 5 s ──> refuses new ones ──> waits, 10 s in all
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.producer_settings import ProducerSettings

log = logging.getLogger(__name__)

FLUSH_S: Final = 10.0


class Outboxes:
    """One outbox for each producer of a client, and one for its traces."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._outboxes: list[Outbox] = []
        self._of_traces: list[Outbox] = []

    def open(self, group: str, settings: ProducerSettings) -> Outbox:
        """Make the outbox of a producer group."""
        self._outboxes.append(outbox := self._made(group, settings))
        return outbox

    def open_for_traces(self, group: str, settings: ProducerSettings) -> Outbox:
        """Make an outbox that is neither waited for nor counted."""
        self._of_traces.append(outbox := self._made(group, settings))
        return outbox

    @property
    def unanswered(self) -> int:
        """The number of messages that wait or are in flight."""
        return _unanswered(self._outboxes)

    async def answers(self) -> None:
        """Wait until every message is answered or has failed."""
        for outbox in self._outboxes:
            await outbox.flush()

    async def last_answers(self) -> None:
        """Wait until all messages are answered, and refuse new ones in the end."""
        with suppress(TimeoutError):
            await self._network.clock.wait_for(self.answers(), FLUSH_S / 2)
        self.shut()
        await self.answers()

    def shut(self) -> None:
        """Refuse new messages: those that the end of the client met on their way would be stored or not."""
        for outbox in self._outboxes:
            outbox.window.is_shut = True

    def close(self) -> None:
        """Fail the messages that were not sent, and warn if some were not answered."""
        _warn(self.unanswered)
        for outbox in (*self._outboxes, *self._of_traces):
            outbox.close()

    def warn_if_forgotten(self, client: object) -> None:
        """Warn if the program ends, or drops the client, while it has messages."""
        weakref.finalize(client, _forgotten, os.getpid(), self._outboxes)

    def _made(self, group: str, settings: ProducerSettings) -> Outbox:
        network = self._network
        spawn = network.background.spawn
        return Outbox(group, settings, network.routes, network.brokers, network.clock, spawn)


def _unanswered(outboxes: Iterable[Outbox]) -> int:
    return sum(outbox.unanswered for outbox in outboxes)


def _forgotten(process: int, outboxes: Iterable[Outbox]) -> None:
    if os.getpid() == process:  # a forked child has none of the connections
        _warn(_unanswered(outboxes))


def _warn(count: int) -> None:
    """Warn if messages are lost, or it stays unknown whether they were stored."""
    if count:
        log.warning(
            "%d messages were not answered when the client ended; they may or may not be stored. Leave the client's "
            "block without an error, or call `close()`, before the program ends: both wait for the answers",
            count,
        )
