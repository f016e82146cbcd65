"""Sends messages: one and waiting for it, many at once, and a batch.

NAMESRV_ADDR=127.0.0.1:9876 python examples/send.py
"""

import asyncio

import sparrowmq
from sparrowmq import Message


async def main() -> None:
    async with sparrowmq.connect() as mq:
        result = await mq.send("orders", b"hello", tag="paid", keys="o-1", properties={"region": "eu"})
        print("stored at", result.queue, "offset", result.offset, "as", result.msg_id)

        answers = []
        for number in range(1000):
            answers.append(mq.send_soon("orders", f"order {number}".encode(), tag="new"))
            await mq.drain()
        await asyncio.gather(*answers)
        print("stored", len(answers))

        results = await mq.send_many([Message("orders", b"one"), Message("orders", b"two", tag="paid")])
        print("stored", len(results), "in a batch")


asyncio.run(main())
