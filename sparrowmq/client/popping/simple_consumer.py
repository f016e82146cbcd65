"""Receives messages one request at a time, and acknowledges each by itself. Brokers share out the messages.

    async with mq.simple_consumer("orders", group="billing") as consumer:
        for message in await consumer.receive(max_messages=16, invisible_s=30, wait_s=20):
            await bill(message.json())
            await consumer.ack(message)

    receive              all brokers of all topics in turn, without waiting, until there are enough messages
    nothing anywhere     wait at all of them; the first with a message is popped, and the others keep their messages
    a broker is silent   after 3 s the others are asked, and the silent one again when it has answered, or after 15 s

A wait takes no message, so it may be cancelled, and the next call goes on with it, as with a pop that was cancelled on
its way. If there is no next call, the pop makes its messages visible again, which counts as a delivery.

No consumer owns a queue, so there may be more consumers than queues, and a slow message delays no other. A message that
is not acknowledged within its invisible time is delivered again. Source: SimpleConsumer, Java 5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final
from uuid import uuid4

from sparrowmq.client.arguments import check_count, check_seconds, check_text
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.consume_rate import ConsumeStats
from sparrowmq.client.consuming.consumer_settings import (
    SimpleSettings,
    check_invisible,
    consume_from_where,
    init_mode,
    subscription,
)
from sparrowmq.client.consuming.pulling import TEMPORARY, UNKNOWN_GROUP, EmptyPollBackoff
from sparrowmq.client.consuming.received_message import (
    ConsumeHooks,
    DetachedOwner,
    Outcome,
    ReceivedMessage,
    SettleOptions,
)
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.client.loop_affinity import checks_loop
from sparrowmq.client.popping.pop_requests import PAUSE_S, PopOptions, PopRedelivery, PopRequests
from sparrowmq.client.popping.popped_message import PoppedFrom, PoppedMessage, check_popped, check_unspent
from sparrowmq.client.sending.send_queue import SendQueue
from sparrowmq.client.sending.send_result import LESS_SAFE
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import ClientClosed, ConfigError, NetworkError, RemoteError, SparrowError
from sparrowmq.kernel.messages import unspent_of
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerBeat, ConsumerRunning
from sparrowmq.protocol.subscription import Subscription

log = logging.getLogger(__name__)
MAX_MESSAGES: Final = 1024
HOLD_S: Final = 20.0  # the longest wait of one request
LEAVE_LIMIT_S: Final = 3.0
ANSWER_LIMIT_S: Final = 3.0  # for the answer of a broker that holds no request, while others may have messages
_TEMPORARY: Final = TEMPORARY | LESS_SAFE  # an ordered pop is refused while slaves are behind


@short_tracebacks
@checks_loop()
class SimpleConsumer:
    """Receives messages of its topics. Made by `Client.simple_consumer`; use it as an async context manager.

    A cancelled `receive` makes its messages visible to other consumers again. Leaving waits a moment for acks that
    `message.ack()` has begun; messages that are not acknowledged come again after their invisible time. `group` is
    without the client's namespace, `full_group` as brokers know it.
    """

    def __init__(
        self,
        settings: SimpleSettings,
        subscriptions: Mapping[str, Subscription],
        network: Network,
        send_queue: SendQueue,
        hooks: Sequence[ConsumeHooks] = (),
    ) -> None:
        self.group = network.plain_name(settings.group)
        self.full_group = settings.group
        self._settings = settings
        self._subscriptions = dict(subscriptions)
        self._network = network
        self._loop_affinity = network.loop_affinity
        self._background = Background()
        self._pops = PopRequests(self.full_group, network, network.background.spawn)
        by_broker = BrokerRedelivery(self.full_group, settings.max_reconsume_times, network.brokers, send_queue)
        self._redelivery = PopRedelivery(self._pops, by_broker, settings.max_reconsume_times)
        rules = FailureRules(self.full_group, times=settings.max_reconsume_times)
        self._owner = DetachedOwner(network.answers, hooks=hooks, rules=rules)
        self._stats = ConsumeStats(network.clock)
        self._empty_polls = EmptyPollBackoff()
        self._turn = 0
        self._watch_tasks: dict[PoppedFrom, asyncio.Task[None]] = {}
        self._attempt_ids: dict[PoppedFrom, str] = {}
        self._failing_places: set[PoppedFrom] = set()
        self._silent_places: set[PoppedFrom] = set()  # that did not answer the last pop within SILENT_S
        self._is_cut_off = False

    async def receive(
        self, max_messages: int = 16, *, invisible_s: float = 30.0, wait_s: float = 20.0
    ) -> list[ReceivedMessage]:
        """Wait for messages, and return them; none after `wait_s`. With 0 it asks every broker once.

        A message must be acknowledged within `invisible_s`, or it is delivered again. Cancelling a wait takes no
        message. Messages that are just coming are visible again, and were delivered once. Brokers that cannot be
        reached are tried again and again.

        Raises:
            NoRoute: no name server knows a topic.
            RemoteError: a broker refuses, as for a filter that it cannot read.
            ConfigError: a broker cannot pop, or an argument is wrong.
            ClientClosed: the consumer was not entered, or its client was left.
        """
        check_count("max_messages", max_messages, at_most=MAX_MESSAGES)
        check_invisible("invisible_s", invisible_s)
        check_seconds("wait_s", wait_s, or_zero=True)
        clock = self._network.clock
        deadline = clock.monotonic() + wait_s
        self._stats.sample()
        while True:
            self._check_open()
            places = await self._places()
            answering = [place for place in places if not self._is_silent(place)]
            limit_s = ANSWER_LIMIT_S if len(places) > 1 else max(ANSWER_LIMIT_S, deadline - clock.monotonic())
            received_before = self._pops.received_count
            messages = await self._pop_in_turn(answering or places, max_messages, invisible_s, limit_s)
            remaining_s = deadline - clock.monotonic()
            if messages or remaining_s <= 0:
                if messages:
                    self._empty_polls.pause_s(True, 0.0)
                return list(messages)
            if self._failing_places.issuperset(places):
                await clock.sleep(min(PAUSE_S, remaining_s))
            else:
                await self._wait_for_any(places, min(remaining_s, HOLD_S))
                duration_s = clock.monotonic() - deadline + remaining_s
                if pause_s := self._empty_polls.pause_s(self._pops.received_count > received_before, duration_s):
                    await clock.sleep(min(pause_s, max(remaining_s - duration_s, 0.0)))

    async def _pop_in_turn(
        self, places: Sequence[PoppedFrom], max_messages: int, invisible_s: float, limit_s: float
    ) -> list[PoppedMessage]:
        """Pop from one place after another until there are enough messages. Each call begins at the next place."""
        first_index = self._turn % len(places)
        self._turn += 1
        messages: list[PoppedMessage] = []
        try:
            for place in (*places[first_index:], *places[:first_index]):
                while len(messages) < max_messages:
                    max_count = min(max_messages - len(messages), self._pops.max_count_of(place.broker_name))
                    popped_messages = await self._pop(place, max_count, invisible_s, limit_s)
                    messages += popped_messages
                    if len(popped_messages) < max_count:
                        break
        except asyncio.CancelledError:
            self._pops.show(messages)
            raise
        except SparrowError:
            if not messages:
                raise  # otherwise the next call raises it
        return messages

    async def _pop(self, place: PoppedFrom, max_count: int, invisible_s: float, limit_s: float) -> list[PoppedMessage]:
        subscription_of_topic = self._subscriptions.get(place.topic)
        if subscription_of_topic is None:
            return []
        attempt = self._attempt_ids.setdefault(place, uuid4().hex) if self._settings.order else None
        # A pop that waits there would, after a cancellation, take the next message for a program that is gone.
        options = PopOptions(
            subscription_of_topic,
            max_count,
            invisible_s,
            hold_s=0.0,
            init_mode=init_mode(self._settings.start),
            attempt_id=attempt,
        )
        try:
            pop = self._pops.pop(place, options, self._owner)
            messages = await self._network.clock.wait_for(pop, limit_s)
        except SparrowError as error:
            await self._wait_out(place, error)
            return []
        except TimeoutError:
            self._note_failure(place, f"no answer within {limit_s:.0f} s")
            self._silent_places.add(place)
            return []
        self._failing_places.discard(place)
        self._attempt_ids.pop(place, None)
        for message in messages:
            message._settle = self._settle
        stats = self._stats.of(place.topic)
        stats.pulls += bool(messages)
        stats.pulled += len(messages)
        return messages

    async def _wait_out(self, place: PoppedFrom, error: SparrowError) -> None:
        """Go on after an error that passes. Raises: the error, if it does not pass."""
        if isinstance(error, RemoteError) and error.code in UNKNOWN_GROUP:
            await self._network.brokers.announce()
        elif isinstance(error, RemoteError) and error.code not in _TEMPORARY:
            if error.code != ResponseCode.TOPIC_NOT_EXIST or await self._has_topic(place):
                raise error
        elif not isinstance(error, (NetworkError, RemoteError)):
            raise error
        self._note_failure(place, error)

    def _note_failure(self, place: PoppedFrom, error: object) -> None:
        level = logging.DEBUG if place in self._failing_places else logging.WARNING
        log.log(level, "cannot pop %s at %s, trying again: %s", *place, error)
        self._failing_places.add(place)

    def _is_silent(self, place: PoppedFrom) -> bool:
        if place in self._silent_places and not self._pops.is_under_way(place):
            self._silent_places.discard(place)
        return place in self._silent_places

    async def _has_topic(self, place: PoppedFrom) -> bool:
        """Whether the broker still has the topic: it may have moved. Raises: NoRoute, no broker has it. A name server
        may be behind with a new master, so other refusals do not ask for a route.
        """
        try:
            route = await self._network.routes.fetch(place.topic)
        except NetworkError:
            return True
        return any(queue.broker_name == place.broker_name for queue in route.readable)

    async def _places(self) -> list[PoppedFrom]:
        places: list[PoppedFrom] = []
        for topic in list(self._subscriptions):
            route = await self._network.routes.of(topic)
            broker_names = dict.fromkeys(queue.broker_name for queue in route.readable)
            places += (PoppedFrom(topic, name) for name in broker_names)
        self._failing_places.intersection_update(places)
        if not places:
            raise ConfigError("no topic is subscribed, or none can be read now; call `subscribe(topic)` first")
        return places

    async def _wait_for_any(self, places: Sequence[PoppedFrom], wait_s: float) -> None:
        """Wait until one of the places may have a message. Requests that still wait are kept for the next call."""
        self._watch_tasks = {place: task for place, task in self._watch_tasks.items() if not task.done()}
        for place in places:
            if place not in self._watch_tasks:
                self._watch_tasks[place] = self._background.spawn(self._watch(place), f"wait for {place.topic}")
        tasks = [self._watch_tasks[place] for place in places]
        first_done = asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):
            await self._network.clock.wait_for(first_done, wait_s)

    async def _watch(self, place: PoppedFrom) -> None:
        try:
            order = self._settings.order
            await self._pops.wait(place, HOLD_S, is_orderly=order, attempt_id=self._attempt_ids.get(place))
        except SparrowError as error:
            log.debug("cannot wait for %s at %s: %s", *place, error)
            await self._network.clock.sleep(PAUSE_S)

    async def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Acknowledge a message, or many. A message that is settled already is left out.

        Raises: SparrowError, some could not be acknowledged, and may be delivered again; the others are acknowledged,
        and another call tries the failed ones again; ConfigError, one was not received by a simple consumer.
        """
        all_messages = list(messages) if isinstance(messages, Iterable) else [messages]
        unspent_messages = unspent_of([check_popped(message) for message in all_messages])
        settles = [message._settle for message in unspent_messages]
        for message in unspent_messages:
            message._settle = None  # nothing else settles it meanwhile
        try:
            await self._pops.ack(unspent_messages)
        finally:
            for message, settle in zip(unspent_messages, settles, strict=True):
                if message._is_spent:
                    self._stats.of(message._receipt.topic).done += 1
                else:
                    message._settle = settle

    async def change_invisible(self, message: ReceivedMessage, seconds: float) -> None:
        """Let the message be delivered again so many seconds from now, if it is not acknowledged before.
        Raises: ConfigError, it was not received by a simple consumer, or is settled already; SparrowError, the broker
        does not answer, or refuses, as for a message that is visible again.
        """
        check_invisible("seconds", seconds)
        await self._pops.change_invisible(check_unspent(message, "its invisible time cannot be changed"), seconds)

    async def dead_letter(self, message: ReceivedMessage, reason: str = "rejected") -> None:
        """Put the message into the group's dead-letter queue, and acknowledge it.

        Raises: ConfigError, it was not received by a simple consumer, or is settled already, or the reason is no text;
        SparrowError, no broker accepted it, or it could not be acknowledged. Then it is delivered again, unless another
        call succeeds. A copy that is in the dead-letter queue stays the only one.
        """
        check_text("reason", reason)
        check_unspent(message, "it cannot become a dead letter")
        settle, message._settle = message._settle, None
        message._options = SettleOptions(reason=reason)
        try:
            await self._redelivery.reject(message)
        except BaseException:
            message._settle = settle or message._settle  # another call at the same time may have it
            raise
        message._settle = None  # the other call may have failed before

    def _settle(self, message: ReceivedMessage, outcome: Outcome) -> None:
        stats = self._stats.of(message.full_topic)
        if outcome is Outcome.DONE:
            stats.done += 1
            self._pops.acks.add(check_popped(message))
        else:
            stats.failed += 1
            self._background.spawn(self._give_back(message, outcome), "give back")

    async def _give_back(self, message: ReceivedMessage, outcome: Outcome) -> None:
        give_back = self._redelivery.reject if outcome is Outcome.REJECTED else self._redelivery.give_back
        try:
            await give_back(message)
        except SparrowError as error:
            log.warning("cannot give back %r; it comes again after its invisible time: %s", message, error)

    async def subscribe(self, topic: str, tag: str | None = None, *, where: str | None = None) -> None:
        """Receive another topic, or change the filter of one. All consumers of the group must do the same."""
        topic = self._network.full_topic(topic)
        self._subscriptions[topic] = subscription(topic, tag, where, self._network.clock.now_ms())
        await self._network.brokers.announce()

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic. All consumers of the group must do the same."""
        self._subscriptions.pop(self._network.full_topic(topic), None)
        await self._network.brokers.announce()

    async def __aenter__(self) -> SimpleConsumer:
        """Join the group. Raises: ClientClosed, ConfigError."""
        self._network.check_open()
        self._background.check_new()
        self._network.membership.add_consumer(self)
        try:
            await self._background.__aenter__()
            for topic in list(self._subscriptions):
                with suppress(SparrowError):
                    await self._network.routes.of(topic)
            await self._network.brokers.announce()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop_affinity.is_forked:
            return  # It receives in the parent.
        self._background.check_outside()
        network = self._network
        try:
            await network.clock.wait_for(self._pops.wait_for_acks(), LEAVE_LIMIT_S)
        except TimeoutError:
            log.warning("group %s could not acknowledge everything; some messages come again", self.full_group)
        finally:
            await network.leave_group(self)
            await self._background.__aexit__(error_type, error, trace)

    def _check_open(self) -> None:
        if self._is_cut_off or not self._background.is_open:
            raise ClientClosed(
                f"the simple consumer of group {self.group} was not entered, or its client was left; "
                "receive inside its `with` block"
            )

    def _heartbeat_entry(self) -> ConsumerBeat:
        """Its part of a heartbeat. Java's brokers of 4.9 do not know CONSUME_POP."""
        return ConsumerBeat(
            group_name=self.full_group,
            consume_type="CONSUME_ACTIVELY",
            message_model="CLUSTERING",
            consume_from_where=consume_from_where(self._settings.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    def _on_members_changed(self) -> None:
        """Do nothing: brokers share out the messages."""

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing: the broker has moved the group."""

    async def _on_client_leaving(self) -> None:
        await self._pops.wait_for_acks()

    def _on_client_left(self) -> None:
        self._is_cut_off = True

    def _running_info(self) -> ConsumerRunning:
        return ConsumerRunning(
            status_table=self._stats.statuses(self._subscriptions),
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_NAMESERVER_ADDR": str(self._network.name_servers),
            },
            subscription_set=list(self._subscriptions.values()),
        )

    def _positions_in(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    async def _deliver_once(self, stored: StoredMessage, broker_name: str) -> ConsumeOutcome:
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR, f"the consumer of group {self.group} receives, and has no handler to call"
        )
