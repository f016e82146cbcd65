"""A broker whose last messages left its log, as those of a former master do, and that goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparrowmq.client.client import Client
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing.background import BackgroundCluster

# Sends messages; returns the offset id of the first one that leaves the log.
Sends = Callable[[Client], Coroutine[Any, Any, str]]


def fork(path: Path, sends: Sends) -> Path:
    """Let a broker store messages, then cut its log at one of them; return the piece that is set aside."""
    with BackgroundCluster(path) as cluster:
        settings = cluster.cluster.brokers[0].settings.store(0)

        async def run() -> str:
            async with Client(cluster.namesrv, group="shop") as mq:
                await mq.admin.create_topic("orders", queues=2)
                await mq.admin.create_group("billing")
                return await sends(mq)

        at = parse_offset_id(cluster.run(run())).physical_offset
    MessageStore.open(settings, cut_at=at).close()
    (piece,) = (Path(settings.path) / "set-aside").glob("*.forked")
    return piece


@contextmanager
def going_on(path: Path, **settings: Any) -> Iterator[BackgroundCluster]:
    """The same broker, without what it lost."""
    with BackgroundCluster(path, **settings) as cluster:
        yield cluster


def bodies(cluster: BackgroundCluster, count: int, group: str = "reader") -> list[bytes]:
    """Consume messages of `orders` until there are so many, and no more come; return their bodies in their order."""

    async def run() -> list[bytes]:
        found: list[bytes] = []
        async with (
            Client(cluster.namesrv) as mq,
            mq.pull_consumer(group=group, start="earliest") as reader,
        ):
            reader.assign(await reader.queues("orders"))
            await reader.seek_to_beginning()
            while few := await reader.poll(100, 10.0 if len(found) < count else 0.3):
                found += [each.body for each in few]
        return found

    return cluster.run(run())
