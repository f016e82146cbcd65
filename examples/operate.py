"""Creates a topic and a group, moves the group to the end of the topic, and prints its lag.

NAMESRV_ADDR=127.0.0.1:9876 python examples/operate.py
"""

import asyncio

import sparrowmq


async def main() -> None:
    async with sparrowmq.connect() as mq:
        brokers = await mq.admin.create_topic("invoices", queues=4, exist_ok=True)
        await mq.admin.create_group("billing", max_retries=3, exist_ok=True)
        print("set at", *brokers)

        await mq.admin.reset("billing", "invoices", "latest")  # what was sent so far is none of its business
        sent = await mq.send("invoices", b"to be billed", keys=["i-1"])
        print((await mq.admin.lag("billing", "invoices")).lag, "behind")

        found = await mq.admin.message(sent.offset_msg_id)
        print(found.text(), found.keys)


asyncio.run(main())
