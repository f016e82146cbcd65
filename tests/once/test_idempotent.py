"""`@idempotent` over a store in SQLite: which handlers it takes, what they are called with, and what commits."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sparrowmq import ConfigError, ReceivedMessage
from sparrowmq.client import blocking_client as sync
from sparrowmq.once import idempotent
from sparrowmq.once.redis import RedisStore
from sparrowmq.once.sql import SqlStore, metadata
from tests.client.conftest import until
from tests.once.conftest import BILLS
from tests.once.messages import received


@dataclass
class Order:
    id: str


def store_in(folder) -> SqlStore:
    engine = sa.create_engine(f"sqlite:///{folder}/marks.db")
    metadata.create_all(engine)
    return SqlStore(engine)


def test_a_message_is_handled_once(tmp_path):
    calls = []

    @idempotent(store_in(tmp_path))
    def bill(message: ReceivedMessage) -> None:
        calls.append(message.msg_id)

    for message in [received("U-1"), received("U-1", place=2000), received("U-2")]:
        bill(message)
    assert calls == ["U-1", "U-2"]


def test_a_failed_message_is_handled_again(tmp_path):
    calls = []

    @idempotent(store_in(tmp_path))
    def bill(message: ReceivedMessage) -> None:
        calls.append(message.msg_id)
        if len(calls) == 1:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        bill(received())
    bill(received())
    bill(received())
    assert calls == ["U-1", "U-1"]


def test_a_batch_is_handled_without_its_duplicates(tmp_path):
    calls = []

    @idempotent(store_in(tmp_path))
    def bill(orders: list[int], messages: list[ReceivedMessage]) -> None:
        calls.append((orders, [each.msg_id for each in messages]))

    first, second, third = received("U-1"), received("U-2"), received("U-3")
    bill([1, 2, 1], [first, second, first])
    bill([2, 3], [second, third])
    bill([3], [third])
    assert calls == [([1, 2], ["U-1", "U-2"]), ([3], ["U-3"])]


def test_handlers_of_one_store_have_marks_of_their_own(tmp_path):
    store, calls = store_in(tmp_path), []
    for name in ("billing", "mailing"):
        idempotent(store, name=name)(lambda message, name=name: calls.append(name))(received())
    assert calls == ["billing", "mailing"]


async def test_a_declared_handler_gets_its_types_and_the_connection(tmp_path, mq):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    handled = []

    @mq.handler("orders", group="billing", start="earliest")
    @idempotent(SqlStore(engine), name="billing", key=lambda message: message.json()["id"])
    async def bill(order: Order, message: ReceivedMessage, connection: AsyncConnection) -> None:
        handled.append(message.tag)
        await connection.execute(sa.insert(BILLS), {"bill": order.id})
        if len(handled) == 1:
            raise ValueError("after the effect")

    serving = asyncio.create_task(mq.serve())
    await mq.send("orders", b'{"id": "o-1"}', tag="first")
    await until(lambda: handled == ["first", "first"], 30)
    await mq.send("orders", b'{"id": "o-1"}', tag="again")
    await mq.send("orders", b'{"id": "o-2"}', tag="other")
    await until(lambda: "other" in handled, 30)
    deadline = time.monotonic() + 30
    while "o-2" not in (bills := await _bills(engine)):  # its transaction ends after the handler
        assert time.monotonic() < deadline, bills
        await asyncio.sleep(0.02)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await engine.dispose()
    assert bills == ["o-1", "o-2"] and "again" not in handled


async def _bills(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list((await connection.execute(sa.select(BILLS.c.bill).order_by(BILLS.c.bill))).scalars())


async def test_a_plain_handler_of_the_blocking_client(tmp_path, cluster):
    store, handled = store_in(tmp_path), []

    @idempotent(store, name="billing", key=ReceivedMessage.text)
    def bill(message: ReceivedMessage) -> None:
        handled.append(message.text())

    def program() -> None:
        with (
            sync.connect(cluster.namesrv) as mq,
            mq.subscribe("orders", bill, group="billing", start="earliest", concurrency=1),
        ):
            for body in (b"o-1", b"o-1", b"o-2"):
                mq.send("orders", body, fifo="one queue")
            while "o-2" not in handled:
                pass

    await asyncio.wait_for(asyncio.to_thread(program), 30)
    assert handled == ["o-1", "o-2"]


async def asynchronous(message: ReceivedMessage) -> None:
    """An asynchronous handler."""


def generator(message: ReceivedMessage):
    yield


def of_three(order: Order, message: ReceivedMessage, clock: object) -> None:
    """A handler that wants too much."""


def with_connection(message: ReceivedMessage, connection: object) -> None:
    """A handler that wants a connection."""


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (asynchronous, "its? .*blocking, so write a plain `def`|store of .* is blocking"),
        (generator, "is a generator"),
        (of_three, "must take the body, or the body and the message"),
        (lambda: None, "must take the body"),
        (partial(print, end=""), "give name="),
        (5, "cannot be called"),
        (int, "does not say which arguments it takes"),
    ],
)
def test_handlers_that_it_cannot_call_are_refused(tmp_path, handler, says):
    with pytest.raises(ConfigError, match=says):
        idempotent(store_in(tmp_path))(handler)


def test_above_a_declared_handler_it_is_refused(tmp_path):
    mq = sync.connect("127.0.0.1:9876")

    @mq.handler("orders", group="billing")
    def bill(body: bytes) -> None: ...

    with pytest.raises(ConfigError, match=r"write @mq.handler\(...\) above @idempotent, not below"):
        idempotent(store_in(tmp_path))(bill)


def test_a_connection_is_refused_where_there_is_none():
    import redis

    with pytest.raises(ConfigError, match="needs a `connection`, but RedisStore does not provide one"):
        idempotent(RedisStore(redis.Redis()))(with_connection)


def test_wrong_arguments_are_refused(tmp_path):
    store = store_in(tmp_path)
    with pytest.raises(ConfigError, match="keeps no marks"):
        idempotent(asynchronous)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="keeps no marks"):
        idempotent(SqlStore)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="key="):
        idempotent(store, key="id")  # type: ignore[arg-type]
    for name in (5, "", " "):
        with pytest.raises(ConfigError, match="name="):
            idempotent(store, name=name)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="called without its message"):
        idempotent(store)(with_connection)(Order("o-1"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no engine"):
        SqlStore("sqlite://")  # type: ignore[arg-type]
