"""The requests of a group that pops, and the meaning of their answers.

    POP_MESSAGE                    messages of any queue of a topic at one broker, each with a receipt
    ACK_MESSAGE                    the message is done
    BATCH_ACK_MESSAGE              the messages that one pop got of one queue are done: bits of their places
    CHANGE_MESSAGE_INVISIBLETIME   the message becomes visible later, or earlier; it gets a new receipt
    NOTIFICATION                   wait until a pop would find a message

Receipts go back to the broker that gave them. An ack is repeated after a lost answer: a second one does nothing. A
slave that refuses a request was the master before. It counts as a broker that is away. Brokers filter by the hash of a
tag, so a pop brings a few messages too many; they are acknowledged here.

A failed message is given back by changing its invisible time to the delay of `BrokerRedelivery`. A rejected one becomes
a dead letter at its broker, or another broker gets a copy without any tries left; then it is acknowledged. Source:
MQClientAPIImpl.popMessageAsync, ConsumeMessagePopConcurrentlyService and BatchAck, Java 5.4.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.pulling import messages_in
from sparrowmq.client.consuming.received_message import Owner, ReceivedMessage
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.consuming.retry import FIRST_RETRY_LEVEL
from sparrowmq.client.popping.popped_message import PopAnswer, PoppedFrom, PoppedMessage, Receipt
from sparrowmq.client.popping.prefetch import AckBuffer
from sparrowmq.core.process import keep_freed_memory
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    NetworkError,
    RemoteError,
    RemoteProtocolError,
    SparrowError,
)
from sparrowmq.kernel.messages import mark_spent, runs_of
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests import pop_headers
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)
NOTHING_FOUND: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.NO_MESSAGE,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
    }
)
DEFAULT_POP_COUNT: Final = 32  # messages of one pop, unless the broker says that it gives more
ANSWER_S: Final = 15.0  # time for the answer after the broker has held the request
SETTLE_S: Final = 3.0
SETTLE_TRIES: Final = 3
MIN_SETTLE_S: Final = 8.0  # tries go on for so long at least: meanwhile another master is elected
PAUSE_S: Final = 0.5
VISIBLE_AGAIN_S: Final = 0.01  # the invisible time of a message that is to be visible again
MAX_ACK_BITS: Final = 1024  # the messages of one acknowledgement
_MIN_BATCH: Final = 2
_LEVELS: Final = DelayLevels.parse()
_AnswerFuture = asyncio.Future[Response[pop_headers.PopMessageReply]]


class PopOptions(NamedTuple):
    """The wishes of a consumer for one pop.

    Attributes:
        hold_s: the time for which the broker waits for the first message.
        attempt_id: for an ordered pop; the same one gets the same messages again.
    """

    subscription: Subscription
    max_count: int
    invisible_s: float
    hold_s: float = 0.0
    init_mode: int = 0
    attempt_id: str | None = None


class PopInFlight:
    """A pop that is under way. `waiter` is cancelled if no call waits; `is_over` if the answer came then."""

    __slots__ = ("is_over", "options", "owner", "place", "request", "session", "waiter")

    def __init__(
        self, session: Session, request: pop_headers.PopMessage, place: PoppedFrom, options: PopOptions, owner: Owner
    ) -> None:
        self.session = session
        self.request = request
        self.place = place
        self.options = options
        self.owner = owner
        self.waiter: _AnswerFuture = asyncio.get_running_loop().create_future()
        self.is_over = False


class PopRequests:
    """Pops and settles the messages of one group.

    `acks` gets messages to acknowledge in the background. Failures are logged. `received_count` counts the messages
    that have come, also those whose tags are not wanted.
    """

    def __init__(self, group: str, network: Network, spawn: Spawn) -> None:
        self._group = group
        self._network = network
        self._spawn = spawn
        keep_freed_memory()  # an answer has some 100 KiB, whose pages cost a ninth of a consumer's time
        self.acks = AckBuffer(self._begin_acks)
        self.received_count = 0
        self._max_counts: dict[str, int] = {}  # messages of one pop, by broker
        self._brokers_without_batches: set[str] = set()  # brokers of 5.0
        self._brokers_without_counts: set[str] = set()  # brokers that do not count what a batch left out
        self._cancelled_pops: dict[PoppedFrom, PopInFlight] = {}  # pops without a call that waits
        self._ack_tasks: set[asyncio.Task[None]] = set()
        self._changes: dict[PoppedMessage, asyncio.Future[None]] = {}  # messages whose time is being changed

    async def pop(self, place: PoppedFrom, options: PopOptions, owner: Owner) -> list[PoppedMessage]:
        """Return messages of any queue of the place, perhaps none.

        The next call with the same options goes on with one that was cancelled. If none comes before the answer, the
        messages are visible again.
        Raises: ConfigError, the broker cannot pop; SparrowError, there is no answer, or the broker refuses.
        """
        pop = await self.begin(place, options, owner)
        return self.messages_of(pop, await self.answer(pop))

    async def begin(self, place: PoppedFrom, options: PopOptions, owner: Owner) -> PopInFlight:
        """Send a pop, or take over a cancelled one. `answer` waits for it. Raises: SparrowError."""
        resumed_pop = self._resume_cancelled(place, options)
        if resumed_pop is not None:
            return resumed_pop
        return self._send(await self._network.brokers.of(place.broker_name), place, options, owner)

    def begin_next(self, pop: PopInFlight, options: PopOptions) -> PopInFlight:
        """Send another pop to the same broker at once. Then await `answer`, or call `abandon`, in the same step."""
        return self._send(pop.session, pop.place, options, pop.owner)

    def abandon(self, pop: PopInFlight) -> None:
        """Make the messages of a pop under way visible again when they come."""
        pop.waiter.cancel()

    async def answer(self, pop: PopInFlight) -> Response[pop_headers.PopMessageReply]:
        """Wait for the answer, and return it; `messages_of` returns its messages. Raises: as `pop`."""
        waiter, broker_name = pop.waiter, pop.place.broker_name
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._cancelled_pops[pop.place] = pop
            elif waiter.exception() is None:
                self._show_messages_of(pop, waiter.result())
            raise
        except RemoteError as error:
            self._max_counts.pop(broker_name, None)  # another broker may have the name now
            raise self._error_from(error, broker_name) from error

    def _resume_cancelled(self, place: PoppedFrom, options: PopOptions) -> PopInFlight | None:
        """The last cancelled pop that is under way, if it has the same options. Its messages have a reader now."""
        pop = self._cancelled_pops.pop(place, None)
        if pop is None or pop.is_over or pop.options != options:
            return None
        pop.waiter = asyncio.get_running_loop().create_future()
        return pop

    def is_under_way(self, place: PoppedFrom) -> bool:
        """Whether a pop that was cancelled still has no answer."""
        pop = self._cancelled_pops.get(place)
        return pop is not None and not pop.is_over

    def max_count_of(self, broker_name: str) -> int:
        """The most messages of one pop at a broker, as far as it is known."""
        return self._max_counts.get(broker_name, DEFAULT_POP_COUNT)

    def show(self, messages: Sequence[PoppedMessage]) -> None:
        """Make messages that no program has seen visible again, in the background."""

        async def show_one(message: PoppedMessage) -> None:
            with suppress(SparrowError):
                await self.change_invisible(message, VISIBLE_AGAIN_S)

        for message in messages:
            self._spawn(show_one(message), f"show {self._group}")

    def _show_messages_of(self, pop: PopInFlight, answer: Response[pop_headers.PopMessageReply]) -> None:
        with suppress(SparrowError):
            self.show(self.messages_of(pop, answer))

    def _send(self, session: Session, place: PoppedFrom, options: PopOptions, owner: Owner) -> PopInFlight:
        """Send a pop now, before messages are handled. A task that waits would cost two turns of the loop."""
        request = self._pop_request(place, options)
        pop = PopInFlight(session, request, place, options, owner)

        def answered(answer: Response[pop_headers.PopMessageReply] | None, error: Exception | None) -> None:
            if pop.waiter.done():
                pop.is_over = True
                if answer is not None:
                    self._show_messages_of(pop, answer)
            elif answer is not None:
                pop.waiter.set_result(answer)
            elif error is not None:
                pop.waiter.set_exception(error)

        timeout_s = options.hold_s + ANSWER_S
        session.ask(request, b"", answered, timeout_s=timeout_s, accept=NOTHING_FOUND, is_alone=True)
        return pop

    def messages_of(self, pop: PopInFlight, answer: Response[pop_headers.PopMessageReply]) -> list[PoppedMessage]:
        """Return the messages of an answer. Raises: RemoteProtocolError, the broker answered wrongly."""
        if answer.code != ResponseCode.SUCCESS:
            return []
        place, options = pop.place, pop.options
        self._max_counts[place.broker_name] = answer.header.most_msg_nums or DEFAULT_POP_COUNT
        messages = self._messages(place, answer, pop.owner)
        self.received_count += len(messages)
        tags = options.subscription.tags
        if tags and (unwanted := [message for message in messages if message.tag not in tags]):
            self.acks.extend(unwanted)
            messages = [message for message in messages if message.tag in tags]
        return messages

    async def wait(self, place: PoppedFrom, hold_s: float, *, is_orderly: bool, attempt_id: str | None) -> bool:
        """Wait until a pop would find a message, and return True; False after `hold_s`. Raises: as `pop`."""
        session = await self._network.brokers.of(place.broker_name)
        request = pop_headers.Notification(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=pop_headers.ANY_QUEUE,
            poll_time=_ms(hold_s),
            born_time=self._network.clock.now_ms(),
            order=is_orderly,
            attempt_id=attempt_id,
        )
        try:
            answer = await session.call(request, timeout_s=hold_s + ANSWER_S)
        except RemoteError as error:
            raise self._error_from(error, place.broker_name) from error
        return answer.header.has_msg

    def _pop_request(self, place: PoppedFrom, options: PopOptions) -> pop_headers.PopMessage:
        return pop_headers.PopMessage(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=pop_headers.ANY_QUEUE,
            max_msg_nums=min(options.max_count, self.max_count_of(place.broker_name)),
            invisible_time=_ms(options.invisible_s),
            poll_time=_ms(options.hold_s),
            born_time=self._network.clock.now_ms(),
            init_mode=options.init_mode,
            exp_type=options.subscription.kind,
            exp=options.subscription.expression,
            order=options.attempt_id is not None,
            attempt_id=options.attempt_id,
            # Only brokers of SparrowMQ report more messages at once.
            wants_counts=self.max_count_of(place.broker_name) > DEFAULT_POP_COUNT or None,
        )

    def _messages(
        self, place: PoppedFrom, answer: Response[pop_headers.PopMessageReply], owner: Owner
    ) -> list[PoppedMessage]:
        queue = MessageQueue(place.topic, place.broker_name, pop_headers.ANY_QUEUE)
        log_limit = self._network.brokers.log_limit
        messages = messages_in(PoppedMessage, answer.body, queue, Subscription(place.topic), log_limit)
        try:
            pop_answer = PopAnswer(place, self._group, answer.header, self._network.clock, self._network.namespace)
            pop_answer.give_receipts(messages, owner)
        except ConfigError as error:
            raise RemoteProtocolError(f"{place.broker_name} answered a pop wrongly: {error}") from error
        return messages

    async def ack(self, messages: Sequence[PoppedMessage], *, may_be_late: bool = False) -> None:
        """Acknowledge messages, those of one pop with one request. With `may_be_late` an invalid handle is no error.

        Raises: SparrowError, some could not be acknowledged. The others are. After an error or a cancellation the
        messages whose acks a broker may not have accepted can be acknowledged again.
        """
        mark_spent(messages, True)
        unacknowledged, error = list(messages), None
        try:
            # A message whose time is being changed has another handle afterwards.
            while self._changes and (changes := self._changes.keys() & messages):
                await asyncio.wait([self._changes[message] for message in changes])
            began_at, attempts = self._network.clock.monotonic(), 0
            while True:
                unacknowledged, error = await self._ack_once(await self._ack_batches(unacknowledged, may_be_late))
                attempts += 1
                is_over = self._network.clock.age(began_at) >= MIN_SETTLE_S and attempts >= SETTLE_TRIES
                if is_over or not isinstance(error, NetworkError):
                    break
                await self._network.clock.sleep(PAUSE_S)
        finally:
            mark_spent(unacknowledged, False)
        if error is not None:
            raise error

    def _begin_acks(self) -> None:
        task = self._spawn(self._ack_unsent(), f"ack {self._group}")
        self._ack_tasks.add(task)
        task.add_done_callback(self._ack_tasks.discard)

    async def wait_for_acks(self) -> None:
        """Wait until what `acks` got is acknowledged, or failed."""
        if self._ack_tasks:
            await asyncio.wait(self._ack_tasks)

    async def _ack_unsent(self) -> None:
        messages = self.acks.take()
        try:
            await self.ack(messages, may_be_late=True)
        except SparrowError as error:
            log.warning(
                "group %s could not acknowledge some of %d messages; they come again: %s",
                self._group,
                len(messages),
                error,
            )

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Let a message become visible so many seconds from now, and renew its receipt. Raises: SparrowError.

        Changes of one message go one after another, because each gives another handle. A message that was settled
        meanwhile is left alone.
        """
        while (earlier_change := self._changes.get(message)) is not None:
            await asyncio.wait([earlier_change])
            if message._is_spent:
                return
        change = self._changes[message] = asyncio.get_running_loop().create_future()
        handle = message._handle
        try:
            session = await self._network.brokers.of(handle.broker_name)
            topic, duration_ms = message._receipt.topic, _ms(seconds)
            request = pop_headers.ChangeInvisibleTime.of(self._group, topic, handle, message._handle_text, duration_ms)
            answer = await session.call(request, timeout_s=SETTLE_S)
            message._renew(*answer.header.new_handle(handle))
        except RemoteError as error:
            raise self._error_from(error, handle.broker_name) from error
        finally:
            del self._changes[message]
            change.set_result(None)

    async def _ack_batches(self, messages: list[PoppedMessage], may_be_late: bool) -> list[PoppedMessage]:
        """Acknowledge those that fit into batches, and return the others, with those of batches that failed.

        Unless messages may be late, a batch failed too if the broker left some out, or does not say how many.
        """
        unacknowledged, batches = batches_of(self._group, messages)
        unbatched_brokers = (
            self._brokers_without_batches
            if may_be_late
            else self._brokers_without_batches | self._brokers_without_counts
        )
        for broker_name, batch in batches.items():
            if broker_name in unbatched_brokers:
                unacknowledged += batch.messages
                continue
            try:
                session = await self._network.brokers.of(broker_name)
                body = pop_headers.BatchAcks(broker_name=broker_name, acks=batch.acks).encode()
                answer = await session.call(pop_headers.BatchAckMessage(), body, timeout_s=SETTLE_S)
                if not may_be_late and answer.header.left_out != 0:
                    unacknowledged += batch.messages
                    if answer.header.left_out is None:
                        self._brokers_without_counts.add(broker_name)
            except RemoteError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._brokers_without_batches.add(broker_name)
                unacknowledged += batch.messages
            except NetworkError:
                unacknowledged += batch.messages
        return unacknowledged

    async def _ack_once(self, messages: list[PoppedMessage]) -> tuple[list[PoppedMessage], SparrowError | None]:
        """Send all acks before the first answer. Return those that failed, and an error of them: a refusal, if any."""
        sessions = [await self._session(session._receipt.handle.broker_name) for session in messages]
        calls = [
            session.call(
                pop_headers.AckMessage.of(self._group, message._receipt.topic, message._handle, message._handle_text),
                timeout_s=SETTLE_S,
            )
            for session, message in zip(sessions, messages, strict=True)
            if isinstance(session, Session)
        ]
        answers = iter(await asyncio.gather(*calls, return_exceptions=True))
        results = [next(answers) if isinstance(session, Session) else session for session in sessions]
        failed: list[PoppedMessage] = []
        first_error: SparrowError | None = None
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, RemoteError):
                result = self._error_from(result, message._receipt.handle.broker_name)
            if isinstance(result, SparrowError):
                failed.append(message)
                first_error = result if first_error is None or isinstance(first_error, NetworkError) else first_error
        return failed, first_error

    async def _session(self, broker_name: str) -> Session | SparrowError:
        try:
            return await self._network.brokers.of(broker_name)
        except SparrowError as error:
            return error

    def _error_from(self, error: RemoteError, broker_name: str) -> SparrowError:
        """The error of a broker; another one if its master is elsewhere, or with advice if it cannot pop at all."""
        if error.is_slaves:
            self._network.routes.doubt()
            return BrokerUnreachable(broker_name, "a slave is where its master was")
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return error
        return ConfigError(
            f"{broker_name} cannot pop: that needs a broker of SparrowMQ or of Apache RocketMQ 5; "
            'consume with `subscribe` without mode="pop", or with `pull_consumer`'
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(slots=True)
class Batch:
    """The body of one request, and the messages that it acknowledges."""

    acks: list[pop_headers.BatchAck] = field(default_factory=list)
    messages: list[PoppedMessage] = field(default_factory=list)


@dataclass(slots=True)
class _PopAcks:
    """Messages of one pop of one queue, and the bits of their places, the lowest place in the lowest bit."""

    receipt: Receipt
    messages: list[PoppedMessage] = field(default_factory=list)
    bits: int = 0

    def add(self, place: int, run: Sequence[PoppedMessage]) -> None:
        """Add messages that follow each other from a place on."""
        self.messages += run
        self.bits |= (1 << place + len(run)) - (1 << place)


def batches_of(group: str, messages: Iterable[PoppedMessage]) -> tuple[list[PoppedMessage], dict[str, Batch]]:
    """Return the messages that are acknowledged one by one, and the batches of each broker."""
    all_messages = list(messages)
    singles: list[PoppedMessage] = []
    pops: dict[tuple[object, ...], _PopAcks] = {}
    for begin, end in runs_of(all_messages):
        run = all_messages[begin:end]
        receipt, handle = run[0]._receipt, run[0]._receipt.handle
        place = run[0]._handle_offset - handle.start_offset
        fitting_count = 0 if handle.is_orderly or place < 0 else max(MAX_ACK_BITS - place, 0)
        singles += run[fitting_count:]
        if fitting_count:
            key = (receipt.topic, *handle[:7])
            pop_acks = pops.get(key) or pops.setdefault(key, _PopAcks(receipt))
            pop_acks.add(place, run[:fitting_count])
    batches: dict[str, Batch] = {}
    for pop_acks in pops.values():
        if len(pop_acks.messages) < _MIN_BATCH:
            singles += pop_acks.messages
        else:
            batch = batches.setdefault(pop_acks.receipt.handle.broker_name, Batch())
            batch.acks.append(_ack(group, pop_acks))
            batch.messages += pop_acks.messages
    return singles, batches


def _ack(group: str, pop_acks: _PopAcks) -> pop_headers.BatchAck:
    handle, bits = pop_acks.receipt.handle, pop_acks.bits
    bitmap = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return pop_headers.BatchAck(
        group,
        pop_acks.receipt.topic,
        str(int(handle.kind)),
        handle.start_offset,
        handle.queue_id,
        handle.revive_queue,
        handle.pop_time_ms,
        handle.invisible_ms,
        base64.b64encode(bitmap).decode(),
    )


class PopRedelivery:
    """Gives back the failed messages of one group; `redelivery` those that were not popped, and dead letters."""

    def __init__(self, pops: PopRequests, redelivery: BrokerRedelivery, max_reconsume_times: int) -> None:
        self._pops = pops
        self._redelivery = redelivery
        self._max_reconsume_times = max_reconsume_times

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError."""
        if not isinstance(message, PoppedMessage):
            await self._redelivery.give_back(message)
        elif message.reconsume_times >= self._max_reconsume_times:
            await self.reject(message)
        else:
            await self._pops.change_invisible(message, delay_s(message))
            message._is_spent = True

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the group's dead-letter queue, with the reason. Another call makes no other copy.

        A call that comes meanwhile waits for the first, and does what the first has not done.
        Raises: SparrowError, it is not in the queue, or not acknowledged.
        """
        if not isinstance(message, PoppedMessage):
            await self._redelivery.reject(message)
            return
        if message._reject_lock is None:
            message._reject_lock = asyncio.Lock()
        async with message._reject_lock:
            if not message._is_dead:
                await self._redelivery.move_to_dlq(message)
                message._is_dead = True
            if not message._is_spent:
                await self._pops.ack([message])


def delay_s(message: ReceivedMessage) -> float:
    """The wait before the next delivery of a message that failed."""
    options = message._settle_options
    if options.delay_s is not None:
        return options.delay_s
    level = options.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
    return _LEVELS.delay_ms(level) / 1000
