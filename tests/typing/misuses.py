"""What a program must not write: type checkers find each line marked below, and nothing else. Run by nobody."""

from __future__ import annotations

from datetime import timedelta

import sparrowmq
import sparrowmq.sync
from sparrowmq import Client, Message, MessageQueue, ReceivedMessage
from sparrowmq.once import idempotent
from sparrowmq.once.idempotent import Store


async def one(message: ReceivedMessage) -> None: ...
async def several(messages: list[ReceivedMessage]) -> None: ...
async def of_text(text: str) -> None: ...
def plain_one(message: ReceivedMessage) -> None: ...
def plain_several(messages: list[ReceivedMessage]) -> None: ...


async def sending(mq: Client, queue: MessageQueue) -> None:
    await mq.send("t", 5)  # wrong
    await mq.send("t", object())  # wrong
    await mq.send(5, b"x")  # wrong
    await mq.send("t", b"x", tags="a")  # wrong
    await mq.send("t", b"x", key="k")  # wrong
    await mq.send("t", b"x", keys=5)  # wrong
    await mq.send("t", b"x", timeout=3)  # wrong
    await mq.send("t", b"x", timeout_s="3")  # wrong
    await mq.send("t", b"x", delay=1.5)  # wrong
    await mq.send("t", b"x", delay=3)  # wrong
    await mq.send("t", b"x", delay_level="3")  # wrong
    await mq.send("t", b"x", deliver_at=5)  # wrong
    await mq.recall(5)  # wrong
    await mq.admin.change_broker("broker-a", {"fileReservedTime": 48})  # wrong
    sparrowmq.Admin("a", namespace=None)  # wrong
    await mq.send("t", b"x", region="EU")  # wrong
    await mq.send("t", b"x", properties={"n": 5})  # wrong
    await mq.send("t", b"x", fifo=5)  # wrong
    await mq.send("t", b"x", queue=3)  # wrong
    await mq.send_many(["text"])  # wrong
    await mq.send_nowait("t", b"x")  # wrong
    mq.send_nowait("t", b"x", timeout_s=3)  # wrong
    Message("t", 5)  # wrong
    Message("t", b"x", delay=3)  # wrong
    print((await mq.send("t", b"x")).message_id)  # wrong


async def asking(mq: Client, message: ReceivedMessage) -> None:
    await mq.request("t", 5)  # wrong
    await mq.request("t", b"x", delay="10s")  # wrong
    await mq.request("t", b"x", timeout=3)  # wrong
    await message.reply(5)  # wrong
    sparrowmq.connect("a", trace=5)  # wrong


async def consuming(mq: Client, message: ReceivedMessage) -> None:
    mq.subscribe("t", group="g", strategy="by_chance")  # wrong
    await mq.pull_consumer(group="g").wakeup()  # wrong
    mq.subscribe("t")  # wrong
    mq.subscribe("t", one)  # wrong
    mq.subscribe("t", several, group="g")  # wrong
    mq.subscribe("t", one, group="g", batch=10)  # wrong
    mq.subscribe("t", plain_several, group="g")  # wrong
    mq.subscribe("t", plain_one, group="g", batch=4)  # wrong
    mq.subscribe("t", of_text, group="g")  # wrong
    mq.subscribe("t", one, group="g", start="begin")  # wrong
    mq.subscribe("t", one, group="g", concurrent=4)  # wrong
    mq.subscribe("t", one, group="g", grace=4)  # wrong
    mq.handler("t")  # wrong
    mq.handler("t", group="g", start="begin")  # wrong
    message.retry(delay=1.5)  # wrong
    message.retry(delay=3)  # wrong
    message.process(True)  # wrong
    message.retry(after=timedelta(seconds=1))  # wrong
    message.body = b"x"  # wrong


def handling_once(mq: Client, store: Store) -> None:
    bill = idempotent(store)(of_text)
    bill.__wrapped__(5)  # wrong
    bill(5)  # wrong
    mq.subscribe("t", bill, group="g")  # wrong
    idempotent(store)(5)  # wrong
    idempotent(store, key=5)  # wrong


async def connecting() -> None:
    sparrowmq.connect(9876)  # wrong
    sparrowmq.connect("a", tls="yes")  # wrong
    sparrowmq.connect("a", credentials=("key", "secret"))  # wrong


async def looking(mq: Client) -> None:
    await mq.admin.standings(["c"])  # wrong
    await mq.admin.standings("c", True)  # wrong


def blocking() -> None:
    with sparrowmq.sync.connect("a") as mq:
        mq.send("t", 5)  # wrong
        mq.subscribe("t", plain_several, group="g")  # wrong
        mq.subscribe("t", plain_one, group="g", batch=10)  # wrong


async def transacting(mq: Client) -> None:
    async with mq.transaction("t", b"x", delay="10s"):  # wrong
        pass
    with mq.transaction("t", b"x"):  # wrong
        pass
    mq.producer("g", check=of_text)  # wrong

    @mq.check()  # wrong
    async def check(message: ReceivedMessage) -> str:
        return "committed"
