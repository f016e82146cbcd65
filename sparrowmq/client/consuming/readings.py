"""The queues that a pull consumer reads: the offset, the request and the fetched messages of each queue.

    assigned -> begun (at the group's offset, or `start`) -> asked -> answered -> fetched -> handed out -> asked ...

One request for each queue is under way at a time, also between two calls of `poll`. Messages are handed out from the
queues in turns. Finding the first offset and connecting happen in the background, so an absent broker does not delay
the messages of others. Source: PullTaskImpl and AssignedMessageQueue, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.client.consuming import pulling
from sparrowmq.client.consuming.consumer_settings import PullSettings
from sparrowmq.client.consuming.empty_polls import EmptyPollBackoff
from sparrowmq.client.consuming.first_offset import first_offset
from sparrowmq.client.consuming.offset_store import OffsetStore
from sparrowmq.client.consuming.received import HandedOut, ReceivedMessage, received
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.errors import (
    AccessDenied,
    ConfigError,
    NetworkError,
    NoRoute,
    ProtocolError,
    RemoteError,
    SparrowError,
)
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ProcessQueueState
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Reading:
    """One assigned queue.

    Attributes:
        position: the next offset that is handed out; None until it is known.
        handled: everything before it was handed out by an earlier `poll`; None when that says nothing.
        is_shared: the topic is subscribed, so a queue that the topic loses is given up.
        next_offset: what to ask for next.
        last_offset, stored_ms: of the last message that came: its offset, and when it was stored; 0 before the first.
        fetched: messages that are here and not handed out yet.
        answer: what is waited for: the answer of a pull, or None or an error from making one possible.
        is_cut_off: its broker was lost, and may come back without its last messages.
        is_held: the program's listener is being called with it; no message of it is handed out meanwhile.
        not_before: when a queue that failed, or has found nothing without a wait, is asked again.
        asked_s: when it was asked last.
        fruitless: makes the pauses after answers that found nothing without a wait.
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
    not_before: float = 0.0
    asked_s: float = 0.0
    fruitless: EmptyPollBackoff = field(default_factory=EmptyPollBackoff)
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
        self.not_before = 0.0

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


