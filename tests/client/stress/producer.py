"""A process that sends in every way there is, and writes down what it gave to the client and what came of it.

    one by one, gathered, pipelined (send_soon), in batches (send_many), by key one by one, by key gathered

Until SIGTERM; then it waits for its answers and leaves.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from sparrowmq.client.client import Client, connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import Message
from tests.client.stress.hasty import HastyClock
from tests.client.stress.leaving import Farewell, live
from tests.client.stress.ledger import Acknowledged, Doubted, Entered, Pen, Place, Sent
from tests.client.stress.plan import KEYED, PLAIN

WHO = "producer"
PORTION = 12
PAUSE_S = 0.12
BURST = 400
BURST_PAUSE_S = 2.0
KEYS = 4
# Small, so that gathered sends fill it and wait for room.
WINDOW = 8
TIMEOUT_S = 6.0


class Producer:
    """Sends portions of messages in each way, side by side."""

    def __init__(self, mq: Client, pen: Pen, stop: asyncio.Event, rate: float, part: str) -> None:
        self._mq = mq
        self._rate = rate
        self._part = part
        self._sent = 0
        self._began = time.monotonic()
        self._pen = pen
        self._stop = stop
        self._numbers = itertools.count()
        self._sequences: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(itertools.count)

    async def run(self) -> None:
        """All ways at once, until it is told to stop and everything is answered."""
        ways: list[Callable[[], Awaitable[None]]] = [
            self._one_by_one,
            self._gathered,
            self._pipelined,
            self._batched,
            self._at_once,
            self._keyed_one_by_one,
            self._keyed_gathered,
        ]
        async with asyncio.TaskGroup() as group:
            for way in ways:
                group.create_task(self._repeat(way))

    async def _repeat(self, way: Callable[[], Awaitable[None]]) -> None:
        while not self._stop.is_set():
            await way()
            await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """The pause after a portion: long while we are ahead of the wanted rate, none while we are behind it."""
        if not self._rate:
            return PAUSE_S
        return max(0.0, self._sent / self._rate - (time.monotonic() - self._began))

    # The ways -------------------------------------------------------------------------------------------------------

    async def _one_by_one(self) -> None:
        for message in self._messages(PORTION // 2):
            await self._send(message)

    async def _gathered(self) -> None:
        await asyncio.gather(*(self._send(message) for message in self._messages(PORTION)))

    async def _pipelined(self, count: int = PORTION) -> None:
        pending = []
        for message in self._messages(count):
            await self._mq.drain()
            pending.append((message, self._mq.send_soon(PLAIN, message.encode(), tag="soon")))
        for message, future in pending:
            await self._write(message, future)

    async def _batched(self) -> None:
        messages = list(self._messages(PORTION))
        try:
            results = await self._mq.send_many([Message(PLAIN, message.encode()) for message in messages])
        except SparrowError as error:
            for message in messages:
                self._doubt(message, error)
        else:
            for message, result in zip(messages, results, strict=True):
                self._acknowledge(message, result)

    async def _at_once(self) -> None:
        """So many that members have a backlog when queues change hands."""
        await self._pipelined(BURST)
        await asyncio.sleep(BURST_PAUSE_S)

    async def _keyed_one_by_one(self) -> None:
        for topic in KEYED:
            for number in range(KEYS):
                await self._send_keyed(topic, f"alone-{number}")

    async def _keyed_gathered(self) -> None:
        sends = [self._send_keyed(topic, "gathered") for topic in KEYED for _ in range(PORTION)]
        await asyncio.gather(*sends)

    # One message ----------------------------------------------------------------------------------------------------

    def _messages(self, count: int) -> Iterator[str]:
        """So many new messages of the topic without an order, each written down as it is handed out."""
        for _ in range(count):
            message = f"{self._part}plain-{next(self._numbers)}"
            self._sent += 1
            self._pen.write(Sent(message, PLAIN, time.monotonic()))
            yield message

    async def _send(self, message: str) -> None:
        send = self._mq.send(PLAIN, message.encode(), tag="plain", keys=[message], properties={"by": WHO})
        await self._write(message, send)

    async def _send_keyed(self, topic: str, key: str) -> None:
        sequence = next(self._sequences[topic, key])
        message = f"{self._part}{topic}-{key}-{sequence}"
        self._sent += 1
        self._pen.write(Sent(message, topic, time.monotonic(), key, sequence))
        await self._write(message, self._mq.send(topic, message.encode(), fifo=key))

    async def _write(self, message: str, send: Awaitable[SendResult]) -> None:
        try:
            result = await send
        except SparrowError as error:
            self._doubt(message, error)
        else:
            self._acknowledge(message, result)

    def _acknowledge(self, message: str, result: SendResult) -> None:
        queue = result.queue
        place = Place(queue.topic, queue.broker_name, queue.queue_id, result.offset)
        self._pen.write(Acknowledged(message, place, time.monotonic()))

    def _doubt(self, message: str, error: SparrowError) -> None:
        self._pen.write(Doubted(message, f"{type(error).__name__}: {error}", time.monotonic()))


async def produce(namesrv: str, pen: Pen, rate: float, part: str, farewell: Farewell) -> None:
    """Send until SIGTERM."""
    settings = ProducerSettings(window=WINDOW, timeout_s=TIMEOUT_S, retries=4)
    async with farewell.of(connect(namesrv, settings=settings, clock=HastyClock())) as mq:
        pen.write(Entered(WHO, time.monotonic()))
        await Producer(mq, pen, farewell.told, rate, part).run()


def main() -> None:
    namesrv, file, part, rate = sys.argv[1:]
    pen = Pen(Path(file))
    live(WHO, pen, lambda farewell: produce(namesrv, pen, float(rate), part, farewell))


if __name__ == "__main__":
    main()
