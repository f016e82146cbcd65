"""Tells every program something: each member of a broadcasting group gets every message.

NAMESRV_ADDR=127.0.0.1:9876 python examples/broadcast.py
"""

import asyncio
import tempfile
from pathlib import Path

import sparrowmq


async def member(name: str, ready: asyncio.Semaphore) -> str:
    """One of several programs; in real life each has a machine, or an `instance=`, of its own."""
    with tempfile.TemporaryDirectory() as places:  # without it the place is kept in ~/.rocketmq_offsets
        async with (
            sparrowmq.connect(instance=name) as mq,
            mq.subscribe("prices", group="caches", broadcast=True, start="new", offset_folder=Path(places)) as news,
        ):
            ready.release()
            message = await anext(news)
            message.ack()
            return f"{name} has heard: {message.text()}"


async def main() -> None:
    ready = asyncio.Semaphore(0)
    async with sparrowmq.connect() as mq:
        await mq.admin.create_topic("prices", queues=4, exist_ok=True)
        async with asyncio.TaskGroup() as tasks:
            members = [tasks.create_task(member(f"cache-{number}", ready)) for number in range(3)]
            for _ in members:
                await ready.acquire()
            await mq.send("prices", b"bread is 3.20 now")
    print(*[each.result() for each in members], sep="\n")


asyncio.run(main())
