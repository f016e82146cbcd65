"""Remembers brokers that died, so that tools can name them: as values of a namespace, on disk.

    LOST_BROKERS    broker-b    {"cluster": ..., "address": ..., "sinceMs": ..., "topics": [...]}

A broker that unregisters is not lost. A lost one is forgotten when its master registers again, or when an operator
deletes the value (`sparrowmq broker forget`). Each name server remembers for itself, and MOST_LOST brokers at most.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import to_end
from sparrowmq.namesrv.kv import KeyValues
from sparrowmq.namesrv.route_table import MOST_LOST, Routes
from sparrowmq.protocol.names import LOST_BROKERS
from sparrowmq.protocol.requests.bodies import LostBroker

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0


class DeadBrokers:
    """Writes what `Routes.vanished` says into the name server's values."""

    def __init__(self, routes: Routes, values: KeyValues, clock: Clock) -> None:
        self._routes = routes
        self._values = values
        self._clock = clock
        self._written: set[str] = set()
        self._is_failing = False

    async def watch(self) -> None:
        """Look each second, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            try:
                await self.look()
            except OSError as error:
                if not self._is_failing:
                    log.warning("lost brokers cannot be remembered in %s: %s", self._values.path, error)
                self._is_failing = True
            else:
                self._is_failing = False

    async def look(self) -> None:
        """Write what changed. Raises: OSError; the next look writes it again."""
        room = MOST_LOST - len(self._values.namespace(LOST_BROKERS))
        for name, gone in list(self._routes.vanished.items()):
            if name not in self._written and room > 0:
                room -= 1
                lost = LostBroker(gone.cluster, gone.address, self._clock.now_ms(), list(gone.topics))
                written = b"".join(await to_end(lost.encoding()))  # it may have 50,000 topics
                await self._values.put(LOST_BROKERS, name, written.decode())
                self._written.add(name)
                log.warning("broker %s is lost; if it does not come back: `sparrowmq broker forget %s`", name, name)
        self._written &= self._routes.vanished.keys()
        for name in self._values.namespace(LOST_BROKERS):
            if self._routes.has_master(name):
                await self._values.delete(LOST_BROKERS, name)
