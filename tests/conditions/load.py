"""The load of a game day: senders in a thread, and a reader that looks for each acknowledged message."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from sparrowmq import Client, Credentials, SendResult, SparrowError, connect
from sparrowmq.protocol.messages.message import MessageQueue
from tests.conditions.field import ADMIN

TOPIC: Final = "Load"
_SENDERS: Final = 4
_PAUSE_S: Final = 0.02
_READ_BACK_S: Final = 60.0


class Load:
    """Sends up to 200 messages a second to all brokers from a thread of its own, and counts what was answered."""

    def __init__(self, namesrv: str) -> None:
        self.sent = self.failed = 0
        self._namesrv = namesrv
        self._acknowledged: list[SendResult] = []
        self._is_over = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._send_all()), daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over = True
        self._thread.join(30)

    async def _send_all(self) -> None:
        async with (
            connect(self._namesrv, credentials=Credentials(*ADMIN)) as mq,
            asyncio.TaskGroup() as senders,
        ):
            for _ in range(_SENDERS):
                senders.create_task(self._send(mq))

    async def _send(self, mq: Client) -> None:
        while not self._is_over:
            try:
                self._acknowledged.append(await mq.send(TOPIC, b"x" * 100))
                self.sent += 1
            except SparrowError:
                self.failed += 1
            await asyncio.sleep(_PAUSE_S)

    def take_acknowledged(self) -> list[SendResult]:
        """Return the results of all sends since the last call."""
        taken, self._acknowledged = self._acknowledged, []
        return taken


def lost(namesrv: str, results: list[SendResult]) -> int:
    """Return how many of these acknowledged messages cannot be read, within a minute."""
    return asyncio.run(_lost(namesrv, results))


async def _lost(namesrv: str, results: list[SendResult]) -> int:
    missing = {each.msg_id for each in results}
    first: dict[MessageQueue, int] = {}
    for each in results:
        first[each.queue] = min(each.offset, first.get(each.queue, each.offset))
    async with (
        connect(namesrv, credentials=Credentials(*ADMIN)) as mq,
        mq.pull_consumer(group="Auditor") as reader,
    ):
        queues = await reader.queues(TOPIC)
        reader.assign(queues)
        for queue in queues:  # A broker that got another name has its messages in queues of this name.
            reader.seek(queue, first.get(queue, 0))
        deadline = time.monotonic() + _READ_BACK_S
        while missing and time.monotonic() < deadline:
            missing -= {message.msg_id for message in await reader.poll(timeout_s=1)}
    return len(missing)
