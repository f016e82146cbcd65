"""The messages that a client still has when it ends without being closed, which would otherwise vanish in silence."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from typing import Protocol

log = logging.getLogger(__name__)


class Sender(Protocol):
    """An outbox."""

    @property
    def unanswered(self) -> int:
        """The number of its messages that wait or are in flight."""


def tell_unsent(count: int) -> None:
    """Warn if messages are lost, or it stays unknown whether they were stored."""
    if count:
        log.warning(
            "%d messages were not answered when the client ended; they may or may not be stored. Leave the client's "
            "block without an error, or call `close()`, before the program ends: both wait for the answers",
            count,
        )


def tell_if_forgotten(client: object, senders: Iterable[Sender]) -> None:
    """Warn if the program ends, or drops the client, while it has messages."""
    weakref.finalize(client, _forgotten, os.getpid(), senders)


def _forgotten(process: int, senders: Iterable[Sender]) -> None:
    if os.getpid() == process:  # a forked child has none of the connections
        tell_unsent(sum(sender.unanswered for sender in senders))
