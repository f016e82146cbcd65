"""Asks for prices, and answers with them, in one program; usually these are two.

NAMESRV_ADDR=127.0.0.1:9876 python examples/request.py
"""

import asyncio

import sparrowmq
from sparrowmq import ReceivedMessage

PRICES = {"EURUSD": "1.0842", "GBPUSD": "1.2644", "USDJPY": "154.31"}


async def price(message: ReceivedMessage) -> None:
    if not await message.reply(PRICES[message.text()].encode()):
        print("whoever asked for", message.text(), "is gone")


async def main() -> None:
    async with sparrowmq.connect() as mq:
        # A topic that the first request makes is consumed only when the consumer has heard of it, up to 30 s later.
        await mq.admin.create_topic("prices", exist_ok=True)
        async with mq.subscribe("prices", price, group="pricing", start="earliest"):
            asked = [mq.request("prices", pair.encode(), timeout_s=10) for pair in PRICES]
            for pair, answer in zip(PRICES, await asyncio.gather(*asked), strict=True):
                print(pair, answer.text())


asyncio.run(main())
