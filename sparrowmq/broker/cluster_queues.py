"""The queues of a topic at all brokers of the cluster, as a name server says.

A broker that shares queues among members needs them. It asks when a member asks, and keeps the answer for a while: each
member asks every 20 seconds. While no name server answers, the last answer stays in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.bodies import TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.remoting.pool import Pool

KEPT_S: Final = 5.0
TIMEOUT_S: Final = 3.0
MOST_TOPICS: Final = 10_000


class ClusterQueues:
    """Ask name servers for the queues that may be read.

    Args:
        namesrv: the addresses; one that answers is enough.
    """

    def __init__(self, namesrv: Sequence[str], pool: Pool, clock: Clock) -> None:
        self._namesrv = namesrv
        self._pool = pool
        self._clock = clock
        self._cached: dict[str, tuple[float, list[MessageQueue]]] = {}

    async def of(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic in order; None if no name server knows it, or none has ever answered."""
        now = self._clock.monotonic()
        known = self._cached.get(topic)
        if known is not None and now - known[0] < KEPT_S:
            return known[1]
        for address in self._namesrv:
            try:
                session = await self._pool.session(address)
                answer = await session.call(GetRoute(topic, accept_standard_json_only=True), timeout_s=TIMEOUT_S)
            except RemoteError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._cached.pop(topic, None)
                    return None
            except SparrowError:
                continue
            else:
                queues = queues_of(topic, TopicRoute.decode(answer.body))
                self._keep(topic, now, queues)
                return queues
        return known[1] if known is not None else None

    def _keep(self, topic: str, now: float, queues: list[MessageQueue]) -> None:
        self._cached.pop(topic, None)
        self._cached[topic] = (now, queues)
        if len(self._cached) > MOST_TOPICS:
            del self._cached[next(iter(self._cached))]  # the one that was asked for first


def queues_of(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the queues of a route that may be read, at brokers with an address."""
    brokers = {each.broker_name for each in route.broker_datas if each.broker_addrs}
    return [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in sorted(route.queue_datas, key=lambda row: row.broker_name)
        if row.perm & Perm.READ and row.broker_name in brokers
        for queue_id in range(row.read_queue_nums)
    ]
