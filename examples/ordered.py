"""Keeps the steps of each order in order, while different orders are handled at the same time.

NAMESRV_ADDR=127.0.0.1:9876 python examples/ordered.py
"""

import asyncio
from collections import defaultdict

import sparrowmq
from sparrowmq import ReceivedMessage

ORDERS, STEPS = 20, ["created", "paid", "packed", "shipped"]


async def main() -> None:
    seen: dict[str, list[str]] = defaultdict(list)
    done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen[message.keys[0]].append(message.text())
        if sum(map(len, seen.values())) == ORDERS * len(STEPS):
            done.set()

    async with sparrowmq.connect() as mq:
        for step in STEPS:
            for number in range(ORDERS):
                order = f"order-{number}"
                await mq.send("steps", step.encode(), fifo=order, keys=[order])
        async with mq.subscribe("steps", handle, group="packers", start="earliest", ordered=True):
            await done.wait()
    assert all(steps == STEPS for steps in seen.values())
    print(len(seen), "orders, each in order:", " ".join(STEPS))


asyncio.run(main())
