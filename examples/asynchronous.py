"""Sends without waiting: each answer comes to a callback, and `flush` waits for the last.

NAMESRV_ADDR=127.0.0.1:9876 python examples/asynchronous.py
"""

import asyncio
from asyncio import Future

import sparrowmq
from sparrowmq import SendResult


async def main() -> None:
    stored, failed = [], []

    def answered(future: Future[SendResult]) -> None:
        if error := future.exception():
            failed.append(error)  # also after two more attempts, on other brokers where there are some
        else:
            stored.append(future.result().msg_id)

    async with sparrowmq.connect() as mq:
        for number in range(100):
            mq.send_soon("measurements", f"value {number}".encode()).add_done_callback(answered)
        await mq.flush()
        await asyncio.sleep(0)  # callbacks are called in the loop's next turn
    print(len(stored), "stored,", len(failed), "failed")


asyncio.run(main())
