"""A consumer with mode="pop": its topics are popped, and its failed messages become visible again.

Members do not share out queues: each pops any queue of every broker, and the brokers give each message to one member.
Only the group's retry topic is consumed as usual, by shared queues: operators and pulling members send copies there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.assignment import Assignment
from sparrowmq.client.consuming.consume_rate import ConsumeStats
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, init_mode
from sparrowmq.client.consuming.delivery import ConcurrentDelivery
from sparrowmq.client.consuming.offset_store import offset_store_of
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import HOLD_S, FetchLoop
from sparrowmq.client.consuming.received_message import ConsumeHooks
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.popping import pop_requests
from sparrowmq.client.popping.popped_message import PoppedFrom, PoppedMessage
from sparrowmq.client.popping.prefetch import PopQueue, Prefetch
from sparrowmq.client.sending.send_queue import SendQueue
from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.requests.pop_headers import ANY_QUEUE, PopMessageReply
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)
CHECKS_PER_INVISIBLE_TIME: Final = 4


class PopConsumer(Consumer):
    def _make_delivery(self, send_queue: SendQueue) -> ConcurrentDelivery:
        network, limit = self._network, self._settings.reconsume_times
        self._pops = pop_requests.PopRequests(self.full_group, network, network.background.spawn)
        by_broker = BrokerRedelivery(self.full_group, limit, network.brokers, send_queue)
        redelivery = pop_requests.PopRedelivery(self._pops, by_broker, limit)
        self._prefetch = Prefetch(self._settings, network.clock.monotonic)
        self._concurrent_delivery = ConcurrentDelivery(
            redelivery, network.clock, self._background.spawn, inbox=self._prefetch.inbox, namespace=network.namespace
        )
        return self._concurrent_delivery

    @property
    def _is_quick(self) -> bool:
        return self._prefetch.is_quick

    def _make_assignment(self) -> PopAssignment:
        self._pop_assignment = PopAssignment(
            self._pops,
            self._prefetch,
            self._settings,
            self._network,
            self._concurrent_delivery,
            self._background.spawn,
            self._subscriptions,
            on_failure=self._fail,
            stats=self._stats,
            hooks=self._hooks,
        )
        return self._pop_assignment

    def _start(self) -> None:
        super()._start()
        keep_invisible = self._pop_assignment.keep_invisible()
        self._tasks.append(self._background.spawn(keep_invisible, f"extend {self.full_group}"))


class PopAssignment(Assignment):
    """The popped topics of one consumer. Its queues have the id -1: all queues of a topic at a broker."""

    def __init__(
        self,
        pops: pop_requests.PopRequests,
        prefetch: Prefetch,
        settings: ConsumerSettings,
        network: Network,
        delivery: ConcurrentDelivery,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        *,
        on_failure: Callable[[SparrowError], object],
        stats: ConsumeStats,
        hooks: Sequence[ConsumeHooks],
    ) -> None:
        super().__init__(
            settings,
            network,
            offset_store_of(settings.group, network, None),
            delivery,
            spawn,
            subscriptions,
            on_failure=on_failure,
            stats=stats,
            hooks=hooks,
        )
        self._pops = pops
        self._prefetch = prefetch
        self._concurrent_delivery = delivery

    async def apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Pop the topic at every broker of its route; share the queues of the retry topic as usual."""
        if not topic.startswith(RETRY):
            route = self._network.routes.cached(topic) if topic in self._subscriptions else None
            names = {queue.broker_name for queue in route.readable} if route is not None else set()
            queues = [MessageQueue(topic, name, ANY_QUEUE) for name in names]
        return await super().apply(topic, queues)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Raises: ConfigError, a popped topic has no positions."""
        _check_pulled(queue)
        super().seek(queue, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset in a queue of the retry topic. Raises: ConfigError."""
        _check_pulled(queue)
        return super().position(queue)

    async def lag(self) -> dict[MessageQueue, int]:
        """Raises: ConfigError, the members share the lag."""
        raise ConfigError('with mode="pop" no member has queues of its own; use `mq.admin.lag(group, topic)`')

    async def keep_invisible(self) -> None:
        """Extend the time of the messages that are held, until cancelled."""
        while True:
            await self._network.clock.sleep(self._settings.invisible_s / CHECKS_PER_INVISIBLE_TIME)
            await self.extend_invisible_times()

    async def extend_invisible_times(self) -> None:
        """Extend the time of each held message whose time is half over. Forget those whose time is over."""
        half_s = self._settings.invisible_s / 2
        due_messages: list[PoppedMessage] = []
        for pop_queue in self._pop_queues():
            pop_queue.forget([message for message in pop_queue.unsettled_messages if message._remaining_s <= 0])
            due_messages += (
                message
                for message in pop_queue.unsettled_messages
                if message._remaining_s < half_s and not message._is_spent
            )
        changes = [self._pops.change_invisible(message, self._settings.invisible_s) for message in due_messages]
        for message, answer in zip(due_messages, await asyncio.gather(*changes, return_exceptions=True), strict=True):
            if isinstance(answer, SparrowError):
                log.warning("cannot extend the time of %r, which may be delivered twice: %s", message, answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def close(self) -> None:
        """Send the acks that are left, and make the messages visible that were not handled."""
        self.stop_pulling()
        await self._pops.wait_for_acks()
        unhandled = [message for pop_queue in self._pop_queues() for message in pop_queue.unsettled_messages]
        changes = [self._pops.change_invisible(message, pop_requests.VISIBLE_AGAIN_S) for message in unhandled]
        await asyncio.gather(*changes, return_exceptions=True)
        await super().close()

    def _pop_queues(self) -> list[PopQueue]:
        process_queues = list(self._owned_queues.values())
        return [process_queue for process_queue in process_queues if isinstance(process_queue, PopQueue)]

    async def _first_offset(self, queue: MessageQueue) -> int:
        return 0 if queue.queue_id == ANY_QUEUE else await super()._first_offset(queue)

    def _new_process_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        if queue.queue_id != ANY_QUEUE:
            return super()._new_process_queue(queue, offset)
        answers, stats = self._network.answers, self._stats.of(queue.topic)
        return PopQueue(queue, self._settings, answers, stats, self._hooks, self._pops.acks, self._prefetch)

    def _make_fetch_loop(self, process_queue: ProcessQueue, subscription: Subscription) -> FetchLoop:
        if not isinstance(process_queue, PopQueue):
            return super()._make_fetch_loop(process_queue, subscription)
        settings = self._settings
        options = pop_requests.PopOptions(
            subscription, pop_requests.DEFAULT_POP_COUNT, settings.invisible_s, HOLD_S, init_mode(settings.start)
        )
        return Popper(settings.group, process_queue, options, self._pops, self._network, self._add_popped)

    def _add_popped(self, pop_queue: PopQueue, messages: list[PoppedMessage]) -> None:
        pop_queue.add_popped(messages)
        self._concurrent_delivery.add_popped(pop_queue, messages)


def _check_pulled(queue: MessageQueue) -> None:
    if queue.queue_id == ANY_QUEUE:
        raise ConfigError(f'{queue} is popped, so it has no position; use mode="pull", or reset the group')


class Popper(FetchLoop):
    """Pops the queues of one topic at one broker."""

    def __init__(
        self,
        group: str,
        pop_queue: PopQueue,
        options: pop_requests.PopOptions,
        pops: pop_requests.PopRequests,
        network: Network,
        on_popped: Callable[[PopQueue, list[PoppedMessage]], None],
    ) -> None:
        super().__init__(group, pop_queue, options.subscription, network.brokers, network.clock)
        self._pop_queue = pop_queue
        self._place = PoppedFrom(pop_queue.queue.topic, pop_queue.queue.broker_name)
        self._options = options
        self._pops = pops
        self._on_popped = on_popped

    async def _ask(self) -> bool:
        pop_queue = self._pop_queue
        has_messages = False
        pop_queue.last_pull_ms = self._clock.now_ms()
        options = self._make_options(0)
        pop_queue.requested_count = options.max_count
        try:
            pop: pop_requests.PopInFlight | None = await self._pops.begin(self._place, options, pop_queue)
            while pop is not None:
                answer = await self._pops.answer(pop)
                pop = self._take(pop, answer)
                has_messages = has_messages or bool(answer.body)  # also messages whose tags are not wanted
        finally:
            pop_queue.requested_count = 0
        return has_messages

    def _take(
        self, pop: pop_requests.PopInFlight, answer: Response[PopMessageReply]
    ) -> pop_requests.PopInFlight | None:
        """Take the messages of an answer. Return the next pop if there is room: it is sent before they are read."""
        pop_queue, stats, coming_count = self._pop_queue, self._pop_queue.stats, pop.request.max_msg_nums
        next_pop = None
        pop_queue.has_more = answer.header.rest_num > 0
        if answer.code == ResponseCode.SUCCESS and pop_queue.has_room_beside(coming_count):
            options = self._make_options(coming_count)
            next_pop = self._pops.begin_next(pop, options)
            pop_queue.requested_count = options.max_count
            pop_queue.last_pull_ms = next_pop.request.born_time
        try:
            messages = self._pops.messages_of(pop, answer)
        except SparrowError:
            if next_pop is not None:
                self._pops.abandon(next_pop)
            raise
        self._is_failing = False
        if messages:
            stats.pulls += 1
            stats.pull_ms += max(self._clock.now_ms() - pop.request.born_time, 0)
            stats.pulled += len(messages)
            self._on_popped(pop_queue, messages)
        return next_pop

    def _make_options(self, coming_count: int) -> pop_requests.PopOptions:
        return self._options._replace(max_count=self._pop_queue.room_beside(coming_count))
