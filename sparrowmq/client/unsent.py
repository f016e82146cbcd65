"""The messages that a client still has when it ends without being closed, which would otherwise vanish in silence."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable

from sparrowmq.client.sending.outbox import Outbox

log = logging.getLogger(__name__)


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
