"""Sends log lines that may get lost: no answer, no retry, and nothing to wait for.

NAMESRV_ADDR=127.0.0.1:9876 python examples/one_way.py
"""

import asyncio

import sparrowmq


async def main() -> None:
    async with sparrowmq.connect() as mq:
        await mq.admin.create_topic("logs", queues=4, exist_ok=True)
        for number in range(100):
            mq.send_nowait("logs", f"line {number}".encode())
        received = 0
        async with mq.subscribe("logs", group="log-readers", start="earliest") as lines:
            async for line in lines:
                line.ack()
                received += 1
                if received == 100:
                    break
    print(received, "lines came")


asyncio.run(main())
