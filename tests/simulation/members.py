"""Members of two consumer groups, which join and leave while brokers die. Some handlers fail, once for a message.

"workers"    handlers run side by side: each acknowledged message is handled, in whatever order
"sorters"    one message of a queue at a time: none is handled before all before it in its queue, and none while another
             member still handles one of that queue. Some handlers take seconds
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import SparrowError
from tests.simulation.history import DRAIN_S, ORDERS

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

COUNT: Final = 2  # of each group
_STAYS_S: Final = 60.0
_AWAY_S: Final = 3.0
_FAILS: Final = 0.02
_SLOW: Final = 0.05
_SLOWEST_S: Final = 3.0


class Members:
    """The programs."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rng = workload.rng
        self._history = workload.history
        self._failed: dict[tuple[str, str], None] = {}

    async def work(self, mq: Client) -> None:
        """Be a member whose handlers run side by side."""

        async def handle(message: ReceivedMessage) -> None:
            if not self._fails(message, "workers"):
                self._history.worked(message.body.decode().rstrip())

        await self._stay(mq, "workers", handle, ordered=False)

    async def sort(self, mq: Client) -> None:
        """Be a member that handles the messages of a queue in order."""

        async def handle(message: ReceivedMessage) -> None:
            with self._history.sorting(message.queue.queue_id):
                if self._rng.random() < _SLOW:
                    await asyncio.sleep(self._rng.uniform(0.1, _SLOWEST_S))
            if not self._fails(message, "sorters"):
                self._history.sorted(message.queue.queue_id, message.offset)

        await self._stay(mq, "sorters", handle, ordered=True)

    async def _stay(
        self, mq: Client, group: str, handle: Callable[[ReceivedMessage], Awaitable[None]], *, ordered: bool
    ) -> None:
        is_last, pace = False, self._workload.pace
        while not is_last:
            try:
                async with mq.subscribe(ORDERS, handle, group=group, ordered=ordered, start="earliest"):
                    await self._until_over(self._rng.expovariate(1 / _STAYS_S) * pace.waits)
                    is_last = self._workload.is_over
                    if is_last:  # stay for what is left
                        await asyncio.sleep(DRAIN_S)
            except SparrowError as error:
                self._workload.log(error)
                await asyncio.sleep(1.0)
            await self._until_over(_AWAY_S * pace.waits)

    async def _until_over(self, seconds: float) -> None:
        """Wait for a time, or until the run is over."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while clock() < until and not self._workload.is_over:
            await asyncio.sleep(self._workload.pace.poll_s / 2)

    def _fails(self, message: ReceivedMessage, group: str) -> bool:
        """Whether this is one of the messages that fail the first time."""
        key = (group, message.body.decode().rstrip())
        if key in self._failed or self._rng.random() >= _FAILS:
            return False
        self._failed[key] = None
        message.retry()
        return True
