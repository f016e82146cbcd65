"""A client that looks at the state of the master all the time: what was acknowledged may at no time be forgotten.

The end of a run shows only the state that came last. An operation that was forgotten may have been done again since.
So the client looks at everything after each change of the master.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sparrowmq.client.client import Client
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetTopicConfig
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import QueryConsumerOffset
from tests.simulation.history import ORDERS, QUEUES

if TYPE_CHECKING:
    from tests.simulation.workload import Workload

K = TypeVar("K", bound=Hashable)
_MEAN_S: Final = 1.5


class Watcher:
    """The program of one watcher."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._history = workload.history
        self._rng = workload.rng

    async def run(self, mq: Client) -> None:
        """Look at a topic and at an offset now and then, until the run is over."""
        workload, looked_at = self._workload, None
        while not workload.is_over:
            await workload.pause(_MEAN_S)
            master, topics, queues = workload.cluster.serving_master, workload.topics, list(range(QUEUES))
            is_new = master is not None and master != looked_at
            if not is_new:
                topics, queues = [self._rng.choice(topics)], [self._rng.choice(queues)]
            try:
                for name in topics:
                    await self._look_at_topic(mq, name)
                for queue in queues:
                    await self._look_at_offset(mq, ("readers", queue))
                looked_at = master
            except SparrowError as error:
                workload.log(error)

    async def _look_at_topic(self, mq: Client, name: str) -> None:
        await self._compare(partial(self._queues, mq, name), self._history.topics, name, self._history.check_topic)

    async def _look_at_offset(self, mq: Client, key: tuple[str, int]) -> None:
        await self._compare(partial(self._offset, mq, *key), self._history.offsets, key, self._history.check_offset)

    async def _compare(
        self,
        look: Callable[[], Awaitable[tuple[str, int]]],
        known: Mapping[K, set[int]],
        key: K,
        check: Callable[[K, int], None],
    ) -> None:
        """Look, and check what was seen, unless an operation or another master came between."""
        master, before = self._workload.cluster.serving_master, set(known.get(key, ()))
        ip, found = await look()
        is_same = before and known.get(key) == before and self._workload.cluster.serving_master == master
        if is_same and master is not None and self._workload.cluster.members[master].ip == ip:
            check(key, found)

    async def _queues(self, mq: Client, name: str) -> tuple[str, int]:
        session = await self._workload.session(mq)
        answer = await session.call(GetTopicConfig(name), accept={ResponseCode.TOPIC_NOT_EXIST})
        count = TopicConfig.decode(answer.body).read_queue_nums if answer.code == ResponseCode.SUCCESS else 0
        return session.address.partition(":")[0], count

    async def _offset(self, mq: Client, group: str, queue: int) -> tuple[str, int]:
        session = await self._workload.session(mq)
        answer = await session.call(QueryConsumerOffset(group, ORDERS, queue), accept={ResponseCode.QUERY_NOT_FOUND})
        offset = answer.header.offset if answer.code == ResponseCode.SUCCESS else 0
        return session.address.partition(":")[0], offset
