"""Delivers messages: many in flight on few connections, each retried on another broker, without a task for any of them.

    put -> waiting (window full) -> admitted -> queue chosen -> in flight -> answered -> future
                                      |  ^                          |
          parked until a route or     |  |  another broker, while   |
          a connection is there   <---+  +--attempts and time last--+

A message moves by plain calls and by the done-callbacks of its reply. Only a missing route or connection needs
waiting; then one task serves all messages that wait for the same, in order, so that messages to one queue never
overtake each other on the way to their first attempt. The window bounds what brokers hold for us; what waits
before it is bounded in bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from sparrowmq.client.cluster.brokers import Brokers
from sparrowmq.client.cluster.route import Route
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.client.sending.outcome import LESS_SAFE, may_go_right_again
from sparrowmq.client.sending.outgoing import Outgoing, Sent, no_queue
from sparrowmq.client.sending.queue_choice import FAILED_S, RoundRobin, SlowBrokers
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.clock import Clock
from sparrowmq.errors import (
    BrokerUnreachable,
    ClientClosed,
    NetworkError,
    NoRoute,
    ProtocolError,
    RemoteError,
    SendFailed,
    SparrowError,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.remoting.session import Session

BUSY: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
BACKED_UP_S: Final = 0.01
PAUSE_S: Final = 0.2  # before the next attempt, when there is no other broker to turn to


class Outbox:
    """The messages of one producer group that are not answered yet."""

    def __init__(
        self,
        group: str,
        settings: ProducerSettings,
        routes: Routes,
        brokers: Brokers,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._group = group
        self._settings = settings
        self._routes = routes
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        self._slow_brokers = SlowBrokers() if settings.avoid_slow_brokers else None
        self._round_robin = RoundRobin()
        self._waiting: deque[Outgoing] = deque()
        self._waiting_bytes = 0
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._parked: dict[str, list[Outgoing]] = {}
        # An entry while an ordered message to the queue is on its way: those behind it.
        self._lanes: dict[MessageQueue, deque[Outgoing]] = {}
        self._freed_lanes: deque[MessageQueue] = deque()
        self._is_refilling = False
        self._room_wanted: deque[asyncio.Future[None]] = deque()
        self._end_wanted: list[asyncio.Future[None]] = []
        self._closed = False

    def put(self, item: Outgoing) -> None:
        """Send it as soon as the window allows.

        Raises:
            SendFailed: too much waits already; nothing was sent.
            ClientClosed: the producer is closed.
        """
        if self._closed:
            raise ClientClosed("the producer is closed; send inside its `async with`")
        if self.has_room:
            self._admit(item)
        elif self._waiting_bytes + item.cost_bytes > self._settings.waiting_bytes:
            raise SendFailed(
                f"{len(self._waiting)} messages wait to be sent already; `await drain()` now and then"
            )
        else:
            self._waiting.append(item)
            self._waiting_bytes += item.cost_bytes

    @property
    def has_room(self) -> bool:
        """Whether the next message would go out at once."""
        return not self._waiting and self._window_is_open

    @property
    def _window_is_open(self) -> bool:
        return self._in_flight < self._settings.window and self._in_flight_bytes < self._settings.window_bytes

    @property
    def unanswered(self) -> int:
        """How many messages are waiting or in flight."""
        return len(self._waiting) + self._in_flight

    async def drain(self) -> None:
        """Return when the next message would go out at once. Cancelling leaves nothing behind."""
        while not self.has_room:
            wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room_wanted.append(wanted)
            await wanted

    async def flush(self) -> None:
        """Return when everything put so far, and meanwhile, is answered or has failed: the time limits bound that."""
        if self.unanswered:
            wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._end_wanted.append(wanted)
            await wanted

    def close(self) -> None:
        """Fail what is not sent yet; what is in flight may or may not be stored."""
        self._closed = True
        waiting, self._waiting = self._waiting, deque()
        queued = [item for items in (*self._parked.values(), *self._lanes.values()) for item in items]
        for item in (*waiting, *queued):
            item.fail(ClientClosed("the producer was closed before the message was sent"))

    # The way of a message -------------------------------------------------------------------------------------------

    def _admit(self, item: Outgoing) -> None:
        self._in_flight += 1
        self._in_flight_bytes += len(item.body)
        self._start_time(item)
        self._attempt(item)

    def _start_time(self, item: Outgoing) -> None:
        item.started = self._clock.monotonic()
        item.deadline = item.started + item.timeout_s

    def _attempt(self, item: Outgoing) -> None:
        """Choose a queue and go on; wait for the route first if it is not known."""
        route = self._routes.cached_for_sending(item.topic)
        key = f"route of {item.topic}"
        if route is None or key in self._parked:
            self._park(key, item, partial(self._find_route, key, item.topic))
        elif item.is_ordered:
            self._line_up(item, route)
        elif not route.writable:
            self._fail(item, no_queue(item.topic))
        else:
            item.queue = self._next_queue(item, route)
            self._connect(item, item.queue)

    def _next_queue(self, item: Outgoing, route: Route) -> MessageQueue:
        if (failed := item.failed_broker) is not None:
            return self._round_robin.next(route.writable, lambda name: name != failed)
        if self._slow_brokers is not None:
            now, slow = self._clock.monotonic(), self._slow_brokers
            return self._round_robin.next(route.writable, lambda name: slow.is_usable(name, now))
        return self._round_robin.next(route.writable)

    def _line_up(self, item: Outgoing, route: Route) -> None:
        """Send an ordered message when those before it to the same queue are answered.

        One connection is not enough to keep the order: Java's broker handles its requests in several threads.
        """
        try:
            item.queue = item.ordered_queue(route)
        except NoRoute as error:
            self._fail(item, error)
            return
        lane = self._lanes.get(item.queue)
        if lane is not None:
            lane.append(item)
            return
        self._lanes[item.queue] = deque()
        item.has_lane = True
        self._connect(item, item.queue)

    def _connect(self, item: Outgoing, queue: MessageQueue) -> None:
        address = self._routes.master(queue.broker_name)
        if address is None:
            self._routes.doubt()
            self._retry(item, BrokerUnreachable(queue.broker_name, "no route names its master now"))
            return
        session = self._brokers.live(address)
        if session is None or address in self._parked:
            self._park(address, item, partial(self._find_session, address))
        else:
            self._transmit(item, queue, session)

    def _transmit(self, item: Outgoing, queue: MessageQueue, session: Session) -> None:
        remaining_s = item.deadline - self._clock.monotonic()
        if remaining_s <= 0:
            self._fail(item, TimeoutError("its time was over before it could be sent"))
            return
        if item.future is None:
            self._transmit_oneway(item, queue, session)
            return
        item.attempts += 1
        header = item.request(self._group, queue, self._clock.now_ms())
        answer = session.call(header, item.body, timeout_s=remaining_s, accept=LESS_SAFE)
        answer.add_done_callback(partial(self._answered, item))

    def _transmit_oneway(self, item: Outgoing, queue: MessageQueue, session: Session) -> None:
        """No answer will make room in the window, so the message keeps its place while the broker does not read."""
        if session.is_backed_up:
            self._clock.call_later(BACKED_UP_S, self._connect, item, queue)
        else:
            session.tell(item.request(self._group, queue, self._clock.now_ms()), item.body)
            self._release(item)

    def _answered(self, item: Outgoing, answer: asyncio.Future[Sent]) -> None:
        error = answer.exception()
        if self._slow_brokers is not None and item.queue is not None:
            now = self._clock.monotonic()
            self._slow_brokers.report(item.queue.broker_name, FAILED_S if error else now - item.started, now)
        if error is not None:
            self._retry(item, error)
            return
        sent = answer.result()
        if sent.code and self._settings.retry_not_stored and self._may_retry(item):
            self._retry(item, RemoteError(ResponseCode.SYSTEM_ERROR, f"stored less safely: code {sent.code}"))
        else:
            item.succeed(sent)
            self._release(item)

    # Waiting and failing --------------------------------------------------------------------------------------------

    def _park(self, key: str, item: Outgoing, find: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Keep the item until `find`, started for the first one that waits for `key`, goes on with all of them."""
        if key in self._parked:
            self._parked[key].append(item)
        elif self._closed:
            self._fail(item, ClientClosed("the producer was closed"))
        else:
            self._spawn(find(), key)
            self._parked[key] = [item]

    async def _find_route(self, key: str, topic: str) -> None:
        failure: Exception | None = None
        try:
            limit_s = self._parked[key][0].timeout_s
            await self._clock.wait_for(self._routes.for_sending(topic), limit_s)
        except (SparrowError, TimeoutError) as error:
            failure = error
        for item in self._parked.pop(key):
            if failure is None:
                self._attempt(item)
            else:
                self._fail(item, failure)

    async def _find_session(self, address: str) -> None:
        session: Session | None = None
        failure: Exception = BrokerUnreachable(address, "no answer in time")
        try:
            limit_s = self._parked[address][0].timeout_s
            session = await self._clock.wait_for(self._brokers.session(address), limit_s)
        except (NetworkError, ProtocolError) as error:
            failure = error
        except TimeoutError:
            pass
        for item in self._parked.pop(address):
            assert item.queue is not None, "its queue was chosen before"
            if session is not None:
                self._transmit(item, item.queue, session)
            else:
                self._retry(item, failure)

    def _retry(self, item: Outgoing, error: BaseException) -> None:
        """Another attempt after an error, if it may have one.

        An unreachable broker does not count as an attempt: nothing was sent, so a short restart of the only
        broker passes unseen. Unlike Java, which gives up after three refused connections, within milliseconds.
        """
        if item.queue is not None:
            item.failed_broker = item.queue.broker_name
        if not self._may_retry(item) or not may_go_right_again(error):
            self._fail(item, error)
        elif isinstance(error, BrokerUnreachable):
            item.unreachable += 1
            untried = item.unreachable < self._broker_count(item.topic)
            self._clock.call_later(0.0 if untried else PAUSE_S, self._attempt, item)
        elif isinstance(error, RemoteError) and error.code in BUSY and self._broker_count(item.topic) == 1:
            self._clock.call_later(PAUSE_S, self._attempt, item)
        else:
            self._attempt(item)

    def _broker_count(self, topic: str) -> int:
        route = self._routes.cached_for_sending(topic)
        return len(route.brokers) if route is not None else 0

    def _may_retry(self, item: Outgoing) -> bool:
        return (
            not item.is_ordered
            and not self._closed
            and item.attempts <= self._settings.retries
            and self._clock.monotonic() < item.deadline
            and not item.is_abandoned
        )

    def _fail(self, item: Outgoing, error: BaseException) -> None:
        item.fail(error)
        self._release(item)

    def _release(self, item: Outgoing) -> None:
        """Its place in the window is free: let the next one in, and whoever waits for room."""
        self._in_flight -= 1
        self._in_flight_bytes -= len(item.body)
        if item.has_lane and item.queue is not None:
            self._freed_lanes.append(item.queue)
        if self._is_refilling:
            return  # What was let in has failed at once; the loop below goes on instead of getting deeper.
        self._is_refilling = True
        try:
            self._refill()
        finally:
            self._is_refilling = False
        if self._room_wanted and self.has_room:
            _wake(self._room_wanted, self._settings.window - self._in_flight)
        if self._end_wanted and not self.unanswered:
            ended, self._end_wanted = deque(self._end_wanted), []
            _wake(ended, len(ended))

    def _refill(self) -> None:
        while True:
            if self._freed_lanes:
                self._advance_lane(self._freed_lanes.popleft())
            elif self._waiting and self._window_is_open:
                following = self._waiting.popleft()
                self._waiting_bytes -= following.cost_bytes
                if not following.is_abandoned:
                    self._admit(following)
            else:
                return

    def _advance_lane(self, queue: MessageQueue) -> None:
        """The next ordered message to the queue may go; its time begins now."""
        lane = self._lanes[queue]
        if not lane:
            del self._lanes[queue]
            return
        item = lane.popleft()
        item.has_lane = True
        if item.is_abandoned:
            self._release(item)
        else:
            self._start_time(item)
            self._connect(item, queue)


def _wake(sleepers: deque[asyncio.Future[None]], count: int) -> None:
    while sleepers and count > 0:
        sleeper = sleepers.popleft()
        if not sleeper.done():
            sleeper.set_result(None)
            count -= 1
