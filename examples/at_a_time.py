"""Sends messages for a moment, and takes one of them back before it comes.

NAMESRV_ADDR=127.0.0.1:9876 python examples/at_a_time.py
"""

import asyncio
from datetime import UTC, datetime, timedelta

import sparrowmq


async def main() -> None:
    async with sparrowmq.connect() as mq:
        moment = datetime.now(UTC) + timedelta(seconds=1.5)
        await mq.send("alarms", b"wake up", deliver_at=moment)
        snoozed = await mq.send("alarms", b"wake up a second time", deliver_at=moment)
        await mq.recall(snoozed)
        async with mq.subscribe("alarms", group="sleepers", start="earliest") as messages:
            async for message in messages:
                late_ms = (datetime.now(UTC) - moment) // timedelta(milliseconds=1)
                print(f"{message.text()!r} came {late_ms} ms after its moment")
                message.ack()
                break


asyncio.run(main())
