"""Lets the broker share out single messages: more workers than queues, and a slow message that delays no other.

NAMESRV_ADDR=127.0.0.1:9876 python examples/pop.py
"""

import asyncio

import sparrowmq
from sparrowmq import ReceivedMessage

done: asyncio.Queue[str] = asyncio.Queue()


async def resize(message: ReceivedMessage) -> None:
    if message.text() == "picture 0":
        await asyncio.sleep(2)  # the others do not wait for it
    await done.put(message.text())


def worker(mq: sparrowmq.Client) -> sparrowmq.Consumer:
    return mq.subscribe("uploads", resize, group="resizing", mode="pop", start="earliest")


async def main() -> None:
    async with sparrowmq.connect() as mq:
        await mq.admin.create_topic("uploads", queues=1, exist_ok=True)
        for number in range(5):
            await mq.send("uploads", f"picture {number}".encode())

        # One message at a time, each acknowledged by itself. The first one is to come again, to any worker.
        async with mq.simple_consumer("uploads", group="resizing", start="earliest") as consumer:
            first, second = await consumer.receive(max_messages=2, invisible_s=60, wait_s=10)
            await consumer.change_invisible(first, 1)
            await consumer.ack(second)
            print("received", first.text(), "and", second.text())

        # A handler, here with two workers at the only queue.
        async with sparrowmq.connect() as another, worker(mq), worker(another):
            names = [await done.get() for _ in range(4)]
        print("handled", sorted(names), "and last", names[-1])


asyncio.run(main())