class Readings:
    """All assigned queues of one pull consumer."""

    def __init__(self, settings: PullSettings, network: Network, offsets: OffsetStore, spawn: Spawn) -> None:
        self._settings = settings
        self._network = network
        self._offsets = offsets
        self._spawn = spawn
        self._owner = HandedOut(network.answers, rules=FailureRules(settings.group))
        self._by_queue: dict[MessageQueue, Reading] = {}  # in the order of their turns
        self._nudged: asyncio.Future[None] | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._by_queue)

    def all(self) -> list[Reading]:
        return list(self._by_queue.values())

    def of(self, queue: MessageQueue) -> Reading:
        """Raises: ConfigError, it is not assigned."""
        try:
            return self._by_queue[queue]
        except KeyError:
            raise ConfigError(
                f"{self._network.plain_queue(queue)} is not assigned (any more); call assign first, or see `assigned`"
            ) from None

    def add(self, queue: MessageQueue, subscription: Subscription, *, is_shared: bool = False) -> Reading:
        """Read the queue with this filter; a queue that is read already keeps its position."""
        reading = self._by_queue.get(queue)
        if reading is None:
            reading = self._by_queue[queue] = Reading(queue, subscription, is_shared)
        else:
            self.refilter(reading, subscription)
        return reading

    def refilter(self, reading: Reading, subscription: Subscription) -> None:
        """Change the filter, and drop messages that were pulled with the former one."""
        former, reading.subscription = reading.subscription, subscription
        if (former.expression, former.kind) != (subscription.expression, subscription.kind):
            handled = reading.handled
            reading.move(reading.position)
            reading.handled = handled

    def drop(self, queue: MessageQueue) -> None:
        reading = self._by_queue.pop(queue, None)
        if reading is not None:
            reading.move(None)

    def nudge(self) -> None:
        """End a `wait`, so that its caller looks again."""
        if self._nudged is not None and not self._nudged.done():
            self._nudged.set_result(None)

    async def begin(self, reading: Reading) -> int:
        """The next offset; first find the begin if it is unknown. Raises: SparrowError."""
        if reading.position is None:
            offset = await first_offset(reading.queue, self._settings.start, self._offsets, self._network.brokers)
            if reading.position is None:  # The program has not called `seek` meanwhile.
                reading.position = reading.next_offset = offset
        return reading.position

    def ask(self) -> None:
        """Send a pull for each queue without messages here."""
        now = self._network.clock.monotonic()
        for reading in self._by_queue.values():
            is_idle = reading.answer is None and not reading.fetched
            if is_idle and not reading.is_paused and not reading.is_held and now >= reading.not_before:
                reading.asked_s = now
                reading.answer = self._pull(reading)
                reading.answer.add_done_callback(_look)  # A reading may be left before it is collected.

    def collect(self) -> None:
        """Take the answers that arrived. Raises: RemoteError, a broker refuses, and will refuse again."""
        for reading in self._by_queue.values():
            answer = reading.answer
            if answer is None or not answer.done():
                continue
            reading.answer = None
            try:
                outcome = answer.result()
                if isinstance(outcome, Response):
                    self._take(reading, outcome)
                elif isinstance(outcome, SparrowError):
                    raise outcome
            except (NetworkError, ProtocolError) as error:
                self._postpone(reading, error)
            except RemoteError as error:
                self._refused(reading, error)

    def hand_out(self, max_count: int) -> list[ReceivedMessage]:
        """The messages that are here. A queue that was served goes behind the others."""
        messages: list[ReceivedMessage] = []
        for queue, reading in list(self._by_queue.items()):
            if len(messages) >= max_count:
                break
            fetched = reading.fetched
            if not fetched or reading.is_paused or reading.is_held:
                continue
            while fetched and len(messages) < max_count:
                messages.append(fetched.popleft())
            reading.position = fetched[0].offset if fetched else reading.next_offset
            del self._by_queue[queue]
            self._by_queue[queue] = reading
        return messages

    async def wait(self, limit_s: float) -> None:
        """Wait until an answer may have come, or a queue may be asked again, at most so many seconds."""
        now_s = self._network.clock.monotonic()
        ends_s = (each.not_before - now_s for each in self._by_queue.values() if each.not_before > now_s)
        limit_s = min([limit_s, *ends_s])
        if self._nudged is None or self._nudged.done():
            self._nudged = asyncio.get_running_loop().create_future()
        waiting = [each.answer for each in self._by_queue.values() if each.answer is not None]
        with suppress(TimeoutError):
            first = asyncio.wait([*waiting, self._nudged], return_when="FIRST_COMPLETED")
            await self._network.clock.wait_for(first, limit_s)

    def positions(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """The next offsets, of those where it is known. Raises: ConfigError, one is not assigned."""
        found = {queue: self.of(queue).position for queue in queues}
        return {queue: position for queue, position in found.items() if position is not None}

    def _pull(self, reading: Reading) -> asyncio.Future[Any]:
        """A pull, or the preparation that it needs."""
        network, queue = self._network, reading.queue
        address = network.routes.replica(queue.broker_name, reading.broker_id)
        session = network.brokers.live(address) if address is not None else None
        if session is None or reading.position is None or reading.is_cut_off:
            return self._spawn(self._prepare(reading), f"begin {queue}")
        request = pulling.request(
            self._settings.group,
            queue,
            reading.next_offset,
            reading.subscription,
            count=self._settings.pull_batch,
            hold_s=pulling.HOLD_S,
            is_lite=True,
        )
        return session.call(request, timeout_s=pulling.HOLD_S + pulling.ANSWER_S, accept=pulling.ACCEPTED)

    async def _prepare(self, reading: Reading) -> SparrowError | None:
        """Find the begin, and connect. Return the error if that fails."""
        try:
            await self.begin(reading)
            await self._network.brokers.having(reading.queue, reading.broker_id)
            if reading.is_cut_off:
                group, subscription = self._settings.group, reading.subscription
                offset = await pulling.offset_after_break(group, reading, subscription, self._network.brokers)
                if offset < reading.next_offset:
                    reading.go_on(offset)
                reading.is_cut_off = False
        except SparrowError as error:
            return error
        return None

    def _take(self, reading: Reading, answer: Response[PullMessageReply]) -> None:
        found = pulling.found_in(answer, reading, reading.subscription, self._network.brokers.lines)
        reading.is_failing = False
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._rest(reading, False)
            reading.answer = self._spawn(self._move(reading, answer.header), f"move {reading.queue}")
            return
        goes_on = answer.header.next_begin_offset > reading.next_offset
        reading.next_offset = answer.header.next_begin_offset
        reading.broker_id = answer.header.suggest_which_broker_id
        reading.fetched.extend(received(found, reading.queue, None, self._owner, self._network.namespace))
        pulling.note_last(reading, found)
        self._rest(reading, goes_on)
        if not reading.fetched:
            reading.position = reading.next_offset

    def _rest(self, reading: Reading, has_messages: bool) -> None:
        now_s = self._network.clock.monotonic()
        pause_s = reading.fruitless.pause_s(has_messages, now_s - reading.asked_s)
        if pause_s:
            reading.not_before = now_s + pause_s

    async def _move(self, reading: Reading, reply: PullMessageReply) -> SparrowError | None:
        """Go on at another offset, because the queue has none of ours. Return the error if that fails."""
        queue, offset = reading.queue, reply.next_begin_offset
        try:
            if reading.next_offset > reply.max_offset:
                offset = await pulling.first_new(reading, offset, self._network.brokers)
        except SparrowError as error:
            return error
        pulling.log_move(self._network.brokers.lines, queue, reading.next_offset, reply, offset)
        reading.go_on(offset)
        reading.broker_id = reply.suggest_which_broker_id
        return None

    def _refused(self, reading: Reading, error: RemoteError) -> None:
        """Wait out a refusal that passes, or that ends when another queue is assigned. Raises: RemoteError, others."""
        if error.code in pulling.UNKNOWN_HERE:
            self._spawn(self._network.brokers.announce(), "announce")
            self._postpone(reading, error)
        elif error.code in pulling.PASSING:
            self._postpone(reading, error)
        elif reading.is_shared and not isinstance(error, AccessDenied) and reading.refusal is not error:
            reading.refusal = error
            reading.answer = self._spawn(self._if_there(reading, error), f"look for {reading.queue}")
        else:
            raise error

    async def _if_there(self, reading: Reading, error: RemoteError) -> RemoteError | None:
        """Return the error, unless the topic has lost the queue: then another assignment follows from the route.

        A broker may refuse before name servers know why, so the first refusal is no error.
        """
        with suppress(NoRoute, NetworkError):
            route = await self._network.routes.fetch(reading.queue.topic)
            if reading.is_failing and reading.queue in route.readable:
                return error
        self._postpone(reading, error)
        return None

    def _postpone(self, reading: Reading, error: Exception) -> None:
        level = logging.DEBUG if reading.is_failing else logging.WARNING
        log.log(level, "cannot read %s, trying again: %s", reading.queue, error)
        reading.is_failing = True
        reading.is_cut_off |= isinstance(error, NetworkError) and reading.broker_id == MASTER
        reading.broker_id = MASTER
        reading.not_before = self._network.clock.monotonic() + pulling.PAUSE_S


def _look(answer: asyncio.Future[Any]) -> None:
    """Look at the error of an answer, so that asyncio does not report it as never retrieved."""
    if not answer.cancelled():
        answer.exception()
