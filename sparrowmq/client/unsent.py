"""The messages that a client still has when it ends: it waits for them, or says how many were not answered.

leaving ──> waits for answers, also to new messages, 5 s ──> refuses new ones ──> waits, 10 s in all
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

FLUSH_S: Final = 10.0


async def last_answers(outboxes: Sequence[Outbox], clock: Clock) -> None:
    """Wait until all messages are answered, and refuse new ones in the end."""
    with suppress(TimeoutError):
        await clock.wait_for(answers(outboxes), FLUSH_S / 2)
    shut(outboxes)
    await answers(outboxes)


async def answers(outboxes: Iterable[Outbox]) -> None:
    """Wait until every message is answered or has failed."""
    for outbox in outboxes:
        await outbox.flush()


def shut(outboxes: Iterable[Outbox]) -> None:
    """Refuse new messages: those that the end of the client met on their way would be stored or not."""
    for outbox in outboxes:
        outbox.window.is_shut = True


def tell_unsent(count: int) -> None:
    """Warn if messages are lost, or it stays unknown whether they were stored."""
    if count:
        log.warning(
            "%d messages were not answered when the client ended; they may or may not be stored. Leave the client's "
            "block without an error, or call `close()`, before the program ends: both wait for the answers",
            count,
        )


def tell_if_forgotten(client: object, outboxes: Iterable[Outbox]) -> None:
    """Warn if the program ends, or drops the client, while it has messages."""
    weakref.finalize(client, _forgotten, os.getpid(), outboxes)


def _forgotten(process: int, outboxes: Iterable[Outbox]) -> None:
    if os.getpid() == process:  # a forked child has none of the connections
        tell_unsent(sum(each.unanswered for each in outboxes))
