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
from sparrowmq.client.popping.pop_queue import PopCredit, PopQueue
from sparrowmq.client.popping.pop_requests import (
    AT_ONCE_S,
    DEFAULT_POP_COUNT,
    PopInFlight,
    PopOptions,
    PopRedelivery,
    PopRequests,
)
from sparrowmq.client.popping.popped_message import PoppedFrom, PoppedMessage
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
        self._pops = PopRequests(self.full_group, network, network.background.spawn)
        retries = PopRedelivery(
            self._pops, BrokerRedelivery(self.full_group, limit, network.brokers, send_queue), limit
        )
        self._credit = PopCredit(self._settings, network.clock.monotonic)
        self._popped = ConcurrentDelivery(
            retries, network.clock, self._background.spawn, inbox=self._credit.inbox, namespace=network.namespace
        )
        return self._popped

    @property
    def _is_quick(self) -> bool:
        return self._credit.is_quick

    def _make_assignment(self) -> PopAssignment:
        self._places = PopAssignment(
            self._pops,
            self._credit,
            self._settings,
            self._network,
            self._popped,
            self._background.spawn,
            self._subscriptions,
            failed=self._fail,
            stats=self._stats,
            hooks=self._hooks,
        )
        return self._places

    def _start(self) -> None:
        super()._start()
        extend = self._places.keep_invisible()
        self._tasks.append(self._background.spawn(extend, f"extend {self.full_group}"))


class PopAssignment(Assignment):
    """The popped topics of one consumer. Its queues have the id -1: all queues of a topic at a broker."""

    def __init__(
        self,
        pops: PopRequests,
        credit: PopCredit,
        settings: ConsumerSettings,
        network: Network,
        delivery: ConcurrentDelivery,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        *,
        failed: Callable[[SparrowError], object],
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
            failed=failed,
            stats=stats,
            hooks=hooks,
        )
        self._pops = pops
        self._credit = credit
        self._concurrently = delivery

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
            await self.extend()

    async def extend(self) -> None:
        """Extend the time of each held message whose time is half over. Forget those whose time is over."""
        half_s = self._settings.invisible_s / 2
        due: list[PoppedMessage] = []
        for state in self._popped():
            state.forget([each for each in state.unsettled_messages if each._left_s <= 0])
            due += (each for each in state.unsettled_messages if each._left_s < half_s and not each._is_spent)
        asked = [self._pops.change_invisible(each, self._settings.invisible_s) for each in due]
        for message, answer in zip(due, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, SparrowError):
                log.warning("cannot extend the time of %r, which may be delivered twice: %s", message, answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def close(self) -> None:
        """Send the acks that are left, and make the messages visible that were not handled."""
        self.stop_pulling()
        await self._pops.wait_for_acks()
        left = [message for state in self._popped() for message in state.unsettled_messages]
        asked = [self._pops.change_invisible(each, AT_ONCE_S) for each in left]
        await asyncio.gather(*asked, return_exceptions=True)
        await super().close()

    def _popped(self) -> list[PopQueue]:
        states = [owned.state for owned in self._owned.values()]
        return [state for state in states if isinstance(state, PopQueue)]

    async def _first_offset(self, queue: MessageQueue) -> int:
        return 0 if queue.queue_id == ANY_QUEUE else await super()._first_offset(queue)

    def _new_state(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        if queue.queue_id != ANY_QUEUE:
            return super()._new_state(queue, offset)
        answers, stats = self._network.answers, self._stats.of(queue.topic)
        return PopQueue(queue, self._settings, answers, stats, self._hooks, self._pops.acks, self._credit)

    def _fetch_loop(self, state: ProcessQueue, subscription: Subscription) -> FetchLoop:
        if not isinstance(state, PopQueue):
            return super()._fetch_loop(state, subscription)
        settings = self._settings
        options = PopOptions(subscription, DEFAULT_POP_COUNT, settings.invisible_s, HOLD_S, init_mode(settings.start))
        return Popper(settings.group, state, options, self._pops, self._network, self._arrived)

    def _arrived(self, owned: PopQueue, messages: list[PoppedMessage]) -> None:
        owned.hold(messages)
        self._concurrently.popped(owned, messages)


def _check_pulled(queue: MessageQueue) -> None:
    if queue.queue_id == ANY_QUEUE:
        raise ConfigError(f'{queue} is popped, so it has no position; use mode="pull", or reset the group')


class Popper(FetchLoop):
    """Pops the queues of one topic at one broker."""

    def __init__(
        self,
        group: str,
        owned: PopQueue,
        options: PopOptions,
        pops: PopRequests,
        network: Network,
        arrived: Callable[[PopQueue, list[PoppedMessage]], None],
    ) -> None:
        super().__init__(group, owned, options.subscription, network.brokers, network.clock)
        self._popped = owned
        self._place = PoppedFrom(owned.queue.topic, owned.queue.broker_name)
        self._options = options
        self._pops = pops
        self._arrived = arrived

    async def _ask(self) -> bool:
        owned = self._popped
        found = False
        owned.last_pull_ms = self._clock.now_ms()
        options = self._options_beside(0)
        owned.asked_for = options.most
        try:
            asked: PopInFlight | None = await self._pops.begin(self._place, options, owned)
            while asked is not None:
                answer = await self._pops.answer(asked)
                asked = self._take(asked, answer)
                found = found or bool(answer.body)  # also messages whose tags are not wanted
        finally:
            owned.asked_for = 0
        return found

    def _take(self, pop: PopInFlight, answer: Response[PopMessageReply]) -> PopInFlight | None:
        """Take the messages of an answer. Return the next pop if there is room: it is sent before they are read."""
        owned, stats, coming = self._popped, self._popped.stats, pop.request.max_msg_nums
        following = None
        owned.has_more = answer.header.rest_num > 0
        if answer.code == ResponseCode.SUCCESS and owned.has_room_beside(coming):
            options = self._options_beside(coming)
            following = self._pops.begin_next(pop, options)
            owned.asked_for = options.most
            owned.last_pull_ms = following.request.born_time
        try:
            messages = self._pops.messages_of(pop, answer)
        except SparrowError:
            if following is not None:
                self._pops.leave(following)
            raise
        self._is_failing = False
        if messages:
            stats.pulls += 1
            stats.pull_ms += max(self._clock.now_ms() - pop.request.born_time, 0)
            stats.pulled += len(messages)
            self._arrived(owned, messages)
        return following

    def _options_beside(self, coming: int) -> PopOptions:
        return self._options._replace(most=self._popped.room_beside(coming))
