"""Outbox and inbox: an order and its message in one transaction, and one bill for each order, however often sent.

pip install ".[server,sql]" aiosqlite
sparrowmq dev &
export NAMESRV_ADDR=127.0.0.1:9876
python examples/apps/outbox_inbox.py
"""

import asyncio
import tempfile

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import sparrowmq
from sparrowmq.once import ONCE_ID, idempotent
from sparrowmq.once.sql import AsyncSqlOutbox, SqlStore, add, metadata

orders = sa.Table("orders", metadata, sa.Column("id", sa.String(32), primary_key=True))
bills = sa.Table("bills", metadata, sa.Column("order_id", sa.String(32)))


async def order(engine: AsyncEngine, name: str) -> None:
    """Place an order: the row and its message are committed together, or neither."""
    async with engine.begin() as connection:
        await connection.execute(sa.insert(orders), {"id": name})
        await connection.run_sync(add, "orders", name.encode(), fifo=name, properties={ONCE_ID: name})


async def main(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    mq = sparrowmq.connect()

    @mq.handler("orders", group="billing", start="earliest")
    @idempotent(SqlStore(engine), name="billing")
    async def bill(name: str, connection: AsyncConnection) -> None:
        await connection.execute(sa.insert(bills), {"order_id": name})

    stop = asyncio.Event()
    async with mq:
        serving = asyncio.create_task(mq.serve())
        relaying = asyncio.create_task(AsyncSqlOutbox(engine).relay(mq, stop))
        for number in range(10):
            await order(engine, f"o-{number}")
        await mq.send("orders", b"o-3", properties={ONCE_ID: "o-3"})  # as a relay does that crashed before
        print(await billed(engine), "bills for 10 orders and 11 messages")
        stop.set()
        await relaying
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def billed(engine: AsyncEngine) -> int:
    """Wait until there are ten bills, and a moment longer."""
    count = 0
    while count < 10:
        await asyncio.sleep(0.5)
        async with engine.connect() as connection:
            count = (await connection.execute(sa.select(sa.func.count()).select_from(bills))).scalar_one()
    return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(create_async_engine(f"sqlite+aiosqlite:///{folder}/shop.db")))
