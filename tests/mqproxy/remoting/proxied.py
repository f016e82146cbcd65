"""Brokers behind the remoting port of `mqproxy`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sparrowmq import Credentials, connect
from sparrowmq.loop.clock import SystemClock
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.protocol.requests.headers import GetConsumerListByGroup
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import Cluster


class Proxied(NamedTuple):
    """A cluster, and the port in front of it."""

    cluster: Cluster
    proxy: Proxy

    @property
    def address(self) -> str:
        return self.proxy.remoting_address

    async def members(self, group: str) -> list[set[str]]:
        """The ids of the group's members, as each broker knows them."""
        return [await members_at(broker.address, group) for broker in self.cluster.brokers]


@asynccontextmanager
async def proxied(
    path: Path, brokers: int = 2, operator: Credentials | None = None, **settings: Any
) -> AsyncIterator[Proxied]:
    """A cluster with the topic `orders` of two queues on each broker, and mqproxy without an account."""
    async with Cluster(path, brokers=brokers, **settings) as cluster:
        async with connect(cluster.namesrv, credentials=operator) as mq:
            await mq.admin.create_topic("orders", queues=2)
        async with Proxy(ProxySettings(port=0, remoting_port=0), cluster.namesrv) as proxy:
            yield Proxied(cluster, proxy)


async def members_at(broker: str, group: str) -> set[str]:
    """The ids of the group's members that the broker at an address knows."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(broker)
        answer = await session.call(GetConsumerListByGroup(group), accept=(1,))
        return set(ConsumerList.decode(answer.body).consumer_id_list) if answer.code == 0 else set()
    finally:
        pool.close()


async def until(holds: Callable[[], Awaitable[object] | object], limit_s: float = 60.0) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(limit_s):
        while True:
            found = holds()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)
