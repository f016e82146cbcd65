"""Consumes topics as a member of a group: messages arrive by themselves, and are acknowledged one by one.

    async with mq.subscribe("orders", group="billing", tag="paid") as orders:
        async for msg in orders:
            async with msg.process():    # acknowledged at its end; if it raises, delivered again, and raised here
                await bill(msg.json())

    async with mq.subscribe("orders", bill, group="billing", concurrency=16) as orders:
        await orders.closed()            # until cancelled; `bill` is called for each message

`rebalance` chooses this member's queues, `assignment` owns them, `pulling` pulls each, `delivery` delivers, and
`workers` call the handler. Settled messages are committed every 5 s and at the end.
Source: DefaultMQPushConsumerImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from threading import get_ident
from types import TracebackType
from typing import Final

from sparrowmq.client.arguments import check_count
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.assignment import RENEW_AGAIN_S, RENEW_S, Assignment, QueueLocks
from sparrowmq.client.consuming.consume_rate import ConsumeStats
from sparrowmq.client.consuming.consumer_settings import (
    MAX_CONCURRENCY,
    ConsumerSettings,
    consume_from_where,
    subscription,
)
from sparrowmq.client.consuming.delivery import ConcurrentDelivery, InboxClosed, OrderedDelivery
from sparrowmq.client.consuming.offset_store import log_reset, offset_store_of
from sparrowmq.client.consuming.rebalance import Rebalancer
from sparrowmq.client.consuming.received_message import ConsumeHooks, DetachedOwner, ReceivedMessage
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.consuming.workers import Workers, deliver_once
from sparrowmq.client.loop_affinity import checks_loop
from sparrowmq.client.sending.send_queue import SendQueue
from sparrowmq.client.tracebacks import short_traceback, shortened
from sparrowmq.errors import AccessDenied, ClientClosed, ConfigError, RemoteError, SparrowError
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.allocation import strategy_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import retry_topic
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerBeat, ConsumerRunning
from sparrowmq.protocol.subscription import Subscription

log = logging.getLogger(__name__)
Handler = Callable[[ReceivedMessage], object]
BatchHandler = Callable[[list[ReceivedMessage]], object]
COMMIT_PERIOD_S: Final = 5.0
FIRST_ROUND_LIMIT_S: Final = 5.0
LEAVE_LIMIT_S: Final = 3.0
GIVE_BACK_LIMIT_S: Final = 3.0


@checks_loop(without=("take", "batches"))
class Consumer:
    """A member of a consumer group. Made by `Client.subscribe`; use it as an async context manager.

    Entering waits at most 5 s for the first queues; without any broker it starts all the same and goes on trying.
    Leaving lets running handlers finish, waits until failed messages are given back, commits, and leaves the group at
    once. After an exception or a cancellation it does not wait for handlers; their messages are delivered again.

    `group` is without the client's namespace, `full_group` as brokers know it. Iterating, `take`, `closed` and leaving
    the consumer raise ConfigError if the broker cannot do its filter, and ClientClosed if its client is left before it.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        subscriptions: Mapping[str, Subscription],
        network: Network,
        send_queue: SendQueue,
        handler: Handler | BatchHandler | None = None,
        *,
        hooks: Sequence[ConsumeHooks] = (),
    ) -> None:
        self.group = network.plain_name(settings.group)
        self.full_group = settings.group
        self._settings = settings
        self._network = network
        self._loop_affinity = network.loop_affinity
        self._handler = handler
        self._hooks = hooks
        self._concurrency = settings.concurrency
        self._subscriptions = dict(subscriptions)
        if not settings.broadcast:
            retried = retry_topic(self.full_group)
            self._subscriptions[retried] = subscription(retried, None, None, network.clock.now_ms())
        self._background = Background()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: Workers | None = None
        self._taken_messages: deque[ReceivedMessage] = deque()
        self._was_entered = False
        self._ended = asyncio.Event()
        self._failure: SparrowError | None = None
        self._started_ms = network.clock.now_ms()
        self._stats = ConsumeStats(network.clock)
        self._delivery = self._make_delivery(send_queue)
        self._take_nowait = self._delivery.take_nowait
        self._next_nowait = self._delivery.next_nowait  # a look-up less for each message
        self._delivery.close()  # until it is entered
        self._assignment = self._make_assignment()
        self._rebalancer = Rebalancer(
            self.full_group,
            network,
            lambda: dict.fromkeys([*self._subscriptions, *(queue.topic for queue in self._assignment.queues)]),
            self._apply,
            None if settings.broadcast else strategy_of(settings.strategy),
            self._assignment.commit,  # A new member takes over at the present offsets, not at those of 5 s ago.
        )

    @property
    def _is_quick(self) -> bool:
        """Whether a blocking program may take many messages at once, before it handles the first."""
        return True

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """The next message; several tasks may iterate, each message goes to one. Cancelling takes none."""
        if get_ident() != self._loop_affinity.thread:
            self._loop_affinity.check()
        message = self._next_nowait()
        if message is not None:  # nearly always
            return message
        while self._taken_messages:
            message = self._taken_messages.popleft()
            if message.is_current:
                return message
        taken = self._take_nowait(1) or await self.take()
        if not taken:
            raise StopAsyncIteration
        self._taken_messages.extend(taken[1:])
        return taken[0]

    async def take(self, max_count: int = 1) -> list[ReceivedMessage]:
        """Wait for a message, and return it with the others that are here. Return none when the consumer was left.

        An ordered consumer returns at most `batch` messages, of one queue.
        Raises: ClientClosed, the consumer was not entered, or its client was left; ConfigError, a broker cannot do the
        filter; AccessDenied, the account may not consume any more.
        """
        self._loop_affinity.check()
        if max_count != 1:
            check_count("max_count", max_count)
        try:
            return await self._delivery.take(max_count)
        except InboxClosed:
            self._raise_failure()
            await asyncio.sleep(0)  # a program that asks in a loop would let nothing else run
            return []

    async def batches(self) -> AsyncIterator[list[ReceivedMessage]]:
        """Messages in portions of at most `batch`."""
        while portion := await self.take(self._settings.batch or 1):
            yield portion

    async def closed(self) -> None:
        """Wait until the consumer is left; its handlers run meanwhile. Raises: as `take`."""
        if self._was_entered:
            await self._ended.wait()
        self._raise_failure()

    async def _take_or_none(self, max_count: int) -> list[ReceivedMessage]:
        try:
            return await self._delivery.take(max_count)
        except InboxClosed:
            return []

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise shortened(self._failure) from None
        if not self._was_entered:
            raise ClientClosed(
                f"the consumer of group {self.group} was not entered, so nothing comes; use what `subscribe` returns "
                "in a `with` (asynchronous: `async with`) statement"
            )

    def _fail(self, error: SparrowError) -> None:
        if self._failure is None:
            log.error("group %s consumes no more: %s", self.full_group, error)
            self._failure = error
            self._delivery.close()
            self._ended.set()

    async def subscribe(self, topic: str, tag: str | None = None, *, where: str | None = None) -> None:
        """Consume another topic, or change the filter of one. All members of the group must do the same.

        Messages that were pulled with the former filter are still delivered.
        """
        topic = self._network.full_topic(topic)
        self._subscriptions[topic] = subscription(topic, tag, where, self._network.clock.now_ms())
        await self._announce_subscriptions()
        self._assignment.refilter(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Stop to consume a topic. All members of the group must do the same."""
        self._subscriptions.pop(self._network.full_topic(topic), None)
        await self._announce_subscriptions()

    @property
    def concurrency(self) -> int:
        """The number of handlers that run at once. A change does not stop running handlers.
        Raises: ConfigError, it is not from 1 to 10,000, or there is no handler. Iterate in more tasks instead.
        """
        return self._concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        if self._handler is None:
            raise ConfigError(f"the consumer of group {self.group} has no handler; iterate in more tasks instead")
        self._concurrency = check_count("concurrency", concurrency, at_most=MAX_CONCURRENCY)
        if self._workers is not None and not self._ended.is_set():
            self._loop_affinity.check()
            self._workers.resize(concurrency)

    @property
    def queues(self) -> list[MessageQueue]:
        """This member's queues, those of the retry topic too."""
        return self._network.plain_queues(self._assignment.queues)

    async def commit(self) -> None:
        """Commit the settled messages now, instead of within 5 s."""
        await self._assignment.commit()

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Deliver no messages of these queues until `resume`; by default of all, also of those that come meanwhile.

        A queue that another member had meanwhile is not paused any more.
        Raises: ConfigError, one is not this member's now.
        """
        self._assignment.pause(queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Undo `pause`, by default for all. Raises: ConfigError, one is not this member's now."""
        self._assignment.resume(queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset. Messages of the queue that are being handled are not committed.
        Raises: ConfigError, the queue is not this member's now, or the offset is negative or no number.
        """
        self._assignment.seek(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset at which the group would go on; everything before is settled. Raises: ConfigError."""
        return self._assignment.position(queue)

    @short_traceback
    async def lag(self) -> dict[MessageQueue, int]:
        """The unsettled messages in each of this member's queues, also filtered ones. Raises: SparrowError."""
        lag = await self._assignment.lag()
        return {self._network.plain_queue(queue): count for queue, count in lag.items()}

    async def __aenter__(self) -> Consumer:
        """Join the group, and wait a moment for the first queues.
        Raises: AccessDenied, the account may not consume a topic, or not as this group; ClientClosed, ConfigError.
        """
        self._network.check_open()
        self._background.check_new()
        self._network.membership.add_consumer(self)
        await self._background.__aenter__()
        try:
            self._start()
            await self._network.clock.wait_for(self._rebalancer.first_round.wait(), FIRST_ROUND_LIMIT_S)
            if isinstance(self._failure, AccessDenied | ConfigError):
                raise shortened(self._failure)
        except TimeoutError:
            log.warning("group %s has no queues yet; it goes on trying", self.full_group)
        except BaseException:
            try:
                await self._leave(grace_s=0.0)
            finally:
                await self._background.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop_affinity.is_forked:
            return  # It consumes in the parent.
        self._background.check_outside()
        try:
            self._assignment.stop_pulling()
            self._delivery.close()
            await self._leave(self._settings.grace_s if error_type is None else 0.0)
        finally:
            self._ended.set()
            await self._background.__aexit__(error_type, error, trace)
        if error_type is None and self._failure is not None:
            raise shortened(self._failure) from None

    def _start(self) -> None:
        self._was_entered = True
        self._delivery.open()
        spawn = self._background.spawn
        self._network.routes.watch(self._on_route_changed)
        self._tasks.append(spawn(self._rebalance(), f"rebalance {self.full_group}"))
        self._tasks.append(spawn(self._commit_periodically(), f"commit {self.full_group}"))
        if self._assignment.locks is not None:
            self._tasks.append(spawn(self._renew_locks(), f"lock {self.full_group}"))
        if self._handler is not None:
            self._workers = Workers(
                self._handler,
                self._take_or_none,
                self._settings,
                self._network.clock,
                spawn,
                take_nowait=self._take_nowait,
                hooks=self._hooks,
                on_timed=self._stats.add_timed_call,
            )
            self._workers.start(self._concurrency)

    async def _leave(self, grace_s: float) -> None:
        """Finish, commit, free the locks, unregister: in this order, so that no member takes over too early."""
        self._network.routes.unwatch(self._on_route_changed)
        for task in self._tasks:
            task.cancel()
        try:
            if self._workers is not None:
                await self._workers.finish(grace_s)
            await self._commit_all()
        finally:
            await self._network.leave_group(self)

    async def _commit_all(self) -> None:
        clock = self._network.clock
        try:
            await clock.wait_for(self._delivery.wait_until_given_back(), GIVE_BACK_LIMIT_S)
        except TimeoutError:
            log.warning("group %s could not give back every message that failed; they come again", self.full_group)
        try:
            await clock.wait_for(self._assignment.close(), LEAVE_LIMIT_S)
        except TimeoutError:
            log.warning("group %s could not commit everything; some messages come again", self.full_group)

    async def _rebalance(self) -> None:
        try:
            await self._rebalancer.run()
        except (AccessDenied, ConfigError) as error:
            self._fail(error)
            self._rebalancer.first_round.set()

    async def _commit_periodically(self) -> None:
        while True:
            self._stats.sample()
            await self._network.clock.sleep(COMMIT_PERIOD_S)
            await self._assignment.commit()

    async def _renew_locks(self) -> None:
        pause_s = RENEW_S
        while True:
            await self._network.clock.sleep(pause_s)
            pause_s = RENEW_S if await self._assignment.renew_locks() else RENEW_AGAIN_S

    async def _announce_subscriptions(self) -> None:
        await self._network.brokers.announce()
        self._rebalancer.request_round()

    def _on_route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._rebalancer.request_round()

    def _heartbeat_entry(self) -> ConsumerBeat:
        return ConsumerBeat(
            group_name=self.full_group,
            consume_type="CONSUME_PASSIVELY",
            message_model="BROADCASTING" if self._settings.broadcast else "CLUSTERING",
            consume_from_where=consume_from_where(self._settings.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def _on_members_changed(self) -> None:
        self._rebalancer.request_round()

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        log_reset(self._network.brokers.log_limit, self.full_group, offsets)
        await self._assignment.restart(offsets)

    async def _on_client_leaving(self) -> None:
        await self.commit()

    def _on_client_left(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._assignment.stop_pulling()
        self._fail(ClientClosed("its client was left before it; what is not committed yet comes again"))

    def _running_info(self) -> ConsumerRunning:
        return ConsumerRunning(
            status_table=self._stats.statuses(self._subscriptions),
            properties={
                "PROP_CLIENT_VERSION": "V4_9_8",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": str(self._settings.ordered).lower(),
                "PROP_NAMESERVER_ADDR": str(self._network.name_servers),
                "PROP_THREADPOOL_CORE_SIZE": str(self._concurrency),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table=self._assignment.report(),
        )

    def _positions_in(self, topic: str) -> dict[MessageQueue, int]:
        return self._assignment.positions_in(topic)

    async def _deliver_once(self, stored_message: StoredMessage, broker_name: str) -> ConsumeOutcome:
        """Call the handler for this message now; nothing is committed or given back. Raises: RemoteError, there is
        none.
        """
        if self._handler is None:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer of group {self.group} has no handler to call: its program takes messages itself",
            )
        queue = MessageQueue(stored_message.topic, broker_name, stored_message.queue_id)
        message = ReceivedMessage(
            stored_message, queue, None, DetachedOwner(self._network.answers), self._network.namespace
        )
        return await deliver_once(self._handler, message, self._settings, self._network.clock)

    def _make_delivery(self, send_queue: SendQueue) -> ConcurrentDelivery | OrderedDelivery:
        settings, clock, spawn = self._settings, self._network.clock, self._background.spawn
        redelivery = None
        if not settings.broadcast:
            redelivery = BrokerRedelivery(self.full_group, settings.reconsume_times, self._network.brokers, send_queue)
        if settings.ordered:
            return OrderedDelivery(
                settings.batch or 1,
                redelivery,
                settings.reconsume_times,
                not settings.broadcast,
                clock,
                spawn,
                suspend_s=settings.suspend_s,
                is_iterated=self._handler is None,
                namespace=self._network.namespace,
            )
        return ConcurrentDelivery(redelivery, clock, spawn, namespace=self._network.namespace)

    def _make_assignment(self) -> Assignment:
        settings, network = self._settings, self._network
        locks = None
        if settings.ordered and not settings.broadcast:
            locks = QueueLocks(self.full_group, network.client_id, network.brokers)
        return Assignment(
            settings,
            network,
            offset_store_of(self.full_group, network, settings.offset_folder if settings.broadcast else None),
            self._delivery,
            self._background.spawn,
            self._subscriptions,
            on_failure=self._fail,
            stats=self._stats,
            locks=locks,
            hooks=self._hooks,
        )

    async def _apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        return await self._assignment.apply(topic, queues if topic in self._subscriptions else ())
