"""Follows a message: who sent it, who handled it, and how long that took.

NAMESRV_ADDR=127.0.0.1:9876 python examples/trace.py        (the broker needs traceTopicEnable=true)
"""

import asyncio

import sparrowmq
from sparrowmq import ReceivedMessage
from sparrowmq.protocol.messages.trace import PubTrace, SubAfterTrace


async def main() -> None:
    handled = asyncio.Event()

    def handle(message: ReceivedMessage) -> None:
        handled.set()

    async with sparrowmq.connect(trace=True, group="shop") as mq:
        sent = await mq.send("parcels", b"hello", keys="o-1")
        async with mq.subscribe("parcels", handle, group="carriers", start="earliest"):
            await handled.wait()
    # Leaving the client has sent what it had to report.

    async with sparrowmq.Admin() as admin:
        for trace in await admin.trace(sent.msg_id):
            match trace:
                case PubTrace():
                    print(f"{trace.group} sent it to {trace.topic} at {trace.store_host} in {trace.cost_ms} ms")
                case SubAfterTrace():
                    how = "handled it" if trace.is_success else "failed with it"
                    print(f"{trace.group} {how} in {trace.cost_ms} ms")


asyncio.run(main())
