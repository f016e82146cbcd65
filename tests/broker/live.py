"""A whole broker on a real socket, and requests to it in few words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply, SendMessageReply, SendMessageV2
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster

BORN_MS = 1_795_144_375_341
SUBSCRIPTION, SUSPEND, COMMIT = 4, 2, 1


@dataclass
class Live:
    """A running broker and a connection to it."""

    broker: Broker
    session: Session
    cluster: Cluster

    async def send(
        self,
        body: bytes = b"body",
        topic: str = "orders",
        queue_id: int = 0,
        properties: dict[str, str] | None = None,
        **fields: Any,
    ) -> SendMessageReply:
        return (await self.session.call(send_request(topic, queue_id, properties, **fields), body)).header

    async def pull(
        self, topic: str = "orders", queue_id: int = 0, offset: int = 0, **fields: Any
    ) -> Response[PullMessageReply]:
        request = pull_request(topic, queue_id, offset, **fields)
        return await self.session.call(request, accept={19, 20, 21}, timeout_s=30)

    async def messages(self, topic: str = "orders", queue_id: int = 0, **fields: Any) -> list[StoredMessage]:
        """What one pull from the beginning of a queue brings."""
        return decoded(await self.pull(topic, queue_id, **fields))


def send_request(
    topic: str = "orders", queue_id: int = 0, properties: dict[str, str] | None = None, **fields: Any
) -> SendMessageV2:
    usual: dict[str, Any] = {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        "properties": render(properties or {}),
    }
    return SendMessageV2(**(usual | fields))


def pull_request(topic: str = "orders", queue_id: int = 0, offset: int = 0, **fields: Any) -> PullMessage:
    usual: dict[str, Any] = {
        "consumer_group": "consumers",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "sub_version": 0,
        "subscription": "*",
    }
    return PullMessage(**(usual | fields))


def decoded(response: Response[PullMessageReply]) -> list[StoredMessage]:
    return [record.decode(view) for view in record.walk(response.body)]


@asynccontextmanager
async def live_broker(path: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Live]:
    """A cluster of one broker, and a session to that broker."""
    pool = Pool(SystemClock())
    async with Cluster(path, clock=clock, **settings) as cluster:
        try:
            session = await pool.session(cluster.brokers[0].address)
            yield Live(cluster.brokers[0], session, cluster)
        finally:
            pool.close()
