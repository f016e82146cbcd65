"""Sends many messages in few requests, split where one would get too large, and one that is too large alone.

NAMESRV_ADDR=127.0.0.1:9876 python examples/batch.py
"""

import asyncio

import sparrowmq
from sparrowmq import Message, MessageTooLarge

KIB = 1024


async def main() -> None:
    async with sparrowmq.connect() as mq:
        messages = [Message("pictures", bytes([number]) * 100 * KIB) for number in range(100)]
        results = await mq.send_many(messages)  # 10 MB: each request has what a broker takes at once, 4 MiB
        print(len(results), "stored, in", len({result.queue for result in results}), "queues")
        try:
            await mq.send_many([Message("pictures", b"small"), Message("pictures", b"x" * 5000 * KIB)])
        except MessageTooLarge as error:
            print("none of these was sent:", str(error).split(";")[0])


asyncio.run(main())
