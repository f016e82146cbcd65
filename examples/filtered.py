"""Sends orders and takes only those that an SQL92 expression wants; the broker needs enablePropertyFilter=true.

NAMESRV_ADDR=127.0.0.1:9876 python examples/filtered.py [TOPIC]
"""

import asyncio
import sys

import sparrowmq

WANTED = "amount BETWEEN 100 AND 200 AND region IN ('EU', 'UK') OR vip IS NOT NULL"


async def main(topic: str) -> None:
    async with sparrowmq.connect() as mq:
        for number, region in enumerate(("EU", "US", "UK", "EU")):
            await mq.send(topic, b"o-%d" % number, properties={"amount": str(100 * number), "region": region})
        await mq.send(topic, b"o-vip", properties={"amount": "1", "vip": "gold"})
        async with mq.subscribe(topic, group="filtered", where=WANTED, start="earliest") as orders:
            for _ in range(2):
                order = await anext(orders)
                async with order.process():
                    print(order.text(), "of", order.properties["amount"])


asyncio.run(main(*sys.argv[1:2] or ["filtered-orders"]))
