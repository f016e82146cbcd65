"""`python -m tests.crash.talker NAMESRV FILE NAME SENDERS`: clients that write down all that they send, hear and read.

Producers that never stop, and a consumer of a group that all talkers share. Each event is a line of FILE, written
before anything else happens, so one that is halted or killed has told all that it knew. Bodies begin with NAME; times
are of the steady clock, which all processes of a machine share. SIGTERM ends it.

    ["sent", body, at]
    ["acked", body, queue, offset, place in the log, who stored it, at]     SEND_OK, and nothing less
    ["stored", body, queue, at]                                             ... answered with less
    ["read", body, queue, offset, at]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any, Final

import msgspec

from sparrowmq import connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message_id import parse_offset_id
from tests.crash.rounds import TOPIC

GROUP: Final = "looks"
PAUSE_S: Final = 0.02  # between two sends of one of them
TIMEOUT_S: Final = 3.0


class Talker:
    """The clients of one process."""

    def __init__(self, path: str, name: str, senders: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._name = name
        self._senders = senders

    async def talk(self, namesrv: str) -> None:
        """Until cancelled."""
        settings = ProducerSettings(timeout_s=TIMEOUT_S, retries=0)
        async with (
            connect(namesrv, settings=settings) as mq,
            mq.subscribe(TOPIC, self._read, group=GROUP, start="earliest"),
            asyncio.TaskGroup() as senders,
        ):
            for number in range(self._senders):
                senders.create_task(self._send(mq, number))
            await asyncio.get_running_loop().create_future()  # a reader has no senders, and reads on

    async def _send(self, mq: Any, sender: int) -> None:
        number = 0
        while True:
            number += 1
            body = f"{self._name}-{sender}-{number} " + "." * (number * 7 % 300)
            self._tell("sent", body, time.monotonic_ns())
            try:
                sent = await mq.send(TOPIC, body.encode())
            except SparrowError:
                await asyncio.sleep(PAUSE_S)
                continue
            queue_id, now_ns = sent.queue.queue_id, time.monotonic_ns()
            if sent.status is SendStatus.OK:
                host, place = parse_offset_id(sent.offset_msg_id)
                self._tell("acked", body, queue_id, sent.offset, place, host.rpartition(":")[0], now_ns)
            else:
                self._tell("stored", body, queue_id, now_ns)
            await asyncio.sleep(PAUSE_S if sent.status is SendStatus.OK else 5 * PAUSE_S)

    async def _read(self, message: Any) -> None:
        place = (message.queue.queue_id, message.stored.queue_offset)
        if message.queue.topic == TOPIC:
            self._tell("read", message.body.decode(), *place, time.monotonic_ns())

    def _tell(self, *event: object) -> None:
        os.write(self._file, msgspec.json.encode(event) + b"\n")


async def main(namesrv: str, path: str, name: str, senders: str) -> None:
    talking = asyncio.ensure_future(Talker(path, name, int(senders)).talk(namesrv))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, talking.cancel)
    await asyncio.wait([talking])
    if not talking.cancelled():
        talking.result()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
