"""Outages: one line in the log when a server is away, and one when it is back, however often it was tried.

A program that waits during an outage logs it, so that it does not seem to hang, but not at every attempt.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Outages:
    """The present outages; `who` names a name server, a broker or an address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since_s: dict[str, float] = {}

    def begin(self, server: str, reason: object, meanwhile: str = "it is waited for") -> None:
        """Log that `server` is away, unless that was logged."""
        if server not in self._since_s:
            self._since_s[server] = self._monotonic()
            log.warning("%s is away; %s: %s", server, meanwhile, reason)

    def end(self, server: str) -> None:
        """Log that `server` is back, if it was away."""
        if self._since_s and (since_s := self._since_s.pop(server, None)) is not None:
            log.warning("%s is back after %.0f s", server, self._monotonic() - since_s)

    def end_all(self) -> None:
        """Log that all servers are back."""
        for server in list(self._since_s):
            self.end(server)
