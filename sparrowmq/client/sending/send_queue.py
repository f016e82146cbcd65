"""Delivers messages: many in flight on few connections, each retried on another broker, without a task for each.

    put -> waiting (window full) -> admitted -> queue chosen -> in flight -> answered -> future
                                      |  ^                          |
          parked until a route or     |  |  another broker, while   |
          a connection is there   <---+  +--attempts and time last--+

A repeated message says so (MAY_BE_STORED), if the broker understands that. It then stores the message once. An
idempotent producer never takes a message to another broker that may be stored at the first one. It repeats it there.

A message moves by plain calls and by the callbacks of its reply. Only a missing route or connection needs a task, one
for all messages that wait for it, in order. So messages to one queue never overtake each other before their first
attempt. The window limits the messages in flight; the messages before it are limited in bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.routes import Route, Routes
from sparrowmq.client.sending.accumulator import Accumulator
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.queue_choice import FAILED_S, BatchRoundRobin, RoundRobin, SlowBrokers
from sparrowmq.client.sending.send_request import BatchRequest, SendAnswer, SendRequest, no_queue_error
from sparrowmq.client.sending.send_result import LESS_SAFE, is_from_slave, is_retriable
from sparrowmq.errors import (
    AccessDenied,
    BrokerUnreachable,
    ClientClosed,
    InvalidMessage,
    NameServerUnreachable,
    NetworkError,
    NoRoute,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    SendFailed,
    SparrowError,
)
from sparrowmq.kernel.gathering import Window
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)
BUSY_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
SINGLE_MESSAGE_ERRORS: Final = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.INVALID_PARAMETER}
)
BACKED_UP_PAUSE_S: Final = 0.01
# The part of the time left that an attempt gets if another one may follow, and its least. In the usual 3 s a broker
# answers the first attempt even if it waits all of its slaveTimeout for a slave.
ATTEMPT_SHARE: Final = 0.75
MIN_ATTEMPT_S: Final = 1.0
PAUSE_S: Final = 0.2  # before the next attempt, when there is no other broker to turn to
FLUSH_LIMIT_S: Final = 10.0


class SendQueue:
    """The messages of one producer group that are not answered yet."""

    def __init__(
        self, group: str, settings: ProducerSettings, routes: Routes, brokers: Brokers, clock: Clock, spawn: Spawn
    ) -> None:
        self._group = group
        self._settings = settings
        self._routes = routes
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        self._slow_brokers = SlowBrokers() if settings.avoid_slow_brokers else None
        self._round_robin = RoundRobin()
        self._batch_round_robin = BatchRoundRobin()
        self._waiting: deque[SendRequest] = deque()
        self.window = Window(settings.window, settings.window_bytes, settings.waiting_bytes)
        self._waiters = WindowWaiters(self.window)
        self.accumulator: Accumulator | None = None
        self._parked: dict[str, list[SendRequest]] = {}
        # While an ordered message to a queue is in flight: the messages behind it.
        self._lanes: dict[MessageQueue, deque[SendRequest]] = {}
        self._lane_leavers: deque[SendRequest] = deque()  # the messages that have just left their lane
        self._is_refilling = False
        self._is_closed = False

    def put(self, item: SendRequest, *, is_awaited: bool = False, may_be_last: bool = False) -> None:
        """Send a message as soon as the window allows, after all messages that were put before.

        With `is_awaited` the sender waits for the result; this is back-pressure enough, so the message is never
        refused. `may_be_last` sends it also when the window is shut.
        Raises: SendFailed, too many messages wait, and this one was not sent; ClientClosed, the client is closed, or
        was not entered.
        """
        if self.window.is_shut and (self._is_closed or not may_be_last):
            raise ClientClosed("the client is closed; send inside its `with` block")
        if not self._waiting and self.window.is_open:
            self._admit(item)
        elif not is_awaited and not self.window.has_room_for_waiting(item.cost_bytes):
            raise SendFailed(
                f"{self.window.waiting} messages wait to be sent already, and this one was not taken; "
                "call `drain()` now and then"
            )
        else:
            self._waiting.append(item)
            self.window.add_waiting(item.count, item.cost_bytes)

    def put_batch(self, item: BatchRequest) -> None:
        """Send an accumulated batch. Its messages were taken before, so their senders get every error."""
        try:
            self.put(item, is_awaited=True, may_be_last=True)
        except SparrowError as error:
            item.fail(error, self._is_closed)
            self._waiters.wake_ready()

    @property
    def has_room(self) -> bool:
        """Return whether the next message would be sent at once."""
        return self.window.has_room

    @property
    def unanswered(self) -> int:
        """The number of messages that wait or are in flight."""
        return self.window.unanswered

    async def drain(self) -> None:
        """Wait until the next message would be sent at once. Callers return in their order. May be cancelled."""
        await self._waiters.wait_for_room()

    async def flush(self) -> None:
        """Wait until every message, also those put meanwhile, is answered or has failed. Time limits bound the wait."""
        await self._waiters.wait_for_end()

    async def ask(self, broker_name: str, topic: str, request: Request[Any]) -> None:
        """Send a broker a request that it stores like a message, as one that no other broker has at worst.
        Raises: RemoteError, NetworkError, the broker refuses, or does not answer; ClientClosed.
        """
        if self._is_closed:
            raise ClientClosed("the client is closed; ask inside its `with` block")
        await self._routes.for_sending(topic)
        session = await self._brokers.of(broker_name)
        accepted_codes = (ResponseCode.SLAVE_NOT_AVAILABLE,)
        await session.call(request, timeout_s=self._settings.timeout_s, accept=accepted_codes)

    def close(self) -> None:
        """Fail the messages that were not sent. Messages in flight may or may not be stored."""
        self._is_closed = self.window.is_shut = True
        if self.accumulator is not None:
            self.accumulator.close()  # `put` refuses them now
        waiting_items, self._waiting = self._waiting, deque()
        self.window.waiting = self.window.waiting_bytes = 0
        parked_items, self._parked = self._parked, {}
        admitted_items = [item for items in parked_items.values() for item in items]
        for lane in self._lanes.values():
            admitted_items += lane
            lane.clear()
        error = ClientClosed("the client was closed before the message was sent")
        for item in waiting_items:
            item.fail(error, self._is_closed)
        for item in admitted_items:
            self._fail(item, error)
        self._waiters.wake_all()

    def _admit(self, item: SendRequest) -> None:
        self.window.add_in_flight(item.count, len(item.body))
        self._start_time(item)
        try:
            self._attempt(item)
        except BaseException:
            self._release(item)  # otherwise the window stays one place smaller
            raise

    def _start_time(self, item: SendRequest) -> None:
        item.started_at = self._clock.monotonic()
        item.deadline = item.started_at + item.timeout_s

    def _attempt(self, item: SendRequest) -> None:
        """Choose a queue and go on; first wait for the route if it is unknown."""
        route = self._routes.cached_for_sending(item.topic)
        key = f"route of {item.topic}"
        if route is None or key in self._parked or (not route.writable and route.waits_for_master):
            self._park(key, item, partial(self._find_route, key, item.topic))
        elif item.is_ordered:
            self._enter_lane(item, route)
        elif not route.writable:
            self._fail(item, no_queue_error(item.topic))
        else:
            item.queue = self._next_queue(item, route)
            self._connect(item, item.queue)

    def _next_queue(self, item: SendRequest, route: Route) -> MessageQueue:
        failed, slow = item.failed_brokers, self._slow_brokers
        if slow is None and not failed:
            if item.count > 1:
                return self._batch_round_robin.next(route.writable, item.count)
            return self._round_robin.next(route.writable)
        preferences = [lambda name: name not in failed, lambda name: name not in failed[-1:]]
        if slow is not None:
            now = self._clock.monotonic()
            preferences.insert(0, lambda name: name not in failed and slow.is_usable(name, now))
        return self._round_robin.next(route.writable, preferences)

    def _enter_lane(self, item: SendRequest, route: Route) -> None:
        """Send an ordered message after those before it: Java's broker handles one connection in several threads."""
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

    def _connect(self, item: SendRequest, queue: MessageQueue) -> None:
        address = self._routes.master(queue.broker_name)
        if address is None:
            self._routes.doubt()
            self._retry_unsent(item, BrokerUnreachable(queue.broker_name, "no route names its master now"))
            return
        session = self._brokers.open_session(address)
        if session is None or address in self._parked:
            self._park(address, item, partial(self._find_session, address))
        else:
            self._transmit(item, queue, session)

    def _transmit(self, item: SendRequest, queue: MessageQueue, session: Session) -> None:
        now = self._clock.monotonic()
        remaining_s = item.deadline - now
        if remaining_s <= 0:
            self._fail(item, TimeoutError("its time limit passed before it could be sent"))
            return
        if item.is_timed and not self._brokers.delivers_at_any_time(session):
            text = (
                f"broker {queue.broker_name} delivers after its delay levels only, as brokers before 5.0 do, and would "
                "deliver this message at once; it was not sent. Take one of 1s 5s 10s 30s 1m ... 10m 20m 30m 1h 2h"
            )
            self._fail(item, InvalidMessage(text))
            return
        if item.is_oneway:
            if session.is_backed_up:  # The message keeps its place in the window while the broker does not read.
                self._clock.call_later(BACKED_UP_PAUSE_S, self._connect, item, queue)
            else:
                session.tell(item.request(self._group, queue, self._clock.now_ms()), item.body)
                self._release(item)
            return
        item.attempts += 1
        item.sent_at = now
        header = item.request(self._group, queue, self._clock.now_ms())
        if item.is_in_doubt or self._settings.idempotent:
            remaining_s = self._mark_repeat(item, header, session, remaining_s)
        if self._may_go_elsewhere(item):
            remaining_s = _attempt_limit_s(remaining_s)
        session.ask(
            header,
            item.body,
            partial(self._on_answer, item),
            timeout_s=remaining_s,
            accept=LESS_SAFE,
            is_alone=self.window.in_flight == item.count,
        )

    def _mark_repeat(self, item: SendRequest, header: SendMessageV2, session: Session, remaining_s: float) -> float:
        """Mark a repeated message, if the broker recognises it. Return the time limit of this attempt."""
        is_recognised = self._brokers.recognises_repeats(session)
        if is_recognised and item.is_in_doubt:
            header.may_be_stored = True
        item.is_recognised = is_recognised and self._settings.idempotent
        # Only a message that is stored once can be repeated while its answer may still come.
        return _attempt_limit_s(remaining_s) if item.is_recognised else remaining_s

    def _may_go_elsewhere(self, item: SendRequest) -> bool:
        """Return whether the message may go to another broker if this one does not answer.

        Unlike Java, which spends the whole time at the first one: there each send to a broker that hangs fails.
        """
        if item.is_ordered or self._settings.idempotent or item.attempts > self._settings.retries:
            return False
        route = self._routes.cached_for_sending(item.topic)
        # The queues of a broker are side by side.
        return bool(route and route.writable and route.writable[0].broker_name != route.writable[-1].broker_name)

    def _on_answer(self, item: SendRequest, answer: SendAnswer | None, error: Exception | None) -> None:
        if self._slow_brokers is not None and item.queue is not None:
            now = self._clock.monotonic()
            self._slow_brokers.report(item.queue.broker_name, FAILED_S if error else now - item.sent_at, now)
        if answer is None:
            assert error is not None, "there is an answer or an error"
            item.is_in_doubt |= not isinstance(error, RemoteError)
            if isinstance(error, RequestTimeout):
                self._routes.doubt()  # The broker hangs or is cut off. Another one may be the master by now.
            if item.queue is not None and is_from_slave(error):
                self._routes.doubt()
                item.attempts -= 1
                self._retry_unsent(item, BrokerUnreachable(item.queue.broker_name, "a slave is where its master was"))
            elif isinstance(item, BatchRequest) and item.count > 1 and self._may_be_one_message(item, error):
                self._send_singles(item)
            else:
                self._retry(item, error)
        elif answer.code and self._settings.retry_not_stored and not item.keeps_queue and self._may_retry(item):
            item.is_in_doubt = True
            self._retry(item, RemoteError(ResponseCode.SYSTEM_ERROR, f"stored less safely: code {answer.code}"))
        else:
            try:
                item.succeed(answer)
            finally:
                self._release(item)

    def _may_be_one_message(self, item: BatchRequest, error: Exception) -> bool:
        """Return whether a broker has stored nothing of a batch, perhaps because of one of its messages.

        Apache's 4.9.7 answers SYSTEM_ERROR if one is too large, but also for other reasons.
        """
        if not isinstance(error, RemoteError) or isinstance(error, AccessDenied):
            return False
        is_last = error.code == ResponseCode.SYSTEM_ERROR and not self._may_retry(item)
        return is_last or error.code in SINGLE_MESSAGE_ERRORS

    def _send_singles(self, item: BatchRequest) -> None:
        """Send each message of a refused batch alone, so that what is wrong with one is its own error."""
        for single in item.singles():
            self.window.add_in_flight(1, len(single.body))
            try:
                if single.needs_same_broker and single.queue is not None:
                    self._connect(single, single.queue)
                else:
                    self._attempt(single)
            except SparrowError as error:
                self._fail(single, error)
        self._release(item)

    def _park(self, key: str, item: SendRequest, find: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Keep the item until `find` continues all that wait for `key`. The first of them starts `find`."""
        if key in self._parked:
            self._parked[key].append(item)
        elif self._is_closed:
            self._fail(item, ClientClosed("the client was closed before the message was sent"))
        else:
            self._spawn(find(), key)
            self._parked[key] = [item]

    async def _find_route(self, key: str, topic: str) -> None:
        """Ask until a name server names a master, as long as a waiting message has time left."""
        failure: Exception | None = None
        while parked := self._parked.get(key):
            try:
                route = await self._clock.wait_for(self._routes.for_sending(topic), self._limit_s(parked))
                if not route.waits_for_master:
                    break
                self._routes.doubt()
                failure = BrokerUnreachable(", ".join(route.brokers), "no route names its master now")
            except NetworkError as error:
                failure = error
            except TimeoutError:
                failure = failure or NameServerUnreachable(self._routes.name_servers_text, "no answer in time")
            except SparrowError as error:
                for item in self._parked.pop(key, ()):
                    self._fail(item, error)
                return
            self._fail_late(parked, failure)
            if parked:
                await self._clock.sleep(min(PAUSE_S, self._limit_s(parked)))
        for item in self._parked.pop(key, ()):
            self._attempt(item)

    async def _find_session(self, address: str) -> None:
        session: Session | None = None
        failure: Exception = BrokerUnreachable(address, "no answer in time")
        try:
            limit_s = self._limit_s(self._parked[address])
            session = await self._clock.wait_for(self._brokers.session(address), limit_s)
        except (NetworkError, ProtocolError) as error:
            failure = error
        except TimeoutError:
            pass
        for item in self._parked.pop(address, ()):
            assert item.queue is not None, "its queue was chosen before"
            if session is not None:
                self._transmit(item, item.queue, session)
            else:
                self._retry_unsent(item, failure)

    def _limit_s(self, parked: list[SendRequest]) -> float:
        """The time until the first of them is late, but long enough for an answer: others may wait longer."""
        return max(PAUSE_S, min(item.deadline for item in parked) - self._clock.monotonic())

    def _fail_late(self, parked: list[SendRequest], error: Exception) -> None:
        now = self._clock.monotonic()
        late_items = [item for item in parked if item.deadline <= now or item.is_abandoned]
        parked[:] = [item for item in parked if item.deadline > now and not item.is_abandoned]
        for item in late_items:
            self._fail(item, error)

    def _retry_unsent(self, item: SendRequest, error: Exception) -> None:
        """Try again after nothing was sent, so that a restart of the only broker goes unnoticed.

        This does not count as an attempt. It cannot duplicate or reorder messages, so ordered messages have it, too.
        Java gives up after three refused connections, within milliseconds.
        """
        assert item.queue is not None, "its queue was chosen before"
        now = self._clock.monotonic()
        remaining_s = item.deadline - now
        if self._slow_brokers is not None:
            self._slow_brokers.report(item.queue.broker_name, FAILED_S, now)
        if not isinstance(error, NetworkError) or remaining_s <= 0 or not self._is_wanted(item):
            self._fail(item, error)
        elif item.is_ordered or item.needs_same_broker:
            self._clock.call_later(min(PAUSE_S, remaining_s), self._connect, item, item.queue)
        else:
            item.note_failed_broker(item.queue.broker_name)
            item.unreachable_count += 1
            has_untried_broker = item.unreachable_count < self._broker_count(item.topic)
            self._clock.call_later(0.0 if has_untried_broker else min(PAUSE_S, remaining_s), self._attempt, item)

    def _retry(self, item: SendRequest, error: BaseException) -> None:
        """Try again after an error, if the message may be retried."""
        if item.needs_same_broker:
            self._repeat(item, error)
            return
        if item.queue is not None:
            item.note_failed_broker(item.queue.broker_name)
        if not self._may_retry(item) or not is_retriable(error):
            self._fail(item, error)
        elif item.keeps_queue and item.queue is not None:
            self._clock.call_later(PAUSE_S, self._connect, item, item.queue)  # It keeps the lane of its queue.
        elif isinstance(error, RemoteError) and error.code in BUSY_CODES and self._broker_count(item.topic) == 1:
            self._clock.call_later(PAUSE_S, self._attempt, item)
        else:
            self._attempt(item)

    def _repeat(self, item: SendRequest, error: BaseException) -> None:
        assert item.queue is not None, "it was sent to a queue"
        remaining_s = item.deadline - self._clock.monotonic()
        if remaining_s <= 0 or not self._is_wanted(item) or not is_retriable(error):
            self._fail(item, error)
        else:
            pause_s = 0.0 if isinstance(error, RequestTimeout) else min(PAUSE_S, remaining_s)
            self._clock.call_later(pause_s, self._connect, item, item.queue)

    def _broker_count(self, topic: str) -> int:
        route = self._routes.cached_for_sending(topic)
        return len(route.brokers) if route is not None else 0

    def _may_retry(self, item: SendRequest) -> bool:
        return (
            (item.keeps_queue or not item.is_ordered)
            and item.attempts <= self._settings.retries
            and self._clock.monotonic() < item.deadline
            and self._is_wanted(item)
        )

    def _is_wanted(self, item: SendRequest) -> bool:
        return not self._is_closed and not item.is_abandoned

    def _fail(self, item: SendRequest, error: BaseException) -> None:
        item.fail(error, self._is_closed)
        self._release(item)

    def _release(self, item: SendRequest) -> None:
        """Free the message's place in the window: admit the next message, and wake those that wait for room."""
        self.window.add_in_flight(-item.count, -len(item.body))
        if item.has_lane:
            self._lane_leavers.append(item)
        if self._is_refilling:
            return  # An admitted message has failed at once. The loop below goes on, instead of a deeper call.
        self._is_refilling = True
        try:
            while True:
                if self._lane_leavers:
                    self._advance_lane(self._lane_leavers.popleft())
                elif self._waiting and self.window.is_open:
                    next_item = self._waiting.popleft()
                    self.window.add_waiting(-next_item.count, -next_item.cost_bytes)
                    if not next_item.is_abandoned:
                        self._admit(next_item)
                else:
                    break
        finally:
            self._is_refilling = False
        self._waiters.wake_ready()

    def _advance_lane(self, released_item: SendRequest) -> None:
        """Send the next ordered message. Its time begins now, or began with the one before if that never reached the
        broker.
        """
        assert released_item.queue is not None, "it held the lane of its queue"
        lane = self._lanes[released_item.queue]
        while lane:
            item = lane.popleft()
            if item.is_abandoned:
                self._release(item)
                continue
            item.has_lane = True
            if released_item.attempts:
                self._start_time(item)
            self._connect(item, released_item.queue)
            return
        del self._lanes[released_item.queue]


def _attempt_limit_s(remaining_s: float) -> float:
    """The time limit of an attempt that another one may follow."""
    return min(remaining_s, max(remaining_s * ATTEMPT_SHARE, MIN_ATTEMPT_S))


Sleeper = asyncio.Future[None]


class WindowWaiters:
    """Wakes senders in their order, as many as there is room for."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._room_sleepers: deque[Sleeper] = deque()
        self._end_sleepers: deque[Sleeper] = deque()
        self._is_offering = False

    async def wait_for_room(self) -> None:
        """Return when the next message would be sent at once. Callers return in their order. May be cancelled."""
        if self._room_sleepers or not self._window.has_room:
            await _sleep(self._room_sleepers)

    async def wait_for_end(self) -> None:
        """Return when every message, also those that come meanwhile, is answered or has failed."""
        if self._window.unanswered:
            await _sleep(self._end_sleepers)

    def wake_ready(self) -> None:
        """Wake the senders that may go on now: messages have left the window."""
        if self._room_sleepers and not self._is_offering:
            self._offer_room()
        if self._end_sleepers and not self._window.unanswered:
            _wake(self._end_sleepers, len(self._end_sleepers))

    def wake_all(self) -> None:
        """Wake those that wait for room, as there will be none: the client is closed."""
        _wake(self._room_sleepers, len(self._room_sleepers))

    def _offer_room(self) -> None:
        """Wake as many waiting senders as there is room for. Those that put no message leave room for the next ones."""
        self._is_offering = False
        if self._room_sleepers and self._window.has_room:
            _wake(self._room_sleepers, self._window.size - self._window.in_flight)
            if self._room_sleepers:
                self._is_offering = True
                asyncio.get_running_loop().call_soon(self._offer_room)


async def _sleep(sleepers: deque[Sleeper]) -> None:
    sleeper: Sleeper = asyncio.get_running_loop().create_future()
    sleepers.append(sleeper)
    await sleeper


def _wake(sleepers: deque[Sleeper], count: int) -> None:
    while sleepers and count > 0:
        sleeper = sleepers.popleft()
        if not sleeper.done():
            sleeper.set_result(None)
            count -= 1


class SendQueues:
    """One send queue for each producer of a client, and one for its traces."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._send_queues: list[SendQueue] = []
        self._trace_queues: list[SendQueue] = []

    def open(self, group: str, settings: ProducerSettings) -> SendQueue:
        self._send_queues.append(send_queue := self._make_queue(group, settings))
        return send_queue

    def open_for_traces(self, group: str, settings: ProducerSettings) -> SendQueue:
        """Make a send queue that is neither waited for nor counted."""
        self._trace_queues.append(send_queue := self._make_queue(group, settings))
        return send_queue

    @property
    def unanswered(self) -> int:
        """The number of messages that wait or are in flight."""
        return sum(send_queue.unanswered for send_queue in self._send_queues)

    async def answers(self) -> None:
        """Wait until every message is answered or has failed."""
        for send_queue in self._send_queues:
            await send_queue.flush()

    async def last_answers(self) -> None:
        """Wait until all messages are answered, and refuse new ones in the end."""
        with suppress(TimeoutError):
            await self._network.clock.wait_for(self.answers(), FLUSH_LIMIT_S / 2)
        self.shut()
        await self.answers()

    def shut(self) -> None:
        """Refuse new messages: those that the end of the client met on their way would be stored or not."""
        for send_queue in self._send_queues:
            send_queue.window.is_shut = True

    def close(self) -> None:
        """Fail the messages that were not sent, and warn if some were not answered."""
        _warn_of_unanswered(os.getpid(), self._send_queues)
        for send_queue in (*self._send_queues, *self._trace_queues):
            send_queue.close()

    def warn_if_forgotten(self, client: object) -> None:
        """Warn if the program ends, or drops the client, while it has messages."""
        weakref.finalize(client, _warn_of_unanswered, os.getpid(), self._send_queues)

    def _make_queue(self, group: str, settings: ProducerSettings) -> SendQueue:
        network = self._network
        spawn = network.background.spawn
        return SendQueue(group, settings, network.routes, network.brokers, network.clock, spawn)


def _warn_of_unanswered(process: int, queues: Iterable[SendQueue]) -> None:
    count = sum(send_queue.unanswered for send_queue in queues)
    if count and os.getpid() == process:  # a forked child has none of the connections
        log.warning(
            "%d messages were not answered when the client ended; they may or may not be stored. Leave the client's "
            "block without an error, or call `close()`, before the program ends: both wait for the answers",
            count,
        )
