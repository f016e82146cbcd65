"""Sends a message that consumers get a second later.

NAMESRV_ADDR=127.0.0.1:9876 python examples/delayed.py
"""

import asyncio
import time

import sparrowmq


async def main() -> None:
    async with sparrowmq.connect() as mq:
        begun = time.monotonic()
        sent = await mq.send("reminders", b"wake up", delay="1s")
        async with mq.subscribe("reminders", group="sleepers", start="earliest") as messages:
            async for message in messages:
                message.ack()
                if message.msg_id == sent.msg_id:
                    break
        print(f"{message.text()!r} came after {time.monotonic() - begun:.2f} s")


asyncio.run(main())
