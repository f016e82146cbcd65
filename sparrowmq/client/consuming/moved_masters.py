"""Repeats the last commits and unlocks of a closing consumer, if a master refuses them because it is a slave now.

    commit, unlock ── refused by the master of our route     ── ask for routes, wait ── again, for 2.5 s at most
                   ├─ refused, and our route has no master   ── the master is dead: do not wait
                   └─ no answer                              ── do not wait

Otherwise the next owner of a queue would get handled messages again, and wait 60 s for a lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.sending.outcome import is_slaves
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue

ELECTED_S: Final = 2.5  # of the 3 s that leaving may take
PAUSE_S: Final = 0.25


class MovedQueues:
    """The queues whose master refused a request because it is a slave now."""

    def __init__(self, network: Network) -> None:
        self._routes = network.routes
        self._queues: set[MessageQueue] = set()

    def among(self, failed: Mapping[MessageQueue, SparrowError]) -> set[MessageQueue]:
        """Return the failed queues whose former master is a slave, by this error or by an earlier one."""
        for queue, error in failed.items():
            if is_slaves(error) and self._routes.master(queue.broker_name) is not None:
                self._queues.add(queue)
        return self._queues & failed.keys()


async def until_elected(attempt: Callable[[], Awaitable[bool]], network: Network) -> None:
    """Repeat an attempt while it returns True, for ELECTED_S at most."""
    begun = network.clock.monotonic()
    while await attempt() and network.clock.age(begun) < ELECTED_S:
        network.routes.doubt()
        await network.clock.sleep(PAUSE_S)
