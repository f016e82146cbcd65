"""Keeps all messages of a topic in one order: the topic has one queue, and one member of the group gets it.

NAMESRV_ADDR=127.0.0.1:9876 python examples/ordered_globally.py
"""

import asyncio

import sparrowmq

STEPS = 50


async def main() -> None:
    async with sparrowmq.connect() as mq:
        await mq.admin.create_topic("journal", queues=1, exist_ok=True)
        for number in range(STEPS):
            await mq.send("journal", str(number).encode(), fifo="journal")
        numbers = []
        async with mq.subscribe("journal", group="archivists", start="earliest", ordered=True) as entries:
            async for entry in entries:
                async with entry.process():  # the next one comes when this is done, a failed one again and again
                    numbers.append(int(entry.text()))
                if len(numbers) == STEPS:
                    break
    assert numbers == list(range(STEPS))
    print(len(numbers), "entries, each behind the one before")


asyncio.run(main())
