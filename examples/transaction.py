"""Sends messages that are seen only if a payment succeeds, even when the program cannot say so itself.

NAMESRV_ADDR=127.0.0.1:9876 python examples/transaction.py
"""

import asyncio

import sparrowmq

payments: set[str] = set()  # your database, say
mq = sparrowmq.connect(group="payments")  # brokers ask any program of this group how a transaction ended


@mq.check()
async def check(message: sparrowmq.ReceivedMessage) -> bool | None:
    return message.msg_id in payments


async def main() -> None:
    async with mq:
        async with mq.transaction("payments", b"paid") as transaction:
            payments.add(transaction.msg_id)
        try:
            async with mq.transaction("payments", b"no money"):
                raise LookupError("the account is empty")
        except LookupError as error:
            print(f"rolled back, as {error}")
        # The broker is not told, and asks `check` after a second instead of six.
        soon = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}
        async with mq.transaction("payments", b"paid, as the check says", properties=soon) as transaction:
            payments.add(transaction.msg_id)
            await transaction.unknown()
        async with mq.subscribe("payments", group="ledger", start="earliest") as messages:
            for _ in range(2):
                message = await anext(messages)
                message.ack()
                print(message.text())


asyncio.run(main())
