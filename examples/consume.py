"""Consumes a topic as a member of a group, from its first message on. A second program in the group takes half.

NAMESRV_ADDR=127.0.0.1:9876 python examples/consume.py [TOPIC] [COUNT]
"""

import asyncio
import sys

import sparrowmq


async def main(topic: str, count: int) -> None:
    async with (
        sparrowmq.connect() as mq,
        mq.subscribe(topic, group="example", start="earliest") as messages,
    ):
        async for message in messages:
            async with message.process():  # acknowledged at its end; if it raises, delivered again later
                print(message.queue.queue_id, message.offset, message.tag, message.keys, message.text())
            count -= 1
            if not count:
                break


arguments = [*sys.argv[1:], *["orders", "10"][len(sys.argv) - 1 :]]
asyncio.run(main(arguments[0], int(arguments[1])))
