"""The conditions that brokers tell."""

from __future__ import annotations

import asyncio

from sparrowmq.admin.findings import reported_conditions
from sparrowmq.broker.broker import Broker
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.remoting.pool import Pool


async def conditions_of(address: str) -> set[str]:
    """The names of the conditions in a brokerStatus."""
    pool = Pool(SystemClock())
    try:
        answer = await (await pool.session(address)).call(GetBrokerRuntime())
        return set(reported_conditions(KVTable.decode(answer.body).table))
    finally:
        pool.close()


async def shows(broker: Broker, *names: str) -> None:
    """Return once the broker shows these conditions, and no others."""
    async with asyncio.timeout(20):
        while await conditions_of(broker.address) != set(names):
            await asyncio.sleep(0.05)
