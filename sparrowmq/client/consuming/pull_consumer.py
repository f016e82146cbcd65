"""Reads queues under the program's control: which queues, from which offset, when, how much.

    async with mq.pull_consumer(group="audit") as reader:
        reader.assign(await reader.queues("orders"))
        await reader.seek_to_time(datetime(2026, 11, 1))
        while messages := await reader.poll(timeout_s=5):
            ...
            await reader.commit()

    async with mq.pull_consumer(group="audit", auto_commit_s=5) as reader:
        await reader.subscribe("orders")              # the readers of the group share its queues
        ...

Assigned queues are not shared out: two readers of one group that assign the same read the same. Subscribed topics are
shared out as among consumers (`rebalance`).

    assigned -> begun (at the group's offset, or `start`) -> asked -> answered -> fetched -> handed out -> asked ...

One request for each queue is under way at a time, also between two calls of `poll`. Messages are handed out from the
queues in turns. Finding the first offset and connecting happen in the background, so an absent broker does not delay
the messages of others. Source: DefaultLitePullConsumer, PullTaskImpl and AssignedMessageQueue, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from types import TracebackType
from typing import Any, Final

from sparrowmq.client.arguments import check_count, check_offset, check_queues, check_seconds
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming import offset_store, pulling
from sparrowmq.client.consuming.assignment import DemotedMasterQueues, call_listener, notify_listener, until_elected
from sparrowmq.client.consuming.consumer_settings import (
    PullSettings,
    QueuesChanged,
    check_listener,
    consume_from_where,
    subscription,
)
from sparrowmq.client.consuming.pulling import EmptyPollBackoff
from sparrowmq.client.consuming.rebalance import Rebalancer, diff
from sparrowmq.client.consuming.received_message import DetachedOwner, ReceivedMessage, deliver_from
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.client.loop_affinity import checks_loop
from sparrowmq.client.tracebacks import short_tracebacks, shortened
from sparrowmq.errors import (
    AccessDenied,
    ClientClosed,
    ConfigError,
    NetworkError,
    NoRoute,
    ProtocolError,
    RemoteError,
    SparrowError,
)
from sparrowmq.loop.tasks import Background, Spawn
from sparrowmq.protocol.allocation import strategy_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.requests.bodies import MASTER
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerBeat, ConsumerRunning, ProcessQueueState
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)
LEAVE_LIMIT_S: Final = 3.0


@short_tracebacks
@checks_loop()
class PullConsumer:
    """Reads the assigned queues, or its share of topics. Made by `Client.pull_consumer`; use it as an async context
    manager.

    Every call may be cancelled; a cancelled `poll` returns its messages the next time. Leaving commits only with
    `auto_commit_s`: all returned messages, or after an exception those returned before the last `poll`.
    """

    def __init__(self, settings: PullSettings, network: Network) -> None:
        self.group = network.plain_name(settings.group)
        self.full_group = settings.group
        self._settings = settings
        self._network = network
        self._loop_affinity = network.loop_affinity
        self._background = Background()
        self._offsets = offset_store.offset_store_of(
            settings.group, network, settings.offset_folder if settings.broadcast else None
        )
        self._assigned_queues = AssignedQueues(settings, network, self._offsets, self._background.spawn)
        self._subscriptions: dict[str, Subscription] = {}
        self._watches: dict[str, tuple[QueuesChanged, list[MessageQueue]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_sharing = False
        self._is_woken = False
        self._is_cut_off = False
        self._denial: SparrowError | None = None
        self._rebalancer = Rebalancer(
            self.full_group,
            network,
            lambda: list(self._subscriptions),
            self._apply,
            None if settings.broadcast else strategy_of(settings.strategy),
        )

    async def __aenter__(self) -> PullConsumer:
        self._network.check_open()
        self._background.check_new()
        self._network.membership.add_consumer(self)
        try:
            await self._background.__aenter__()
            self._network.routes.watch(self._on_route_changed)
            if self._settings.auto_commit_s is not None:
                self._spawn_until_left(
                    self._commit_periodically(self._settings.auto_commit_s), f"commit {self.full_group}"
                )
            await self._network.brokers.announce()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop_affinity.is_forked:
            return  # It reads in the parent.
        self._background.check_outside()
        self._network.routes.unwatch(self._on_route_changed)
        for task in self._tasks:
            task.cancel()
        try:
            await self._network.clock.wait_for(self._give_up_all(error_type is None), LEAVE_LIMIT_S)
        except TimeoutError:
            log.warning("group %s could not commit everything; some messages come again", self.full_group)
        finally:
            for assigned in self._assigned_queues.all():
                self._assigned_queues.drop(assigned.queue)
            try:
                await self._network.leave_group(self)
            finally:
                await self._background.__aexit__(error_type, error, trace)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read. Raises: NoRoute."""
        route = await self._network.routes.of(self._network.full_topic(topic))
        return self._network.plain_queues(route.readable)

    def assign(self, queues: Iterable[MessageQueue], tag: str | None = None, *, where: str | None = None) -> None:
        """Read exactly these queues; old ones keep their position. Raises: ConfigError, topics are subscribed."""
        if self._subscriptions:
            raise ConfigError("topics are subscribed, and their queues shared out; unsubscribe before you assign")
        wanted_queues = set(self._full_queues(queues))
        now_ms = self._network.clock.now_ms()
        filters = {topic: subscription(topic, tag, where, now_ms) for topic in {queue.topic for queue in wanted_queues}}
        for queue in set(self._assigned_queues.queues) - wanted_queues:
            self._assigned_queues.drop(queue)
        for queue in sorted(wanted_queues):
            self._assigned_queues.add(queue, filters[queue.topic])
        self._assigned_queues.wake()

    async def subscribe(self, topic: str, tag: str | None = None, *, where: str | None = None) -> None:
        """Read this member's share of a topic's queues, or change the topic's filter.

        All members of the group must do the same. The queues come within a moment: see `assigned`, `on_assigned`.
        Raises: ConfigError, queues are assigned.
        """
        if self._assigned_queues.queues and not self._subscriptions:
            raise ConfigError("queues are assigned; assign(()) before you subscribe")
        topic = self._network.full_topic(topic)
        new_subscription = subscription(topic, tag, where, self._network.clock.now_ms())
        self._subscriptions[topic] = new_subscription
        for assigned in self._assigned_queues.all():
            if assigned.queue.topic == topic:
                self._assigned_queues.refilter(assigned, new_subscription)
        if not self._is_sharing:
            self._is_sharing = True
            self._spawn_until_left(self._rebalance(), f"rebalance {self.full_group}")
        await self._network.brokers.announce()
        self._rebalancer.request_round()

    async def unsubscribe(self, topic: str) -> None:
        """Stop to read a topic. All members of the group must do the same."""
        topic = self._network.full_topic(topic)
        if self._subscriptions.pop(topic, None) is not None:
            await self._give_up([queue for queue in self._assigned_queues.queues if queue.topic == topic])
            await self._network.brokers.announce()
            self._rebalancer.request_round()

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that are read."""
        return self._network.plain_queues(self._assigned_queues.queues)

    async def watch(self, topic: str, changed: QueuesChanged) -> None:
        """Call `changed(queues)` whenever the topic has other queues, such as new ones or those of a lost broker.

        The client asks the name servers every 30 s, and at once when a broker has moved.
        Raises: NoRoute, there is no such topic; ConfigError, `changed` cannot be called.
        """
        check_listener("changed", changed)
        topic = self._network.full_topic(topic)
        self._watches[topic] = (changed, list((await self._network.routes.of(topic)).readable))

    def pause(self, *queues: MessageQueue) -> None:
        """Return no messages of these queues, by default of all, until `resume`."""
        for queue in queues or self.assigned:
            self._assigned_queue(queue).is_paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """Undo `pause`."""
        for queue in queues or self.assigned:
            self._assigned_queue(queue).is_paused = False
        self._assigned_queues.wake()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset. An offset outside of the queue becomes the nearest one inside.
        Raises: ConfigError, the queue is not assigned, or the offset is negative or no number.
        """
        check_offset(offset)
        self._assigned_queue(queue).move(offset)
        self._assigned_queues.wake()

    async def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Go on at the oldest message that is kept, in all queues by default."""
        for queue in queues or self.assigned:
            self.seek(queue, await offset_store.oldest(self._network.full_queue(queue), self._network.brokers))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the newest message, in all queues by default."""
        for queue in queues or self.assigned:
            self.seek(queue, await offset_store.newest(self._network.full_queue(queue), self._network.brokers))

    async def seek_to_time(self, time: datetime, *queues: MessageQueue) -> None:
        """Go on at the first message stored since a time, in all queues by default; without a zone it is local time."""
        for queue in queues or self.assigned:
            self.seek(queue, await self.offset_at(queue, time))

    async def offset_at(self, queue: MessageQueue, time: datetime) -> int:
        """The offset of the first message stored since a time, of any queue; without a zone it is local time."""
        return await offset_store.offset_at(self._network.full_queue(queue), time, self._network.brokers)

    async def position(self, queue: MessageQueue) -> int:
        """The offset that `poll` returns next."""
        return await self._assigned_queues.begin(self._assigned_queue(queue))

    async def positions(self) -> dict[MessageQueue, int]:
        """The next offset of every assigned queue."""
        return {queue: await self.position(queue) for queue in self.assigned}

    async def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset, at the broker or in the file of a broadcast group; None if there is none."""
        return await self._offsets.read(self._network.full_queue(queue))

    async def commit(self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None) -> None:
        """Commit these offsets, or the positions of these queues, or of all: everything that `poll` has returned.

        Offsets that a broker did not accept are logged, and sent again with the next commit.
        Raises: ConfigError, one of these queues is not assigned, or an offset is negative.
        """
        if isinstance(offsets, Mapping):
            for offset in offsets.values():
                check_offset(offset)
            await self._offsets.commit({self._network.full_queue(queue): offset for queue, offset in offsets.items()})
        else:
            wanted_queues = self._assigned_queues.queues if offsets is None else self._full_queues(offsets)
            await self._offsets.commit(self._assigned_queues.positions(wanted_queues))

    async def poll(self, max_count: int = 1000, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """Wait for messages, and return them; none after `timeout_s`. 0 returns the messages that are here.

        Brokers that cannot be reached are tried again and again.
        Raises: RemoteError, a broker refuses, as for a filter that it cannot read; ConfigError, nothing is assigned or
        subscribed, or an argument is wrong; ClientClosed, the reader was not entered, or its client was left.
        """
        check_count("max_count", max_count)
        if timeout_s != inf:
            check_seconds("timeout_s", timeout_s, or_zero=True)
        if not self._assigned_queues.queues and not self._subscriptions:
            raise ConfigError(
                "no queue is assigned; call assign(await reader.queues(topic)), or subscribe(topic), first"
            )
        clock, assigned_queues = self._network.clock, self._assigned_queues
        deadline = clock.monotonic() + timeout_s
        for assigned in assigned_queues.all():
            assigned.handled = assigned.position
        while True:
            if self._is_cut_off:
                raise ClientClosed(f"the client of the reader of group {self.group} was left")
            if self._denial is not None:
                raise shortened(self._denial)
            assigned_queues.collect()
            assigned_queues.ask()
            messages = assigned_queues.hand_out(max_count)
            remaining_s = deadline - clock.monotonic()
            if messages or remaining_s <= 0 or self._is_woken:
                self._is_woken = False
                return messages
            await assigned_queues.wait(min(remaining_s, pulling.PAUSE_S))

    def wakeup(self) -> None:
        """Let the waiting `poll` return at once, perhaps without messages; if none waits, the next `poll`."""
        self._is_woken = True
        self._assigned_queues.wake()

    async def _rebalance(self) -> None:
        try:
            await self._rebalancer.run()
        except (AccessDenied, ConfigError) as error:
            self._denial = error
            self._assigned_queues.wake()

    async def _apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Read exactly these queues of the topic, if it is still subscribed."""
        if topic not in self._subscriptions:
            return True
        change = diff([queue for queue in self._assigned_queues.queues if queue.topic == topic], queues)
        await self._give_up(change.drop)
        topic_subscription = self._subscriptions.get(topic)
        if topic_subscription is not None and change.add:
            assigned_queues = [
                self._assigned_queues.add(queue, topic_subscription, is_shared=True) for queue in change.add
            ]
            for assigned in assigned_queues:
                assigned.is_held = True
            try:
                await notify_listener(self._settings.on_assigned, change.add, self._network)
            finally:
                for assigned in assigned_queues:
                    assigned.is_held = False
                self._assigned_queues.wake()
        return True

    async def _give_up(self, queues: list[MessageQueue], is_end: bool = False) -> None:
        for assigned in self._assigned_queues.all():
            assigned.is_held |= assigned.queue in queues
        try:
            await notify_listener(self._settings.on_revoked, queues, self._network)
        finally:
            await (self._commit_for_good(queues) if is_end else self._commit_handled(queues))
            for queue in queues:
                self._assigned_queues.drop(queue)
                self._offsets.forget(queue)

    async def _give_up_all(self, is_all_handled: bool) -> None:
        if is_all_handled:
            for assigned in self._assigned_queues.all():
                assigned.handled = assigned.position
        if self._subscriptions:
            await self._give_up(self._assigned_queues.queues, is_end=True)
        else:
            await self._commit_for_good(self._assigned_queues.queues)
            for queue in list(self._assigned_queues.queues):
                self._assigned_queues.drop(queue)

    def _spawn_until_left(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(self._background.spawn(coroutine, name))

    def _on_route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._rebalancer.request_round()
        if topic in self._watches:
            listener, queues_before = self._watches[topic]
            route = self._network.routes.cached(topic)
            queues_now = list(route.readable) if route is not None else []
            if queues_now != queues_before:
                self._watches[topic] = (listener, queues_now)
                listener_call = call_listener(listener, self._network.plain_queues(queues_now))
                self._background.spawn(listener_call, f"queues of {topic}")

    async def _commit_periodically(self, period_s: float) -> None:
        while True:
            await self._network.clock.sleep(period_s)
            await self._commit_handled(self._assigned_queues.queues)

    async def _commit_handled(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, SparrowError]:
        if self._settings.auto_commit_s is None:
            return {}
        offsets = {
            assigned.queue: assigned.handled for assigned in self._assigned_queues.all() if assigned.queue in queues
        }
        return await self._offsets.commit({queue: offset for queue, offset in offsets.items() if offset is not None})

    async def _commit_for_good(self, queues: Collection[MessageQueue]) -> None:
        demoted, uncommitted_queues = DemotedMasterQueues(self._network), set(queues)

        async def attempt() -> bool:
            nonlocal uncommitted_queues
            uncommitted_queues = demoted.among(await self._commit_handled(uncommitted_queues))
            return bool(uncommitted_queues)

        await until_elected(attempt, self._network)

    def _heartbeat_entry(self) -> ConsumerBeat:
        return ConsumerBeat(
            group_name=self.full_group,
            consume_type="CONSUME_ACTIVELY",
            message_model="BROADCASTING" if self._settings.broadcast else "CLUSTERING",
            consume_from_where=consume_from_where(self._settings.start),
            subscription_data_set=list(self._filters().values()),
        )

    def _on_members_changed(self) -> None:
        self._rebalancer.request_round()

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at new offsets, and commit them. Any member commits assigned queues, as they may have no reader."""
        offset_store.log_reset(self._network.brokers.log_limit, self.full_group, offsets)
        assigned_queues = set(self._assigned_queues.queues)
        for queue, offset in offsets.items():
            self._offsets.moved(queue)
            if queue in assigned_queues:
                self.seek(queue, offset)
        committed_queues = assigned_queues if self._subscriptions else offsets.keys()
        await self._offsets.commit({queue: offset for queue, offset in offsets.items() if queue in committed_queues})

    async def _on_client_leaving(self) -> None:
        await self._commit_handled(self._assigned_queues.queues)

    def _on_client_left(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._is_cut_off = True
        self._assigned_queues.wake()

    def _running_info(self) -> ConsumerRunning:
        return ConsumerRunning(
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_NAMESERVER_ADDR": str(self._network.name_servers),
            },
            subscription_set=list(self._filters().values()),
            mq_table={assigned.queue: assigned.report() for assigned in self._assigned_queues.all()},
        )

    def _positions_in(self, topic: str) -> dict[MessageQueue, int]:
        return {
            assigned.queue: assigned.position or 0
            for assigned in self._assigned_queues.all()
            if assigned.queue.topic == topic
        }

    async def _deliver_once(self, stored: StoredMessage, broker_name: str) -> ConsumeOutcome:
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR, f"the consumer of group {self.group} polls, and has no handler to call"
        )

    def _full_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        check_queues(queues)
        return [self._network.full_queue(queue) for queue in queues]

    def _assigned_queue(self, queue: MessageQueue) -> AssignedQueue:
        return self._assigned_queues.of(self._network.full_queue(queue))

    def _filters(self) -> dict[str, Subscription]:
        return self._subscriptions or {
            assigned.queue.topic: assigned.subscription for assigned in self._assigned_queues.all()
        }


@dataclass(slots=True, eq=False)
class AssignedQueue:
    """One assigned queue.

    Attributes:
        position: the next offset that is handed out; None until it is known.
        handled: everything before it was handed out by an earlier `poll`; None when that says nothing.
        is_shared: the topic is subscribed, so a queue that the topic loses is given up.
        last_offset, stored_ms: of the last message that came: its offset, and when it was stored; 0 before the first.
        answer: what is waited for: the answer of a pull, or None or an error from making one possible.
        is_cut_off: its broker was lost, and may come back without its last messages.
        is_held: the program's listener is being called with it; no message of it is handed out meanwhile.
        not_before_s: when a queue that failed, or has found nothing without a wait, is asked again.
        refusal: the last refusal for which a name server was asked whether the topic still has the queue.
    """

    queue: MessageQueue
    subscription: Subscription
    is_shared: bool = False
    position: int | None = None
    handled: int | None = None
    next_offset: int = 0
    last_offset: int = 0
    stored_ms: int = 0
    fetched: deque[ReceivedMessage] = field(default_factory=deque)
    answer: asyncio.Future[Any] | None = None
    is_paused: bool = False
    is_held: bool = False
    is_failing: bool = False
    is_cut_off: bool = False
    broker_id: int = MASTER
    not_before_s: float = 0.0
    asked_s: float = 0.0
    empty_polls: EmptyPollBackoff = field(default_factory=EmptyPollBackoff)
    refusal: RemoteError | None = None

    def move(self, offset: int | None) -> None:
        """Go on at an offset, and forget the pull and its messages. None asks again for the begin."""
        if self.answer is not None:
            self.answer.cancel()
            self.answer = None
        self.fetched.clear()
        self.position, self.next_offset = offset, offset or 0
        self.handled = None
        self.stored_ms = 0  # The program may go on anywhere.
        self.not_before_s = 0.0

    def go_on(self, offset: int) -> None:
        """Ask for this offset next. No message is here."""
        self.position = self.next_offset = offset
        self.handled = None

    def report(self) -> ProcessQueueState:
        return ProcessQueueState(
            commit_offset=self.position or 0,
            cached_msg_min_offset=self.position or 0,
            cached_msg_max_offset=self.next_offset,
            cached_msg_count=len(self.fetched),
        )


class AssignedQueues:
    """All assigned queues of one pull consumer."""

    def __init__(
        self, settings: PullSettings, network: Network, offsets: offset_store.OffsetStore, spawn: Spawn
    ) -> None:
        self._settings = settings
        self._network = network
        self._offsets = offsets
        self._spawn = spawn
        self._owner = DetachedOwner(network.answers, rules=FailureRules(settings.group))
        self._by_queue: dict[MessageQueue, AssignedQueue] = {}  # in the order of their turns
        self._wake_up: asyncio.Future[None] | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._by_queue)

    def all(self) -> list[AssignedQueue]:
        return list(self._by_queue.values())

    def of(self, queue: MessageQueue) -> AssignedQueue:
        """Raises: ConfigError, it is not assigned."""
        try:
            return self._by_queue[queue]
        except KeyError:
            raise ConfigError(
                f"{self._network.plain_queue(queue)} is not assigned (any more); call assign first, or see `assigned`"
            ) from None

    def add(self, queue: MessageQueue, subscription: Subscription, *, is_shared: bool = False) -> AssignedQueue:
        """Read the queue with this filter; a queue that is read already keeps its position."""
        assigned = self._by_queue.get(queue)
        if assigned is None:
            assigned = self._by_queue[queue] = AssignedQueue(queue, subscription, is_shared)
        else:
            self.refilter(assigned, subscription)
        return assigned

    def refilter(self, assigned: AssignedQueue, subscription: Subscription) -> None:
        """Change the filter, and drop messages that were pulled with the former one."""
        former, assigned.subscription = assigned.subscription, subscription
        if (former.expression, former.kind) != (subscription.expression, subscription.kind):
            handled = assigned.handled
            assigned.move(assigned.position)
            assigned.handled = handled

    def drop(self, queue: MessageQueue) -> None:
        assigned = self._by_queue.pop(queue, None)
        if assigned is not None:
            assigned.move(None)

    def wake(self) -> None:
        """End a `wait`, so that its caller looks again."""
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(None)

    async def begin(self, assigned: AssignedQueue) -> int:
        """The next offset; first find the begin if it is unknown. Raises: SparrowError."""
        if assigned.position is None:
            offset = await offset_store.first_offset(
                assigned.queue, self._settings.start, self._offsets, self._network.brokers
            )
            if assigned.position is None:  # The program has not called `seek` meanwhile.
                assigned.position = assigned.next_offset = offset
        return assigned.position

    def ask(self) -> None:
        """Send a pull for each queue without messages here."""
        now = self._network.clock.monotonic()
        for assigned in self._by_queue.values():
            is_idle = assigned.answer is None and not assigned.fetched
            if is_idle and not assigned.is_paused and not assigned.is_held and now >= assigned.not_before_s:
                assigned.asked_s = now
                assigned.answer = self._pull(assigned)
                assigned.answer.add_done_callback(_retrieve_error)  # A reading may be left before it is collected.

    def collect(self) -> None:
        """Take the answers that arrived. Raises: RemoteError, a broker refuses, and will refuse again."""
        for assigned in self._by_queue.values():
            answer = assigned.answer
            if answer is None or not answer.done():
                continue
            assigned.answer = None
            try:
                outcome = answer.result()
                if isinstance(outcome, Response):
                    self._take(assigned, outcome)
                elif isinstance(outcome, SparrowError):
                    raise outcome
            except (NetworkError, ProtocolError) as error:
                self._postpone(assigned, error)
            except RemoteError as error:
                self._handle_refusal(assigned, error)

    def hand_out(self, max_count: int) -> list[ReceivedMessage]:
        """The messages that are here. A queue that was served goes behind the others."""
        messages: list[ReceivedMessage] = []
        for queue, assigned in list(self._by_queue.items()):
            if len(messages) >= max_count:
                break
            fetched = assigned.fetched
            if not fetched or assigned.is_paused or assigned.is_held:
                continue
            while fetched and len(messages) < max_count:
                messages.append(fetched.popleft())
            assigned.position = fetched[0].offset if fetched else assigned.next_offset
            del self._by_queue[queue]
            self._by_queue[queue] = assigned
        return messages

    async def wait(self, limit_s: float) -> None:
        """Wait until an answer may have come, or a queue may be asked again, at most so many seconds."""
        now_s = self._network.clock.monotonic()
        pauses_s = (
            assigned.not_before_s - now_s for assigned in self._by_queue.values() if assigned.not_before_s > now_s
        )
        limit_s = min([limit_s, *pauses_s])
        if self._wake_up is None or self._wake_up.done():
            self._wake_up = asyncio.get_running_loop().create_future()
        awaited = [assigned.answer for assigned in self._by_queue.values() if assigned.answer is not None]
        with suppress(TimeoutError):
            first_done = asyncio.wait([*awaited, self._wake_up], return_when="FIRST_COMPLETED")
            await self._network.clock.wait_for(first_done, limit_s)

    def positions(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The next offsets, of those where it is known. Raises: ConfigError, one is not assigned."""
        positions = {queue: self.of(queue).position for queue in queues}
        return {queue: position for queue, position in positions.items() if position is not None}

    def _pull(self, assigned: AssignedQueue) -> asyncio.Future[Any]:
        """A pull, or the preparation that it needs."""
        network, queue = self._network, assigned.queue
        address = network.routes.replica(queue.broker_name, assigned.broker_id)
        session = network.brokers.open_session(address) if address is not None else None
        if session is None or assigned.position is None or assigned.is_cut_off:
            return self._spawn(self._prepare(assigned), f"begin {queue}")
        request = pulling.request(
            self._settings.group,
            queue,
            assigned.next_offset,
            assigned.subscription,
            count=self._settings.pull_batch,
            hold_s=pulling.HOLD_S,
            is_lite=True,
        )
        return session.call(request, timeout_s=pulling.HOLD_S + pulling.ANSWER_S, accept=pulling.ACCEPTED)

    async def _prepare(self, assigned: AssignedQueue) -> SparrowError | None:
        try:
            await self.begin(assigned)
            await self._network.brokers.having(assigned.queue, assigned.broker_id)
            if assigned.is_cut_off:
                group, subscription = self._settings.group, assigned.subscription
                offset = await pulling.offset_after_break(group, assigned, subscription, self._network.brokers)
                if offset < assigned.next_offset:
                    assigned.go_on(offset)
                assigned.is_cut_off = False
        except SparrowError as error:
            return error
        return None

    def _take(self, assigned: AssignedQueue, answer: Response[PullMessageReply]) -> None:
        messages = pulling.messages_of_answer(answer, assigned, assigned.subscription, self._network.brokers.log_limit)
        assigned.is_failing = False
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._delay_next_pull(assigned, False)
            assigned.answer = self._spawn(self._move(assigned, answer.header), f"move {assigned.queue}")
            return
        has_advanced = answer.header.next_begin_offset > assigned.next_offset
        assigned.next_offset = answer.header.next_begin_offset
        assigned.broker_id = answer.header.suggest_which_broker_id
        deliver_from(messages, assigned.queue, None, self._owner, self._network.namespace)
        assigned.fetched.extend(messages)
        pulling.note_last(assigned, messages)
        self._delay_next_pull(assigned, has_advanced)
        if not assigned.fetched:
            assigned.position = assigned.next_offset

    def _delay_next_pull(self, assigned: AssignedQueue, has_messages: bool) -> None:
        now_s = self._network.clock.monotonic()
        pause_s = assigned.empty_polls.pause_s(has_messages, now_s - assigned.asked_s)
        if pause_s:
            assigned.not_before_s = now_s + pause_s

    async def _move(self, assigned: AssignedQueue, reply: PullMessageReply) -> SparrowError | None:
        """Go on at another offset, because the queue has none of ours. Return the error if that fails."""
        queue, offset = assigned.queue, reply.next_begin_offset
        try:
            if assigned.next_offset > reply.max_offset:
                offset = await pulling.first_new(assigned, offset, self._network.brokers)
        except SparrowError as error:
            return error
        pulling.log_move(self._network.brokers.log_limit, queue, assigned.next_offset, reply, offset)
        assigned.go_on(offset)
        assigned.broker_id = reply.suggest_which_broker_id
        return None

    def _handle_refusal(self, assigned: AssignedQueue, error: RemoteError) -> None:
        """Wait out a refusal that passes, or that ends when another queue is assigned. Raises: RemoteError, others."""
        if error.code in pulling.UNKNOWN_GROUP:
            self._spawn(self._network.brokers.announce(), "announce")
            self._postpone(assigned, error)
        elif error.code in pulling.TEMPORARY:
            self._postpone(assigned, error)
        elif assigned.is_shared and not isinstance(error, AccessDenied) and assigned.refusal is not error:
            assigned.refusal = error
            assigned.answer = self._spawn(self._error_unless_lost(assigned, error), f"look for {assigned.queue}")
        else:
            raise error

    async def _error_unless_lost(self, assigned: AssignedQueue, error: RemoteError) -> RemoteError | None:
        """Return the error, unless the topic has lost the queue: then another assignment follows from the route. A
        broker may refuse before name servers know why, so the first refusal is no error.
        """
        with suppress(NoRoute, NetworkError):
            route = await self._network.routes.fetch(assigned.queue.topic)
            if assigned.is_failing and assigned.queue in route.readable:
                return error
        self._postpone(assigned, error)
        return None

    def _postpone(self, assigned: AssignedQueue, error: Exception) -> None:
        level = logging.DEBUG if assigned.is_failing else logging.WARNING
        log.log(level, "cannot read %s, trying again: %s", assigned.queue, error)
        assigned.is_failing = True
        assigned.is_cut_off |= isinstance(error, NetworkError) and assigned.broker_id == MASTER
        assigned.broker_id = MASTER
        assigned.not_before_s = self._network.clock.monotonic() + pulling.PAUSE_S


def _retrieve_error(answer: asyncio.Future[Any]) -> None:
    """Look at the error of an answer, so that asyncio does not report it as never retrieved."""
    if not answer.cancelled():
        answer.exception()
