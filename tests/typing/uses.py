"""What a program may write: type checkers find nothing wrong here. Read by test_typing.py, run by nobody."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

import sparrowmq
import sparrowmq.sync
from sparrowmq import (
    Client,
    Consumer,
    Message,
    MessageQueue,
    NoRoute,
    ProducerSettings,
    ReceivedMessage,
    SendFailed,
    SendResult,
    SendStatus,
    SparrowError,
)
from sparrowmq.admin.brokers import Standing
from sparrowmq.once import idempotent
from sparrowmq.once.idempotent import Store
from sparrowmq.protocol.messages.trace import PubTrace


@dataclass
class Order:
    id: str


class Refund(msgspec.Struct):
    id: str


class Line(pydantic.BaseModel):
    count: int


class Connection: ...


class Address(TypedDict):
    street: str


async def one(message: ReceivedMessage) -> None: ...
def plain_one(message: ReceivedMessage) -> None: ...
async def several(messages: list[ReceivedMessage]) -> None: ...
def plain_several(messages: list[ReceivedMessage]) -> None: ...
async def moved(queues: list[MessageQueue]) -> None: ...


async def connecting() -> None:
    async with sparrowmq.connect() as mq:
        assert_type(mq, Client)
    sparrowmq.connect("127.0.0.1:9876")
    sparrowmq.connect(["a:9876", "b"])
    sparrowmq.connect("a", group="shop", instance="1", client_id="me", settings=ProducerSettings(retries=0))
    sparrowmq.connect("a", credentials=sparrowmq.Credentials("key", "secret"))
    sparrowmq.connect("a", tls=True)
    sparrowmq.connect("a", tls=ssl.create_default_context())
    sparrowmq.connect("a", tls=Path("tls.properties"))
    sparrowmq.connect("a", namespace="test")
    sparrowmq.Admin("a", namespace="test")
    sparrowmq.sync.admin("a", namespace="test")
    sparrowmq.connect("a", trace=True)
    sparrowmq.connect("a", trace="my-traces")


async def asking(mq: Client, message: ReceivedMessage, queue: MessageQueue) -> None:
    assert_type(await mq.request("t", b"x"), ReceivedMessage)
    await mq.request("t", b"x", tag="a", keys="k", properties={"a": "b"}, queue=queue, timeout_s=2.5)
    await mq.request(Message("t", b"x"), fifo="k")
    assert_type(await message.reply(b"x"), bool)
    await message.reply(Order("o-1"))
    for each in await mq.admin.standings(count=True):
        assert_type(each, Standing)
        assert_type(each.behind_bytes, int | None)
    for member in await mq.admin.members("g"):
        print(member.running.mq_table if member.running else member.silence)
    assert_type(await mq.admin.broker_settings("broker-a"), dict[str, str])
    await mq.admin.change_broker("broker-a", {"fileReservedTime": "48"})
    assert_type(await mq.admin.behind("broker-a"), dict[str, int])
    assert_type(await mq.admin.drain("broker-a") + await mq.admin.undrain("broker-a"), int)
    await mq.admin.replay(message, "g")
    assert_type(await mq.admin.reset("g", "t", "latest", dry_run=True), dict[MessageQueue, int])
    for trace in await mq.admin.trace("id", topic="my-traces"):
        if isinstance(trace, PubTrace):
            assert_type(trace.cost_ms, int)


def asking_without_async(mq: sparrowmq.sync.SyncClient, message: ReceivedMessage) -> None:
    assert_type(mq.request("t", b"x", timeout_s=2), ReceivedMessage)
    assert_type(mq.reply(message, b"x"), bool)


async def sending(mq: Client, queue: MessageQueue) -> None:
    assert_type(await mq.send("t", b"x"), SendResult)
    await mq.send("t", bytearray(b"x"))
    await mq.send("t", memoryview(b"x"))
    await mq.send("t", Order("o-1"), tag="a")
    await mq.send("t", Refund("r-1"))
    await mq.send("t", Line(count=5))
    await mq.send("t", {"id": "o-1"})
    await mq.send("t", Address(street="s"))
    await mq.send("t", [Order("o-1")])
    await mq.send("t", "text")
    await mq.send_many([Message("t", Order("o-1"), delay="10s", tag="a")])
    assert_type(Message("t", Order("o-1"), deliver_at=datetime.now(UTC)).body, bytes)
    await mq.send("t", b"x", tag="a", keys=["k"])
    await mq.send("t", b"x", keys=("k", "l"))
    await mq.send("t", b"x", keys="k")
    await mq.send("t", b"x", properties={"region": "EU"})
    await mq.send("t", b"x", delay="10s")
    await mq.send("t", b"x", delay_level=3)
    await mq.send("t", b"x", delay=timedelta(minutes=5))
    await mq.recall(await mq.send("t", b"x", deliver_at=datetime.now(UTC) + timedelta(days=1)))
    await mq.send("t", b"x", fifo="customer")
    await mq.send("t", b"x", queue=queue)
    await mq.send("t", b"x", timeout_s=10)
    await mq.send(Message("t", b"x"))
    assert_type(mq.send_soon("t", b"x"), asyncio.Future[SendResult])
    assert_type(mq.send_nowait("t", b"x", tag="a"), str)
    assert_type(await mq.send_many([Message("t", b"x")]), list[SendResult])
    await mq.send_many((Message("t", b"x") for _ in range(3)), fifo="k", timeout_s=1.5)
    await mq.drain()
    await mq.flush()
    assert_type(mq.unanswered, int)
    assert_type(await mq.queues("t"), list[MessageQueue])
    await mq.producer("bulk", ProducerSettings(window=10)).send("t", b"x")


async def results(result: SendResult) -> None:
    assert_type(result.msg_id, str)
    assert_type(result.offset, int)
    assert_type(result.queue, MessageQueue)
    assert_type(result.status, SendStatus)


async def failing(mq: Client) -> None:
    try:
        await mq.send("t", b"x")
    except (NoRoute, SendFailed) as error:
        assert isinstance(error, SparrowError)


async def consuming(mq: Client) -> None:
    async with mq.subscribe("t", group="g") as messages:
        assert_type(messages, Consumer)
        async for message in messages:
            assert_type(message, ReceivedMessage)
            async with message.process():
                assert_type(message.body, bytes)
            async with message.process(swallow=True):
                assert_type(message.tag, str | None)
            message.ack()
            message.retry()
            message.retry(delay="10s")
            message.retry(delay_level=3)
            message.retry(delay=timedelta(seconds=10))
        assert_type(await anext(messages), ReceivedMessage)
        assert_type(await messages.take(10), list[ReceivedMessage])
        await messages.subscribe("u", tag="a")
        await messages.unsubscribe("u")
        messages.pause()
        messages.resume(messages.queues)
        messages.seek(messages.queues[0], 0)
        assert_type(messages.position(messages.queues[0]), int)
        await messages.lag()
        await messages.commit()
        await messages.closed()


async def handling(mq: Client) -> None:
    mq.subscribe("t", one, group="g", concurrency=4)
    mq.subscribe("t", plain_one, group="g")
    mq.subscribe("t", several, group="g", batch=10)
    mq.subscribe("t", plain_several, group="g", batch=10)
    mq.subscribe(["t", "u"], one, group="g", start="earliest")
    mq.subscribe({"t": "a || b", "u": "*"}, one, group="g", start=datetime(2026, 1, 1))
    mq.subscribe("t", one, group="g", start="new", ordered=True, max_reconsume_times=3)
    mq.subscribe("t", one, group="g", broadcast=True, handler_timeout_s=60, grace_s=1)
    mq.subscribe("t", lambda message: message.ack(), group="g")
    mq.subscribe("t", lambda messages: messages[0].ack(), group="g", batch=2)
    mq.subscribe("t", one, group="g", handler_timeout_s=None)
    mq.subscribe("t", one, group="g", mode="pop", prefetch=0)
    mq.subscribe("t", one, group="g", on_assigned=moved, on_revoked=moved)


async def pulling(mq: Client) -> None:
    async with mq.pull_consumer(group="g", start="earliest") as reader:
        reader.assign(await reader.queues("t"))
        assert_type(await reader.poll(100, timeout_s=1), list[ReceivedMessage])
        await reader.seek_to_time(datetime(2026, 1, 1))
        await reader.commit()
        await reader.commit(reader.assigned)
        await reader.commit({reader.assigned[0]: 5})
        assert_type(await reader.offset_at(reader.assigned[0], datetime(2026, 1, 1)), int)
    async with mq.pull_consumer(group="g", auto_commit_s=5, broadcast=True, on_assigned=moved) as sharing:
        await sharing.subscribe("t", tag="a")
        await sharing.watch("t", print)
        sharing.wakeup()
    mq.pull_consumer(group="g", strategy="by_circle")
    mq.subscribe("t", group="g", strategy=sparrowmq.allocation.by_machine_room({"r1"}))


def declaring(mq: Client) -> None:
    @mq.handler("t", group="g")
    async def order(order: Order) -> None: ...

    @mq.handler(["t", "u"], group="g", batch=10, start="earliest")
    def orders(orders: list[Order], messages: list[ReceivedMessage]) -> None: ...

    assert_type(order.__name__, str)
    mq.run()


async def handling_once(mq: Client, store: Store, message: ReceivedMessage) -> object:
    @mq.handler("t", group="g")
    @idempotent(store, name="g")
    async def bill(order: Order, connection: Connection) -> int:
        return 5

    assert_type(bill.__name__, str)
    assert_type(await bill.__wrapped__(Order("o-1"), connection=Connection()), int)
    keeps: Callable[[Order, ReceivedMessage], Coroutine[Any, Any, int]] = bill
    plain = idempotent(store, key=lambda message: message.text())(plain_one)
    mq.subscribe("t", plain, group="g")
    assert_type(plain.__wrapped__(message), None)
    return keeps


def blocking() -> None:
    with sparrowmq.sync.connect("127.0.0.1:9876") as mq:
        assert_type(mq.send("t", b"x", tag="a"), SendResult)
        mq.send("t", Order("o-1"))
        assert_type(mq.send_soon("t", b"x"), Future[SendResult])
        assert_type(mq.send_many([Message("t", b"x")]), list[SendResult])
        with mq.subscribe("t", group="g", start="earliest") as messages:
            for message in messages:
                assert_type(message, ReceivedMessage)
                with message.process():
                    message.json()
        mq.subscribe("t", plain_one, group="g")
        mq.subscribe("t", one, group="g")
        mq.subscribe("t", plain_several, group="g", batch=10)


async def transacting(mq: Client, blocking: sparrowmq.sync.SyncClient) -> None:
    @mq.check("g", concurrency=5, waiting=200)
    async def check(message: ReceivedMessage) -> bool | None:
        return message.body == b"x"

    mq.producer("g", check=check)
    mq.producer("h", check=lambda message: None)
    async with mq.transaction("t", b"x", tag="a", keys=["k"], properties={"a": "b"}) as transaction:
        assert_type(transaction, sparrowmq.Transaction)
        assert_type(transaction.msg_id, str)
        await transaction.commit()
    with blocking.transaction("t", Order("o-1")) as plain:
        assert_type(plain.result, SendResult)
        plain.rollback()
