"""A sender and consumers that pop: they acknowledge, change times, or leave a message until it comes again.

an acknowledgement was answered    the message never comes again, whichever member leads then
it was not                         the message may come again, or not
SEND_OK                            the message came at least once, at the end
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.popping.simple_consumer import SimpleConsumer
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import SparrowError
from tests.simulation.history import DRAIN_S

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

POPPED: Final = "popped"
QUEUES: Final = 2
GROUP: Final = "poppers"
INVISIBLE_S: Final = 10.0  # the shortest time that brokers take


class Poppers:
    """The programs."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._rng = workload.rng
        self._history = workload.history

    async def send(self, mq: Client) -> None:
        """Send until the run is over."""
        while not self._workload.is_over:
            identity = self._workload.next_identity("p", mq)
            try:
                result = await mq.send(POPPED, identity.encode(), timeout_s=3.0)
            except SparrowError:
                self._history.failed += 1
            else:
                if result.status is SendStatus.OK:
                    self._history.scheduler.note(f"sent {identity} to be popped")
                    self._history.poppable[identity] = None
            await self._workload.pause(0.4)

    async def consume(self, mq: Client) -> None:
        """Receive until the run is over, and what is left after that."""
        clock = asyncio.get_running_loop().time
        until: float | None = None
        async with mq.simple_consumer(POPPED, group=GROUP, start="earliest") as consumer:
            while until is None or clock() < until:
                try:
                    received = await consumer.receive(8, invisible_s=INVISIBLE_S, wait_s=self._workload.pace.poll_s)
                    # Each has come now: while the first ones are handled, another consumer may acknowledge the last.
                    for message in received:
                        self._history.popped(message.body.decode())
                    for message in received:
                        await self._handle(consumer, message)
                except SparrowError as error:
                    self._workload.log(error)
                    await self._workload.pause(0.5)
                if self._workload.is_over and until is None:
                    until = clock() + DRAIN_S

    async def _handle(self, consumer: SimpleConsumer, message: ReceivedMessage) -> None:
        """Raises: SparrowError, the message may be acknowledged or not."""
        identity = message.body.decode()
        chance = 0.0 if self._workload.is_over else self._rng.random()
        if chance < 0.1:
            await consumer.change_invisible(message, INVISIBLE_S)
        elif chance < 0.8:
            await consumer.ack(message)
            self._history.pop_settled(identity)
