"""Consumes topics as a member of a group: messages come by themselves, and are acknowledged one by one.

    async with mq.subscribe("orders", group="billing", tag="paid") as orders:
        async for msg in orders:
            async with msg.process():
                await bill(msg.json())

    async with mq.subscribe("orders", bill, group="billing", concurrency=16) as orders:
        await orders.closed()            # until cancelled; `bill` is called for each message

Behind it: `rebalance` decides which queues are ours, `assignment` owns them, `pulling` pulls each, `concurrently`
or `orderly` delivers, and what is settled is committed every 5 s and at the end.
Source: DefaultMQPushConsumerImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Final

from sparrowmq.background import Background
from sparrowmq.client.cluster.membership import Membership
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.assignment import Assignment
from sparrowmq.client.consuming.concurrently import Concurrently
from sparrowmq.client.consuming.inbox import InboxClosed
from sparrowmq.client.consuming.offset_store import BrokerOffsets, LocalOffsets, OffsetStore
from sparrowmq.client.consuming.orderly import Orderly
from sparrowmq.client.consuming.queue_locks import RENEW_S, QueueLocks
from sparrowmq.client.consuming.rebalance import Rebalancer
from sparrowmq.client.consuming.received import Handling, ReceivedMessage
from sparrowmq.client.consuming.retries import Retries
from sparrowmq.client.consuming.settings import ConsumerSettings, subscription
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import retry_topic
from sparrowmq.protocol.requests.bodies import ConsumerBeat, ConsumerRunning
from sparrowmq.protocol.requests.headers import UnregisterClient
from sparrowmq.protocol.subscription import Subscription

log = logging.getLogger(__name__)

Handler = Callable[[ReceivedMessage], Awaitable[None] | None]
BatchHandler = Callable[[list[ReceivedMessage]], Awaitable[None] | None]

COMMIT_S: Final = 5.0
FIRST_ROUND_S: Final = 5.0
LEAVE_S: Final = 3.0


class Consumer:
    """A member of a consumer group. Made by `Client.subscribe`; use it as an async context manager.

    Entering waits, for at most 5 s, until the queues are shared out; without any broker it starts all the same
    and goes on trying. Leaving lets running handlers finish, commits, and tells the group at once. Left by an
    exception or a cancellation it does not wait for handlers; what they had not finished is delivered again.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        subscriptions: Mapping[str, Subscription],
        network: Network,
        membership: Membership,
        outbox: Outbox,
        handler: Handler | BatchHandler | None = None,
    ) -> None:
        self.group = settings.group
        self._settings = settings
        self._network = network
        self._membership = membership
        self._handler = handler
        self._subscriptions = dict(subscriptions)
        if not settings.broadcast:
            retried = retry_topic(self.group)
            self._subscriptions[retried] = subscription(retried, None, None, network.clock.now_ms())
        self._background = Background()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._rest: deque[ReceivedMessage] = deque()
        self._ended = asyncio.Event()
        self._started_ms = network.clock.now_ms()
        self._delivery = self._make_delivery(outbox)
        self._assignment = self._make_assignment()
        self._rebalancer = Rebalancer(
            self.group,
            network,
            self._topics,
            self._apply,
            None if settings.broadcast else settings.strategy,
        )

    # Taking messages ------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message; several tasks may iterate, each message goes to one. Cancelling takes none."""
        if not self._rest:
            self._rest.extend(await self.take())
            if not self._rest:
                raise StopAsyncIteration
        return self._rest.popleft()

    async def take(self, max_count: int = 1) -> list[ReceivedMessage]:
        """The next messages: waits for one, and adds what is there already. None when the consumer was left.

        In order, all of them are of one queue, and at most `batch`.
        """
        try:
            return await self._delivery.take(max_count)
        except InboxClosed:
            return []

    async def batches(self) -> AsyncIterator[list[ReceivedMessage]]:
        """Messages in portions of at most `batch`."""
        while portion := await self.take(self._settings.batch or 1):
            yield portion

    async def closed(self) -> None:
        """Return when the consumer was left; its handlers run meanwhile."""
        await self._ended.wait()

    def handle_in_threads(self) -> None:
        """Call a handler that may block in threads, `concurrency` of them; before the consumer is entered."""
        handler: Callable[[Any], object] | None = self._handler
        if handler is not None:
            self._handler = functools.partial(_call_in_thread, handler)

    # Changing what is consumed --------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, tag: str | None = None, *, where: str | None = None) -> None:
        """Consume one more topic. All members of the group must do the same."""
        self._subscriptions[topic] = subscription(topic, tag, where, self._network.clock.now_ms())
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more. All members of the group must do the same."""
        self._subscriptions.pop(topic, None)
        await self._subscriptions_changed()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are this member's now, those of the retry topic too."""
        return self._assignment.queues

    async def commit(self) -> None:
        """Commit what is settled now, instead of within 5 s."""
        await self._assignment.commit()

    # Life -----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Consumer:
        self._membership.add_consumer(self)
        await self._background.__aenter__()
        try:
            self._start()
            await self._network.clock.wait_for(self._rebalancer.first_round.wait(), FIRST_ROUND_S)
        except TimeoutError:
            log.warning("group %s has no queues yet; it goes on trying", self.group)
        except BaseException:
            await self._leave()
            await self._background.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._assignment.stop_pulling()
            self._delivery.close()
            if kind is None and self._workers:
                await self._finish_handlers()
            await self._leave()
        finally:
            self._ended.set()
            await self._background.__aexit__(kind, error, trace)

    def _start(self) -> None:
        spawn = self._background.spawn
        self._network.routes.watch(self._rebalancer.soon)
        self._tasks.append(spawn(self._rebalancer.run(), f"rebalance {self.group}"))
        self._tasks.append(spawn(self._commit_now_and_then(), f"commit {self.group}"))
        if self._assignment.locks is not None:
            self._tasks.append(spawn(self._renew_locks(), f"lock {self.group}"))
        if self._handler is not None:
            for _ in range(self._settings.concurrency):
                self._workers.append(spawn(self._work(self._handler), f"handle {self.group}"))

    async def _finish_handlers(self) -> None:
        try:
            await self._network.clock.wait_for(asyncio.wait(self._workers), self._settings.grace_s)
        except TimeoutError:
            log.warning("handlers of group %s are cut short; their messages come again", self.group)

    async def _leave(self) -> None:
        """Commit, free the locks, tell the brokers: in this order, so that nobody takes over too early."""
        self._network.routes.unwatch(self._rebalancer.soon)
        for task in self._tasks:
            task.cancel()
        try:
            await self._network.clock.wait_for(self._assignment.close(), LEAVE_S)
        except TimeoutError:
            log.warning("group %s could not commit everything; some messages come again", self.group)
        self._membership.remove_consumer(self)
        await self._network.brokers.tell_all(
            UnregisterClient(client_id=self._network.client_id, consumer_group=self.group)
        )

    async def _commit_now_and_then(self) -> None:
        while True:
            await self._network.clock.sleep(COMMIT_S)
            await self._assignment.commit()

    async def _renew_locks(self) -> None:
        while True:
            await self._network.clock.sleep(RENEW_S)
            await self._assignment.renew_locks()

    async def _work(self, handler: Callable[[Any], Awaitable[None] | None]) -> None:
        """Handle messages until there are no more. What a handler raises is dealt with by `Handling`."""
        is_single = self._settings.batch is None
        while portion := await self.take(self._settings.batch or 1):
            async with Handling(portion):
                result = handler(portion[0] if is_single else portion)
                if inspect.isawaitable(result):
                    await result

    async def _subscriptions_changed(self) -> None:
        await self._network.brokers.announce()
        self._rebalancer.soon()

    # What brokers ask -----------------------------------------------------------------------------------------------

    def beat(self) -> ConsumerBeat:
        """Our part of a heartbeat."""
        return ConsumerBeat(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self._settings.broadcast else "CLUSTERING",
            consume_from_where=self._settings.consume_from_where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        """Somebody joined or left the group: share out anew."""
        self._rebalancer.soon()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved the group to other offsets."""
        log.warning("group %s was moved to other offsets: %s", self.group, _texts(offsets))
        await self._assignment.restart(offsets)

    def running(self) -> ConsumerRunning:
        """What the consumer is doing, for an operator; the settings by Java's names."""
        return ConsumerRunning(
            properties={
                "PROP_CLIENT_VERSION": "V4_9_8",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": str(self._settings.ordered).lower(),
                "PROP_NAMESERVER_ADDR": str(self._network.name_servers),
                "PROP_THREADPOOL_CORE_SIZE": str(self._settings.concurrency),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table=self._assignment.report(),
        )

    # Putting the parts together -------------------------------------------------------------------------------------

    def _make_delivery(self, outbox: Outbox) -> Concurrently | Orderly:
        settings, clock, spawn = self._settings, self._network.clock, self._background.spawn
        retries = None
        if not settings.broadcast:
            retries = Retries(self.group, settings.reconsume_times, self._network.brokers, outbox)
        if settings.ordered:
            return Orderly(
                settings.batch or 1, retries, settings.reconsume_times, not settings.broadcast, clock, spawn
            )
        return Concurrently(retries, clock, spawn)

    def _make_assignment(self) -> Assignment:
        settings, network = self._settings, self._network
        locks = None
        if settings.ordered and not settings.broadcast:
            locks = QueueLocks(self.group, network.client_id, network.brokers)
        return Assignment(
            settings,
            network,
            self._offsets(),
            self._delivery,
            self._background.spawn,
            self._subscriptions,
            locks,
        )

    def _offsets(self) -> OffsetStore:
        if not self._settings.broadcast:
            return BrokerOffsets(self.group, self._network.brokers)
        client = f"{self._network.ip}@{self._network.instance}"
        return LocalOffsets(self._settings.offset_folder / client / self.group / "offsets.json")

    def _topics(self) -> Collection[str]:
        """What is subscribed, and what was until now."""
        return {*self._subscriptions, *(queue.topic for queue in self._assignment.queues)}

    async def _apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        return await self._assignment.apply(topic, queues if topic in self._subscriptions else ())


async def _call_in_thread(handler: Callable[[Any], object], delivered: Any) -> None:
    loop = asyncio.get_running_loop()
    for message in delivered if isinstance(delivered, list) else (delivered,):
        message.settle_in(loop)
    await asyncio.to_thread(handler, delivered)


def _texts(offsets: Mapping[MessageQueue, int]) -> str:
    return ", ".join(f"{queue} to {offset}" for queue, offset in offsets.items())
