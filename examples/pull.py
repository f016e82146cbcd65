"""Reads at its own pace: first chosen queues from a time on, then its share of a topic, committed by itself.

NAMESRV_ADDR=127.0.0.1:9876 python examples/pull.py
"""

import asyncio
from datetime import datetime, timedelta

import sparrowmq
from sparrowmq import Message


async def main() -> None:
    async with sparrowmq.connect() as mq:
        await mq.admin.create_topic("visits", queues=4, exist_ok=True)
        await asyncio.gather(*[mq.send("visits", f"visit {number}".encode()) for number in range(20)])

        async with mq.pull_consumer(group="analysts") as reader:
            reader.assign(await reader.queues("visits"))
            await reader.seek_to_time(datetime.now() - timedelta(hours=1))
            found = 0
            while messages := await reader.poll(max_count=8, timeout_s=1):
                found += len(messages)
            await reader.commit()
            print(found, "in the last hour")

        await mq.send_many([Message("visits", b"another")])
        async with mq.pull_consumer(group="analysts", auto_commit_s=5) as reader:
            await reader.subscribe("visits")  # several such readers share the queues
            messages = await reader.poll(timeout_s=10)
            print([message.text() for message in messages], "since")


asyncio.run(main())
