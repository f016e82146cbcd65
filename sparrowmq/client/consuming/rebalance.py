"""Rebalance: every member computes the owners of all queues for itself, from the same two lists.

    route of the topic          -> all queues    \\
                                                   allocate -> mine -> diff with what I have -> drop, add
    members of the group (38)   -> all members   /

It repeats every 20 s, and at once when the broker reports new members (40) or a route changed. It repeats within a
second while something is missing: a route, a broker, or the lock of a queue's former owner. If either list cannot be
read, every member keeps its queues. Source: RebalanceImpl and RebalanceService, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from typing import Final

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.routes import Route
from sparrowmq.errors import AccessDenied, ConfigError, NoRoute, RemoteError, SparrowError
from sparrowmq.protocol.allocation import Strategy
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests.bodies import TopicList
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.protocol.requests.headers import GetConsumerListByGroup
from sparrowmq.protocol.requests.namesrv_headers import GetAllTopicListFromNameserver
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)
PERIOD_S: Final = 20.0
FIRST_PAUSE_S: Final = 0.05  # the first pause while something is missing; doubles up to
MAX_PAUSE_S: Final = 1.0


class Verdict(IntEnum):
    """The outcome of a round; the greater, the worse."""

    DONE = 0
    NO_TOPIC = 1
    TROUBLE = 2


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The steps to own the wanted queues, in order."""

    drop: list[MessageQueue]
    add: list[MessageQueue]


def diff(own_queues: Collection[MessageQueue], wanted_queues: Collection[MessageQueue]) -> QueueChange:
    own, wanted = frozenset(own_queues), frozenset(wanted_queues)
    return QueueChange(sorted(own - wanted), sorted(wanted - own))


def _checked_allocation(allocated: object, topic: str) -> list[MessageQueue]:
    """The queues of a topic that a strategy gave; it may give those of others too. Raises: ConfigError, no queues."""
    items = list(allocated) if isinstance(allocated, Iterable) else [allocated]
    queues = [item for item in items if isinstance(item, MessageQueue)]
    if len(queues) < len(items):
        raise ConfigError(f"the strategy of the consumer returned {allocated!r}; return a list of queues")
    return [queue for queue in queues if queue.topic == topic]


class Rebalancer:
    """Decides, again and again, which queues this member owns.

    Args:
        apply: takes over the queues of a topic; returns whether it has all of them.
        strategy: None gives every queue to every member: broadcasting.
        before_round: called before a round that `request_round` asked for.
    """

    def __init__(
        self,
        group: str,
        network: Network,
        topics: Callable[[], Collection[str]],
        apply: Callable[[str, Collection[MessageQueue]], Awaitable[bool]],
        strategy: Strategy | None,
        before_round: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._group = group
        self._network = network
        self._topics = topics
        self._apply = apply
        self._strategy = strategy
        self._before_round = before_round
        self._round_due = asyncio.Event()
        self._failing_topics: set[str] = set()
        self._missing_topics: set[str] = set()
        self.first_round = asyncio.Event()

    def request_round(self) -> None:
        """Do not wait for the next regular round."""
        self._round_due.set()

    async def run(self) -> None:
        """Rebalance until cancelled. Raises: AccessDenied, or ConfigError of the strategy."""
        pause_s = FIRST_PAUSE_S
        await self._network.brokers.announce()
        while True:
            self._round_due.clear()
            verdict = await self.run_round()
            pause_s = PERIOD_S if verdict is Verdict.DONE else min(pause_s * 2, MAX_PAUSE_S)
            if verdict is not Verdict.TROUBLE:
                self.first_round.set()
            try:
                await self._network.clock.wait_for(self._round_due.wait(), pause_s)
                pause_s = FIRST_PAUSE_S
            except TimeoutError:
                pause_s = FIRST_PAUSE_S if verdict is Verdict.DONE else pause_s
            else:
                if self._before_round is not None:
                    await self._before_round()

    async def run_round(self) -> Verdict:
        """Rebalance every topic once, and return the worst outcome."""
        verdicts = [await self._rebalance(topic) for topic in list(self._topics())]
        return max(verdicts, default=Verdict.DONE)

    async def _rebalance(self, topic: str) -> Verdict:
        try:
            queues = await self._allocate(topic)
        except ConfigError:
            raise
        except SparrowError as error:
            return await self._verdict_of_error(topic, error)
        try:
            has_all = await self._apply(topic, queues)
        except SparrowError as error:
            return await self._verdict_of_error(topic, error)
        self._failing_topics.discard(topic)
        self._missing_topics.discard(topic)
        return Verdict.DONE if has_all else Verdict.TROUBLE

    async def _verdict_of_error(self, topic: str, error: SparrowError) -> Verdict:
        if isinstance(error, NoRoute):
            await self._warn_of_missing(topic)
            return Verdict.NO_TOPIC
        if isinstance(error, AccessDenied):
            raise error
        level = logging.DEBUG if topic in self._failing_topics else logging.WARNING
        log.log(level, "group %s cannot share out topic %s, trying again: %s", self._group, topic, error)
        self._failing_topics.add(topic)
        return Verdict.TROUBLE

    async def _warn_of_missing(self, topic: str) -> None:
        """Log once that a topic does not exist, with similar names. Brokers make the retry topic."""
        if topic in self._missing_topics or topic.startswith(RETRY):
            return
        self._missing_topics.add(topic)
        try:
            answer = await self._network.name_servers.call(GetAllTopicListFromNameserver())
            names = TopicList.decode(answer.body).topic_list
            similar_names = get_close_matches(topic, [name for name in names if not name.startswith("%")])
        except SparrowError:
            similar_names = []
        hint = f"; did you mean {' or '.join(similar_names)}?" if similar_names else ""
        log.warning("group %s waits for topic %s, which does not exist%s", self._group, topic, hint)

    async def _allocate(self, topic: str) -> list[MessageQueue]:
        route = await self._network.routes.of(topic)
        if self._strategy is None:
            return list(route.readable)
        members = await self._members(route)
        return _checked_allocation(self._strategy(route.readable, members, self._network.client_id), topic)

    async def _members(self, route: Route) -> list[str]:
        """The members of the group, from any broker of the topic.

        Raises: SparrowError, none answered. A broker that does not know us has no heartbeat of ours, and gets another.
        """
        brokers = self._network.brokers
        failure: SparrowError = NoRoute(route.topic, "any broker")
        for broker_name in route.brokers:
            try:
                session = await brokers.of(broker_name)
            except SparrowError as error:
                failure = error
                continue
            try:
                members = await self._members_at(session)
                if self._network.client_id not in members:  # We would get no queue, and no error.
                    await brokers.announce()
                    if denial := brokers.denial(session):
                        raise denial
                    members = await self._members_at(session)
                return members
            except AccessDenied:
                raise
            except RemoteError as error:
                failure = brokers.denial(session) or error
                await brokers.announce()
            except SparrowError as error:
                failure = error
        raise failure

    async def _members_at(self, session: Session) -> list[str]:
        answer = await session.call(GetConsumerListByGroup(consumer_group=self._group))
        return ConsumerList.decode(answer.body).consumer_id_list
