"""A typed handler with a retry policy, an effect that happens once, and its test with a real broker.

pip install ".[sql,testing]"
pytest -c /dev/null examples/apps/test_newcomer.py
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from sparrowmq import Client, InvalidMessage, Retry
from sparrowmq.once import idempotent, sql

bills = sa.Table("bills", sql.metadata, sa.Column("order_id", sa.Text), sa.Column("amount", sa.Integer))


@dataclass
class Order:
    id: str
    amount: int


def declare_billing(mq: Client, topic: str, engine: sa.Engine) -> None:
    @mq.handler(topic, group="billing", ordered=True, retry=Retry("1s", "10s", "30s", never=InvalidMessage))
    @idempotent(sql.SqlStore(engine), name="billing", key=lambda message: message.json()["id"])
    def bill(order: Order, connection: sa.Connection) -> None:
        connection.execute(sa.insert(bills), {"order_id": order.id, "amount": order.amount})


@pytest.mark.asyncio
async def test_each_order_is_billed_once(rocketmq: Client, rocketmq_topic: str, tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    sql.metadata.create_all(engine)
    declare_billing(rocketmq, rocketmq_topic, engine)
    serving = asyncio.create_task(rocketmq.serve())
    for order in ("1", "1", "2"):
        await rocketmq.send(rocketmq_topic, b'{"id": "%b", "amount": 5}' % order.encode(), fifo="customer")
    found: list[str] = []
    while "2" not in found:
        await asyncio.sleep(0.05)
        with engine.connect() as connection:
            found = list(connection.execute(sa.select(bills.c.order_id)).scalars())
    assert serving.cancel() and found == ["1", "2"]
