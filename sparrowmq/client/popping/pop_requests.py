"""The requests of a group that pops, and the meaning of their answers.

    POP_MESSAGE                    messages of any queue of a topic at one broker, each with a receipt
    ACK_MESSAGE                    the message is done
    BATCH_ACK_MESSAGE              the messages that one pop got of one queue are done: bits of their places
    CHANGE_MESSAGE_INVISIBLETIME   the message becomes visible later, or earlier; it gets a new receipt
    NOTIFICATION                   wait until a pop would find a message

Receipts go back to the broker that gave them. An ack is repeated after a lost answer: a second one does nothing.
A slave that refuses a request was the master before. It counts as a broker that is away.
Brokers filter by the hash of a tag, so a pop brings a few messages too many; they are acknowledged here.

A failed message becomes visible again after a delay, or ends in the dead-letter queue:

    give back     change the invisible time to the delay: the broker delivers the message again after that
    reject        have its broker make it a dead letter, or send another one a copy without any tries left; then ack

The delays are those of `BrokerRedelivery`: 10 s for the first failure, and longer for each further one, unless the
program wants another delay.
Source: MQClientAPIImpl.popMessageAsync, ConsumeMessagePopConcurrentlyService and BatchAck, Java 5.4.
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
from sparrowmq.client.consuming.delivered_message import Owner, mark_spent, runs_of
from sparrowmq.client.consuming.pulling import messages_in
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.consuming.retry import FIRST_RETRY_LEVEL
from sparrowmq.client.popping.pop_queue import AckBuffer
from sparrowmq.client.popping.popped_message import PopAnswer, PoppedFrom, PoppedMessage, Receipt
from sparrowmq.core.process import keep_freed_memory
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    NetworkError,
    RemoteError,
    RemoteProtocolError,
    SparrowError,
)
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.pop_headers import (
    ANY_QUEUE,
    AckMessage,
    BatchAck,
    BatchAckMessage,
    BatchAcks,
    ChangeInvisibleTime,
    Notification,
    PopMessage,
    PopMessageReply,
)
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
ELECTED_S: Final = 8.0  # tries go on for so long at least: meanwhile another master is elected
PAUSE_S: Final = 0.5
AT_ONCE_S: Final = 0.01  # the invisible time of a message that is to be visible again
MAX_ACK_BITS: Final = 1024  # the messages of one acknowledgement
_MIN_BATCH: Final = 2
_LEVELS: Final = DelayLevels.parse()
_Answered = asyncio.Future[Response[PopMessageReply]]


class PopOptions(NamedTuple):
    """The wishes of a consumer for one pop.

    Attributes:
        hold_s: the time for which the broker waits for the first message.
        attempt_id: for an ordered pop; the same one gets the same messages again.
    """

    subscription: Subscription
    most: int
    invisible_s: float
    hold_s: float = 0.0
    init_mode: int = 0
    attempt_id: str | None = None


class PopInFlight:
    """A pop that is under way.

    Attributes:
        waiter: of the call that waits for the answer; cancelled if none does.
        is_over: the answer came when no call waited.
    """

    __slots__ = ("is_over", "options", "owner", "place", "request", "session", "waiter")

    def __init__(
        self, session: Session, request: PopMessage, place: PoppedFrom, options: PopOptions, owner: Owner
    ) -> None:
        self.session = session
        self.request = request
        self.place = place
        self.options = options
        self.owner = owner
        self.waiter: _Answered = asyncio.get_running_loop().create_future()
        self.is_over = False


class PopRequests:
    """Pops and settles the messages of one group.

    Attributes:
        acks: gets messages to acknowledge in the background. Failures are logged.
        received_count: the number of messages that have come, also of those whose tags are not wanted.
    """

    def __init__(self, group: str, network: Network, spawn: Spawn) -> None:
        self._group = group
        self._network = network
        self._spawn = spawn
        keep_freed_memory()  # an answer has some 100 KiB, whose pages cost a ninth of a consumer's time
        self.acks = AckBuffer(self._begin_acks)
        self.received_count = 0
        self._most: dict[str, int] = {}  # messages of one pop, by broker
        self._without_batches: set[str] = set()  # brokers of 5.0
        self._without_counts: set[str] = set()  # brokers that do not count what a batch left out
        self._cut: dict[PoppedFrom, PopInFlight] = {}  # pops without a call that waits
        self._acking: set[asyncio.Task[None]] = set()
        self._changing: dict[PoppedMessage, asyncio.Future[None]] = {}  # messages whose time is being changed

    # Popping --------------------------------------------------------------------------------------------------------

    async def pop(self, place: PoppedFrom, options: PopOptions, owner: Owner) -> list[PoppedMessage]:
        """Return messages of any queue of the place, perhaps none.

        The next call with the same options goes on with one that was cancelled. If none comes before the answer, the
        messages are visible again.

        Raises:
            ConfigError: the broker cannot pop.
            SparrowError: there is no answer, or the broker refuses.
        """
        asked = await self.begin(place, options, owner)
        return self.messages_of(asked, await self.answer(asked))

    async def begin(self, place: PoppedFrom, options: PopOptions, owner: Owner) -> PopInFlight:
        """Send a pop, or take over a cancelled one. `answer` waits for it. Raises: SparrowError."""
        cut_off = self._cut_off(place, options)
        if cut_off is not None:
            return cut_off
        return self._send(await self._network.brokers.of(place.broker_name), place, options, owner)

    def begin_next(self, pop: PopInFlight, options: PopOptions) -> PopInFlight:
        """Send another pop to the same broker at once. `answer` must be awaited in the same step, or `leave` called."""
        return self._send(pop.session, pop.place, options, pop.owner)

    def leave(self, pop: PopInFlight) -> None:
        """Make the messages of a pop under way visible again when they come."""
        pop.waiter.cancel()

    async def answer(self, pop: PopInFlight) -> Response[PopMessageReply]:
        """Wait for the answer, and return it; `messages_of` returns its messages. Raises: as `pop`."""
        waiter, broker_name = pop.waiter, pop.place.broker_name
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._cut[pop.place] = pop
            elif waiter.exception() is None:
                self._show_found(pop, waiter.result())
            raise
        except RemoteError as error:
            self._most.pop(broker_name, None)  # another broker may have the name now
            raise self._error_from(error, broker_name) from error

    def _cut_off(self, place: PoppedFrom, options: PopOptions) -> PopInFlight | None:
        """The last cancelled pop that is under way, if it has the same options. Its messages have a reader now."""
        asked = self._cut.pop(place, None)
        if asked is None or asked.is_over or asked.options != options:
            return None
        asked.waiter = asyncio.get_running_loop().create_future()
        return asked

    def is_under_way(self, place: PoppedFrom) -> bool:
        """Whether a pop that was cancelled still has no answer."""
        asked = self._cut.get(place)
        return asked is not None and not asked.is_over

    def max_count_of(self, broker_name: str) -> int:
        """The most messages of one pop at a broker, as far as it is known."""
        return self._most.get(broker_name, DEFAULT_POP_COUNT)

    def show(self, messages: Sequence[PoppedMessage]) -> None:
        """Make messages that no program has seen visible again, in the background."""
        for message in messages:
            self._spawn(self._show(message), f"show {self._group}")

    async def _show(self, message: PoppedMessage) -> None:
        with suppress(SparrowError):
            await self.change_invisible(message, AT_ONCE_S)

    def _show_found(self, pop: PopInFlight, answer: Response[PopMessageReply]) -> None:
        with suppress(SparrowError):
            self.show(self.messages_of(pop, answer))

    def _send(self, session: Session, place: PoppedFrom, options: PopOptions, owner: Owner) -> PopInFlight:
        """Send a pop now, so that the broker works while messages that are here are handled.

        No task waits for the answer: that would cost two turns of the loop.
        """
        request = self._pop_request(place, options)
        asked = PopInFlight(session, request, place, options, owner)

        def answered(answer: Response[PopMessageReply] | None, error: Exception | None) -> None:
            if asked.waiter.done():
                asked.is_over = True
                if answer is not None:
                    self._show_found(asked, answer)
            elif answer is not None:
                asked.waiter.set_result(answer)
            elif error is not None:
                asked.waiter.set_exception(error)

        timeout_s = options.hold_s + ANSWER_S
        session.ask(request, b"", answered, timeout_s=timeout_s, accept=NOTHING_FOUND, is_alone=True)
        return asked

    def messages_of(self, pop: PopInFlight, answer: Response[PopMessageReply]) -> list[PoppedMessage]:
        """Return the messages of an answer. Raises: RemoteProtocolError, the broker answered wrongly."""
        if answer.code != ResponseCode.SUCCESS:
            return []
        place, options = pop.place, pop.options
        self._most[place.broker_name] = answer.header.most_msg_nums or DEFAULT_POP_COUNT
        messages = self._messages(place, answer, pop.owner)
        self.received_count += len(messages)
        tags = options.subscription.tags
        if tags and (unwanted := [each for each in messages if each.tag not in tags]):
            self.acks.extend(unwanted)
            messages = [each for each in messages if each.tag in tags]
        return messages

    async def wait(self, place: PoppedFrom, hold_s: float, *, is_orderly: bool, attempt_id: str | None) -> bool:
        """Wait until a pop would find a message, and return True; False after `hold_s`. Raises: as `pop`."""
        session = await self._network.brokers.of(place.broker_name)
        request = Notification(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=ANY_QUEUE,
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

    def _pop_request(self, place: PoppedFrom, options: PopOptions) -> PopMessage:
        return PopMessage(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(options.most, self.max_count_of(place.broker_name)),
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

    def _messages(self, place: PoppedFrom, answer: Response[PopMessageReply], owner: Owner) -> list[PoppedMessage]:
        queue = MessageQueue(place.topic, place.broker_name, ANY_QUEUE)
        found = messages_in(answer.body, queue, Subscription(place.topic), self._network.brokers.lines)
        try:
            answered = PopAnswer(place, self._group, answer.header, self._network.clock, self._network.namespace)
            return answered.messages(found, owner)
        except ConfigError as error:
            raise RemoteProtocolError(f"{place.broker_name} answered a pop wrongly: {error}") from error

    # Settling -------------------------------------------------------------------------------------------------------

    async def ack(self, messages: Sequence[PoppedMessage], *, may_be_late: bool = False) -> None:
        """Acknowledge messages, those of one pop with one request.

        Args:
            may_be_late: a handle that is not valid any more is no error.
        Raises:
            SparrowError: some could not be acknowledged. The others are. After an error or a cancellation the messages
                whose acks a broker may not have accepted can be acknowledged again.
        """
        mark_spent(messages, True)
        left, error = list(messages), None
        try:
            # A message whose time is being changed has another handle afterwards.
            while self._changing and (due := self._changing.keys() & messages):
                await asyncio.wait([self._changing[each] for each in due])
            begun, attempts = self._network.clock.monotonic(), 0
            while True:
                left, error = await self._ack_once(await self._ack_batches(left, may_be_late))
                attempts += 1
                is_over = self._network.clock.age(begun) >= ELECTED_S and attempts >= SETTLE_TRIES
                if is_over or not isinstance(error, NetworkError):
                    break
                await self._network.clock.sleep(PAUSE_S)
        finally:
            mark_spent(left, False)
        if error is not None:
            raise error

    def _begin_acks(self) -> None:
        task = self._spawn(self._ack_unsent(), f"ack {self._group}")
        self._acking.add(task)
        task.add_done_callback(self._acking.discard)

    async def wait_for_acks(self) -> None:
        """Wait until what `acks` got is acknowledged, or failed."""
        if self._acking:
            await asyncio.wait(self._acking)

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
        while (before := self._changing.get(message)) is not None:
            await asyncio.wait([before])
            if message._is_spent:
                return
        changing = self._changing[message] = asyncio.get_running_loop().create_future()
        try:
            await self._change(message, seconds)
        finally:
            del self._changing[message]
            changing.set_result(None)

    async def _change(self, message: PoppedMessage, seconds: float) -> None:
        handle = message._handle
        broker_name = handle.broker_name
        session = await self._network.brokers.of(broker_name)
        request = ChangeInvisibleTime.of(
            self._group, message._receipt.topic, handle, message._handle_text, _ms(seconds)
        )
        try:
            answer = await session.call(request, timeout_s=SETTLE_S)
        except RemoteError as error:
            raise self._error_from(error, broker_name) from error
        message._renew(*answer.header.new_handle(handle))

    async def _ack_batches(self, messages: list[PoppedMessage], may_be_late: bool) -> list[PoppedMessage]:
        """Acknowledge those that fit into batches, and return the others, with those of batches that failed.

        Unless messages may be late, a batch failed too if the broker left some out, or does not say how many.
        """
        left, batches = batches_of(self._group, messages)
        without = self._without_batches if may_be_late else self._without_batches | self._without_counts
        for broker_name, batch in batches.items():
            if broker_name in without:
                left += batch.messages
                continue
            try:
                session = await self._network.brokers.of(broker_name)
                body = BatchAcks(broker_name=broker_name, acks=batch.acks).encode()
                answer = await session.call(BatchAckMessage(), body, timeout_s=SETTLE_S)
                if not may_be_late and answer.header.left_out != 0:
                    left += batch.messages
                    if answer.header.left_out is None:
                        self._without_counts.add(broker_name)
            except RemoteError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._without_batches.add(broker_name)
                left += batch.messages
            except NetworkError:
                left += batch.messages
        return left

    async def _ack_once(self, messages: list[PoppedMessage]) -> tuple[list[PoppedMessage], SparrowError | None]:
        """Send all acks before the first answer. Return those that failed, and an error of them: a refusal, if any."""
        sessions = [await self._session(each._receipt.handle.broker_name) for each in messages]
        calls = [
            each.call(
                AckMessage.of(self._group, message._receipt.topic, message._handle, message._handle_text),
                timeout_s=SETTLE_S,
            )
            for each, message in zip(sessions, messages, strict=True)
            if isinstance(each, Session)
        ]
        answers = iter(await asyncio.gather(*calls, return_exceptions=True))
        results = [next(answers) if isinstance(each, Session) else each for each in sessions]
        failed: list[PoppedMessage] = []
        found: SparrowError | None = None
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, RemoteError):
                result = self._error_from(result, message._receipt.handle.broker_name)
            if isinstance(result, SparrowError):
                failed.append(message)
                found = result if found is None or isinstance(found, NetworkError) else found
        return failed, found

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

    acks: list[BatchAck] = field(default_factory=list)
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
    some = list(messages)
    alone: list[PoppedMessage] = []
    pops: dict[tuple[object, ...], _PopAcks] = {}
    for begin, end in runs_of(some):
        run = some[begin:end]
        receipt, handle = run[0]._receipt, run[0]._receipt.handle
        place = run[0]._handle_offset - handle.start_offset
        fitting = 0 if handle.is_orderly or place < 0 else max(MAX_ACK_BITS - place, 0)
        alone += run[fitting:]
        if fitting:
            key = (receipt.topic, *handle[:7])
            of_pop = pops.get(key) or pops.setdefault(key, _PopAcks(receipt))
            of_pop.add(place, run[:fitting])
    batches: dict[str, Batch] = {}
    for of_pop in pops.values():
        if len(of_pop.messages) < _MIN_BATCH:
            alone += of_pop.messages
        else:
            batch = batches.setdefault(of_pop.receipt.handle.broker_name, Batch())
            batch.acks.append(_ack(group, of_pop))
            batch.messages += of_pop.messages
    return alone, batches


def _ack(group: str, of_pop: _PopAcks) -> BatchAck:
    handle, bits = of_pop.receipt.handle, of_pop.bits
    written = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return BatchAck(
        group,
        of_pop.receipt.topic,
        str(int(handle.kind)),
        handle.start_offset,
        handle.queue_id,
        handle.revive_queue,
        handle.pop_time_ms,
        handle.invisible_ms,
        base64.b64encode(written).decode(),
    )


class PopRedelivery:
    """Gives back the failed messages of one group.

    Args:
        retries: for messages that were not popped, and for copies to the dead-letter queue.
    """

    def __init__(self, pops: PopRequests, retries: BrokerRedelivery, max_reconsume_times: int) -> None:
        self._pops = pops
        self._retries = retries
        self._max_reconsume_times = max_reconsume_times

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError."""
        if not isinstance(message, PoppedMessage):
            await self._retries.give_back(message)
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
            await self._retries.reject(message)
            return
        if message._reject_lock is None:
            message._reject_lock = asyncio.Lock()
        async with message._reject_lock:
            if not message._is_dead:
                await self._retries.move_to_dlq(message)
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
