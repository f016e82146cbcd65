"""Reads queues under the program's own control: which, from where, when, how much.

    async with mq.pull_consumer(group="audit") as reader:
        reader.assign(await reader.queues("orders"))
        await reader.seek_to_time(datetime(2026, 11, 1))
        while messages := await reader.poll(timeout_s=5):
            ...
            await reader.commit()

No queue is shared out: two readers of one group read the same. One request for each queue is under way at a time
and is kept from one `poll` to the next, so nothing runs in the background. Source: DefaultLitePullConsumer, Java
4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

from sparrowmq.client.cluster.membership import Membership
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.route import MASTER
from sparrowmq.client.consuming import pulling
from sparrowmq.client.consuming.first_offset import first_offset, newest, offset_at, oldest
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.client.consuming.received import HandedOut, ReceivedMessage
from sparrowmq.client.consuming.settings import Start, subscription
from sparrowmq.errors import ConfigError, NetworkError, ProtocolError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import check_group
from sparrowmq.protocol.requests.bodies import (
    ConsumeOutcome,
    ConsumerBeat,
    ConsumerRunning,
    ProcessQueueState,
)
from sparrowmq.protocol.requests.headers import PullMessageReply, UnregisterClient
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.session import Response

log = logging.getLogger(__name__)

Answer = asyncio.Future[Response[PullMessageReply]]


@dataclass(slots=True)
class _Reading:
    """One assigned queue.

    Attributes:
        position: the next offset that `poll` returns; None until it is known.
        fetched: messages that are here and not returned yet.
        next_offset: what to ask for next.
        not_before: when a queue that failed is asked again.
    """

    subscription: Subscription
    position: int | None = None
    next_offset: int = 0
    fetched: deque[ReceivedMessage] = field(default_factory=deque)
    answer: Answer | None = None
    is_paused: bool = False
    broker_id: int = MASTER
    not_before: float = 0.0

    def move(self, offset: int) -> None:
        """Go on elsewhere; what was asked for or fetched is forgotten."""
        if self.answer is not None:
            self.answer.cancel()
            self.answer = None
        self.fetched.clear()
        self.position = self.next_offset = offset


class PullConsumer:
    """Reads assigned queues. Made by `Client.pull_consumer`; use it as an async context manager.

    Every call may be cancelled; a cancelled `poll` returns its messages the next time. Leaving commits nothing.

    Args:
        start: where a queue begins whose group has no committed offset, and that nobody sought.
    """

    def __init__(
        self,
        group: str,
        network: Network,
        membership: Membership,
        start: Start = "latest",
        pull_batch: int = 32,
    ) -> None:
        self.group = check_group(group)
        self._network = network
        self._membership = membership
        self._start = start
        self._pull_batch = pull_batch
        self._offsets = BrokerOffsets(group, network.brokers)
        self._owner = HandedOut(network.answers)
        self._readings: dict[MessageQueue, _Reading] = {}

    async def __aenter__(self) -> PullConsumer:
        self._membership.add_consumer(self)
        await self._network.brokers.announce()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.assign(())
        self._membership.remove_consumer(self)
        await self._network.brokers.tell_all(
            UnregisterClient(client_id=self._network.client_id, consumer_group=self.group)
        )

    # Which queues ---------------------------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read. Raises: NoRoute."""
        return list((await self._network.routes.of(self._network.full_name(topic))).readable)

    def assign(
        self, queues: Iterable[MessageQueue], tag: str | None = None, *, where: str | None = None
    ) -> None:
        """Read exactly these queues; those that were assigned before keep their position."""
        wanted = set(queues)
        for queue in self._readings.keys() - wanted:
            self._readings.pop(queue).move(0)
        now_ms = self._network.clock.now_ms()
        for queue in sorted(wanted - self._readings.keys()):
            self._readings[queue] = _Reading(subscription(queue.topic, tag, where, now_ms))

    @property
    def assigned(self) -> list[MessageQueue]:
        """What is read."""
        return sorted(self._readings)

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing more of these queues, of all by default, until `resume`."""
        for queue in queues or self.assigned:
            self._reading(queue).is_paused = True

    def resume(self, *queues: MessageQueue) -> None:
        """Undo `pause`."""
        for queue in queues or self.assigned:
            self._reading(queue).is_paused = False

    # Where ----------------------------------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset."""
        if offset < 0:
            raise ConfigError(f"offset {offset} is negative; a queue begins at 0")
        self._reading(queue).move(offset)

    async def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Go on at the oldest message that is kept, in all queues by default."""
        for queue in queues or self.assigned:
            self.seek(queue, await oldest(queue, self._network.brokers))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the newest message, in all queues by default."""
        for queue in queues or self.assigned:
            self.seek(queue, await newest(queue, self._network.brokers))

    async def seek_to_time(self, time: datetime, *queues: MessageQueue) -> None:
        """Go on at the message stored nearest to a time, in all queues by default; without a zone it is local time."""
        for queue in queues or self.assigned:
            self.seek(queue, await offset_at(queue, time, self._network.brokers))

    async def position(self, queue: MessageQueue) -> int:
        """The offset that `poll` returns next."""
        reading = self._reading(queue)
        await self._begin(queue, reading)
        assert reading.position is not None, "it was found out just now"
        return reading.position

    async def positions(self) -> dict[MessageQueue, int]:
        """The next offset of every assigned queue."""
        return {queue: await self.position(queue) for queue in self.assigned}

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group stands at the broker."""
        return await self._offsets.read(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit these offsets, or the positions: everything that `poll` has returned.

        Offsets that a broker did not take are logged, and sent again by the next commit.
        """
        known = {queue: each.position for queue, each in self._readings.items() if each.position is not None}
        await self._offsets.commit(known if offsets is None else offsets)

    # Reading --------------------------------------------------------------------------------------------------------

    async def poll(self, max_count: int = 1000, timeout_s: float = 5.0) -> list[ReceivedMessage]:
        """The next messages, as soon as there are any; none when `timeout_s` is over.

        Brokers that cannot be reached are tried again and again, and meanwhile give nothing.

        Raises:
            RemoteError: a broker refuses, as for a filter that it cannot read.
        """
        if not self._readings:
            raise ConfigError("no queue is assigned; call assign(await reader.queues(topic)) first")
        clock = self._network.clock
        deadline = clock.monotonic() + timeout_s
        while True:
            self._collect()
            await self._ask()
            messages = self._hand_out(max_count)
            remaining_s = deadline - clock.monotonic()
            if messages or remaining_s <= 0:
                return messages
            await self._wait(min(remaining_s, pulling.PAUSE_S))

    async def _ask(self) -> None:
        """Have a request under way for each queue that has nothing here."""
        for queue, reading in list(self._readings.items()):
            idle = reading.answer is None and not reading.fetched and not reading.is_paused
            if not idle or self._network.clock.monotonic() < reading.not_before:
                continue
            try:
                offset = await self._begin(queue, reading)
                session = await self._network.brokers.of(queue.broker_name, reading.broker_id)
            except NetworkError as error:
                self._postpone(queue, reading, error)
                continue
            request = pulling.request(
                self.group, queue, offset, reading.subscription, count=self._pull_batch, hold_s=pulling.HOLD_S
            )
            reading.answer = session.call(
                request, timeout_s=pulling.HOLD_S + pulling.ANSWER_S, accept=pulling.ACCEPTED
            )

    async def _begin(self, queue: MessageQueue, reading: _Reading) -> int:
        """What to ask for next; finds out where to begin."""
        if reading.position is None:
            offset = await first_offset(queue, self._start, self._offsets, self._network.brokers)
            if reading.position is None:  # Nobody sought meanwhile.
                reading.move(offset)
        return reading.next_offset

    async def _wait(self, limit_s: float) -> None:
        answers = [reading.answer for reading in self._readings.values() if reading.answer is not None]
        if not answers:
            await self._network.clock.sleep(limit_s)
            return
        with suppress(TimeoutError):
            await self._network.clock.wait_for(asyncio.wait(answers, return_when="FIRST_COMPLETED"), limit_s)

    def _collect(self) -> None:
        """Take over what was answered."""
        for queue, reading in self._readings.items():
            answer = reading.answer
            if answer is None or not answer.done():
                continue
            reading.answer = None
            try:
                self._take(queue, reading, answer.result())
            except (NetworkError, ProtocolError) as error:
                self._postpone(queue, reading, error)
            except RemoteError as error:
                if error.code not in pulling.UNKNOWN_HERE:
                    raise
                self._postpone(queue, reading, error)

    def _take(self, queue: MessageQueue, reading: _Reading, answer: Response[PullMessageReply]) -> None:
        reading.next_offset = answer.header.next_begin_offset
        reading.broker_id = answer.header.suggest_which_broker_id
        if answer.code == ResponseCode.SUCCESS:
            stored = pulling.messages_in(answer.body, queue, reading.subscription)
            namespace = self._network.namespace
            reading.fetched.extend(
                ReceivedMessage(each, queue, None, self._owner, namespace) for each in stored
            )
        if not reading.fetched:
            reading.position = reading.next_offset

    def _hand_out(self, max_count: int) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        for reading in self._readings.values():
            if reading.is_paused:
                continue
            while reading.fetched and len(messages) < max_count:
                messages.append(reading.fetched.popleft())
                reading.position = reading.fetched[0].offset if reading.fetched else reading.next_offset
        return messages

    def _postpone(self, queue: MessageQueue, reading: _Reading, error: Exception) -> None:
        log.warning("cannot read %s, trying again: %s", queue, error)
        reading.broker_id = MASTER
        reading.not_before = self._network.clock.monotonic() + pulling.PAUSE_S

    def _reading(self, queue: MessageQueue) -> _Reading:
        try:
            return self._readings[queue]
        except KeyError:
            raise ConfigError(f"{queue} is not assigned; call assign first") from None

    # What brokers ask -----------------------------------------------------------------------------------------------

    def beat(self) -> ConsumerBeat:
        """Our part of a heartbeat."""
        subscriptions = {each.subscription.topic: each.subscription for each in self._readings.values()}
        return ConsumerBeat(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            subscription_data_set=list(subscriptions.values()),
        )

    def members_changed(self) -> None:
        """Of no concern: nothing is shared out."""

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator moved the group to other offsets."""
        for queue, offset in offsets.items():
            if queue in self._readings:
                self.seek(queue, offset)

    def running(self) -> ConsumerRunning:
        """What the consumer is doing, for an operator."""
        return ConsumerRunning(
            properties={
                "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
                "PROP_NAMESERVER_ADDR": str(self._network.name_servers),
            },
            subscription_set=[each.subscription for each in self._readings.values()],
            mq_table={
                queue: ProcessQueueState(commit_offset=each.position or 0, cached_msg_count=len(each.fetched))
                for queue, each in self._readings.items()
            },
        )

    def positions_in(self, topic: str) -> dict[MessageQueue, int]:
        """What `poll` returns next of each queue of a topic, for an operator; 0 where it has not begun."""
        return {queue: each.position or 0 for queue, each in self._readings.items() if queue.topic == topic}

    async def handle_directly(self, stored: StoredMessage, broker_name: str) -> ConsumeOutcome:
        """It has no handler. Raises: RemoteError."""
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR, f"the consumer of group {self.group} polls, and has no handler to call"
        )
