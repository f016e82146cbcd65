"""What a slave takes from its master beside the log: topics, groups, how far they have consumed, delay progress.

    every ten seconds, and when its log is followed    GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                                                       GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET
    the master is gone                                 what was taken last stays, and is served from
    its log differs from ours (replica.py)             nothing is taken: it is not our master

A topic that the master does not know any more takes its queues with it, but only those whose last message was here
before the master was asked: a later one may be of a new topic of that name. Unlike Java, whose slaves keep such queues,
and lose the messages of the new topic.
Source: SlaveSynchronize, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.later.delay import DelayedDelivery
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.requests.admin_headers import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
)
from sparrowmq.protocol.requests.bodies import (
    ConsumerOffsets,
    DelayOffsets,
    GroupConfigTable,
    TopicConfigTable,
)
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

PERIOD_S: Final = 10.0
TIMEOUT_S: Final = 3.0


class Mirror:
    """Takes a master's topics, groups and offsets for as long as the slave runs.

    Args:
        is_ours: whether the master's log is found to be ours, too.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        delayed: DelayedDelivery,
        pool: Pool,
        clock: Clock,
        is_ours: Callable[[], bool],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delayed = delayed
        self._pool = pool
        self._clock = clock
        self._is_ours = is_ours
        self._address = ""
        self._found = asyncio.Event()
        self._told = ""

    def part(self) -> Part:
        """It asks while the slave runs."""
        return Part(tasks=(Task("mirror", self.run),))

    def use(self, address: str) -> None:
        """The master is there, says a name server; "" if none knows one."""
        if address != self._address:
            self._address = address
            self.wake()

    def wake(self) -> None:
        """Ask now, and not in the next period."""
        self._found.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._found.clear()
            if self._address and self._is_ours():
                await self._ask(self._address)
            with suppress(TimeoutError):
                await self._clock.wait_for(self._found.wait(), PERIOD_S)

    async def _ask(self, address: str) -> None:
        try:
            session = await self._pool.session(address)
            await self._take_topics(session)
            groups = await session.call(GetAllSubscriptionGroup(), timeout_s=TIMEOUT_S)
            self._groups.follow(GroupConfigTable.decode(groups.body))
            offsets = await session.call(GetAllConsumerOffset(), timeout_s=TIMEOUT_S)
            self._offsets.follow(ConsumerOffsets.decode(offsets.body))
            delays = await session.call(GetAllDelayOffset(), timeout_s=TIMEOUT_S)
            if delays.body:
                self._delayed.follow(DelayOffsets.decode(delays.body))
        except SparrowError as error:
            self._note(address, str(error))
        else:
            self._note(address, "")

    async def _take_topics(self, session: Session) -> None:
        end = self._store.end
        answer = await session.call(GetAllTopicConfig(), timeout_s=TIMEOUT_S)
        told = TopicConfigTable.decode(answer.body)
        self._topics.follow(told)
        last: dict[str, int] = {}
        for queue in self._store.queues:
            topic = queue.topic
            if topic not in told.topic_config_table and not is_system_topic(topic):
                last[topic] = max(last.get(topic, 0), queue.last_entry()[0])
        for topic, offset in last.items():
            if offset < end:
                log.info("topic %s is deleted, as its master says", topic)
                self._store.delete_topic(topic)

    def _note(self, address: str, problem: str) -> None:
        """Log what changed, once."""
        if problem and problem != self._told:
            log.warning(
                "topics, groups and offsets cannot be taken from the master at %s, trying every %g s: %s",
                *(address, PERIOD_S, problem),
            )
        elif self._told and not problem:
            log.info("topics, groups and offsets are taken from the master at %s again", address)
        self._told = problem
