"""A process whose messages are of transactions: a quarter each is committed or rolled back, by telling or when asked.

The name of a message says how its transaction ends, so the check knows it whatever became of the block, and nothing has
to be remembered. SIGUSR1: begin no more, and go on answering the broker's questions until SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Final
from zlib import crc32

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import SparrowError
from tests.client.stress.hasty import HastyClock
from tests.client.stress.leaving import Farewell, live
from tests.client.stress.ledger import Decided, Doubted, Entered, Pen, Place, Sent
from tests.client.stress.plan import PLAIN

WHO: Final = "transactor"
GROUP: Final = "transactors"
SIDE_BY_SIDE: Final = 4
PAUSE_S: Final = 0.1
TIMEOUT_S: Final = 6.0
ENDS: Final = ("committed-told", "committed-asked", "undone-told", "undone-asked")


class Undone(Exception):
    """What a block raises to have its transaction rolled back."""


class Transactor:
    """Begins transactions, some side by side, until there are enough."""

    def __init__(self, mq: Client, pen: Pen, enough: asyncio.Event, part: str) -> None:
        self._mq = mq
        self._part = part
        self._pen = pen
        self._enough = enough
        self._begun = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SIDE_BY_SIDE):
                group.create_task(self._repeat())

    async def _repeat(self) -> None:
        while not self._enough.is_set():
            await self._one(self._next_name())
            await asyncio.sleep(PAUSE_S)

    def _next_name(self) -> str:
        self._begun += 1
        end = ENDS[crc32(str(self._begun).encode()) % len(ENDS)]
        return f"{self._part}transaction-{self._begun}-{end}"

    async def _one(self, message: str) -> None:
        self._pen.write(Sent(message, PLAIN, time.monotonic()))
        try:
            async with self._mq.transaction(PLAIN, message.encode(), tag="transaction") as transaction:
                self._decide(message, transaction.result)
                if message.endswith("asked"):
                    await transaction.unknown()
                elif not is_committed(message):
                    raise Undone
        except Undone:
            pass
        except SparrowError as error:
            self._pen.write(Doubted(message, f"{type(error).__name__}: {error}", time.monotonic()))

    def _decide(self, message: str, half: SendResult) -> None:
        """From here on it must be handled, or must never be; its place is known only once it is committed."""
        place = Place(PLAIN, half.queue.broker_name, half.queue.queue_id, -1)
        self._pen.write(Decided(message, place, is_committed(message), time.monotonic()))


def is_committed(message: str) -> bool:
    return "-committed-" in message


async def transact(namesrv: str, pen: Pen, part: str, farewell: Farewell) -> None:
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, enough.set)
    settings = ProducerSettings(timeout_s=TIMEOUT_S, retries=4)
    async with farewell.of(connect(namesrv, group=GROUP, settings=settings, clock=HastyClock())) as mq:

        @mq.check(GROUP)
        async def check(message: ReceivedMessage) -> bool:
            return is_committed(message.text())

        pen.write(Entered(WHO, time.monotonic()))
        await Transactor(mq, pen, enough, part).run()
        await farewell.told.wait()


def main() -> None:
    namesrv, file, part = sys.argv[1:]
    pen = Pen(Path(file))
    live(WHO, pen, lambda farewell: transact(namesrv, pen, part, farewell))


if __name__ == "__main__":
    main()
