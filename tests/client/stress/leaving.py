"""What a program still holds after it left its client: tasks, threads, descriptors, places in the window."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from sparrowmq.client.client import Client
from tests.client.stress.ledger import Left, Pen

DESCRIPTORS = Path("/proc/self/fd")


class Farewell:
    """What is to be told of a client that was left."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.took_s = 0.0
        self.unanswered = 0
        self.tasks: list[str] = []
        self._told_at = 0.0

    def tell(self) -> None:
        """It is time to leave."""
        self._told_at = time.monotonic()
        self.told.set()

    @asynccontextmanager
    async def of(self, mq: Client) -> AsyncIterator[Client]:
        """Use the client until SIGTERM, and look at what it leaves behind as soon as it is left."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.tell)
        async with mq:
            yield mq
        self.took_s = time.monotonic() - self._told_at
        self.unanswered = mq.unanswered
        others = asyncio.all_tasks() - {asyncio.current_task()}
        self.tasks = [f"task {task.get_name()!r}" for task in others]


def live(who: str, pen: Pen, program: Callable[[Farewell], Awaitable[None]]) -> None:
    """Run a program to its end and write down what is left of it."""
    farewell = Farewell()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(_open_a_socket())
        threads, descriptors = set(threading.enumerate()), _descriptors()
        loop.run(_awaited(program(farewell)))
        more = {number: file for number, file in _descriptors().items() if number not in descriptors}
    pen.write(
        Left(
            who,
            farewell.took_s,
            farewell.unanswered,
            farewell.tasks,
            [f"thread {thread.name!r}" for thread in threading.enumerate() if thread not in threads],
            [f"descriptor of {file}" for file in more.values()],
        )
    )


async def _open_a_socket() -> None:
    """With the first socket libuv opens a spare descriptor, and keeps it as long as the loop lives."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    server.close()
    await server.wait_closed()


async def _awaited(program: Awaitable[None]) -> None:
    await program
    await asyncio.sleep(0)  # Transports give their sockets back in the turn after they were closed.
    await asyncio.sleep(0)


def _descriptors() -> dict[int, str]:
    """What is open, by number, the folder that is listed apart."""
    found: dict[int, str] = {}
    for number in os.listdir(DESCRIPTORS):
        try:
            found[int(number)] = os.readlink(DESCRIPTORS / number)
        except FileNotFoundError:
            continue
    return found
