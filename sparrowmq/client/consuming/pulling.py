"""Pulls messages: the request, the meaning of its answer, and the loop that pulls one queue.

    0  found             hand them on, go on at nextBeginOffset
    19 nothing new       the broker held the request for 15 s: ask again
    20 nothing for us    all filtered: go on at nextBeginOffset
    21 offset moved      outside of the queue: go on where the broker says

A broker holds a pull that finds nothing until a message arrives, so an idle queue costs one request in 15 s and a new
message is delivered at once. A broker that is full or broken answers at once, again and again, without messages. The
first quick answers have no pause, and the next ones short ones: a queue that was moved, or a broker that stops, delays
no message. Source: DefaultMQPushConsumerImpl.pullMessage and PullAPIWrapper, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.consuming.offset_store import offset_since
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import (
    AccessDenied,
    ConfigError,
    NetworkError,
    RemoteError,
    RemoteProtocolError,
    SparrowError,
)
from sparrowmq.kernel.messages import M, receive
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, PullFlag
from sparrowmq.protocol.messages.record import body_damage
from sparrowmq.protocol.requests.bodies import MASTER
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck
from sparrowmq.protocol.requests.headers import CheckClientConfig, PullMessage, PullMessageReply
from sparrowmq.protocol.subscription import TAG, Subscription
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)
ACCEPTED: Final = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)
HOLD_S: Final = 15.0
ANSWER_S: Final = 15.0  # time for the answer after the broker has held the request
STALLED_S: Final = 30.0
# A broker of ours answers with so many bytes, however many messages they are; Apache's with at most 32 messages.
PULL_BYTES: Final = 256 * 1024  # (Java 5: pullBatchSizeInBytes)
PAUSE_S: Final = 1.0  # after an error; Java waits 3 s
QUICK_ANSWER_S: Final = 0.1  # an answer that took so long needs no pause
_FREE_POLLS: Final = 5  # quick answers without a pause
_FIRST_BACKOFF_S: Final = 0.001
_MAX_BACKOFF_S: Final = 1.0
# The broker does not know us or our subscription; a heartbeat repairs this.
UNKNOWN_GROUP: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)
# The broker refuses now, and may not in a moment: it is busy, starts, stops, or a quota is used up.
TEMPORARY: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY}
)


def request(
    group: str,
    queue: MessageQueue,
    offset: int,
    subscription: Subscription,
    *,
    count: int,
    hold_s: float,
    commit_offset: int | None = None,
    is_lite: bool = False,
) -> PullMessage:
    """A pull that the broker may hold for `hold_s`; with `commit_offset` it commits on the way."""
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if hold_s else 0)
    if is_lite:  # As in 4.9. Clients of 5.x have a request of its own for it, 361, which brokers of 4.9 do not know.
        flags |= PullFlag.LITE_PULL
    if commit_offset is not None:
        flags |= PullFlag.COMMIT_OFFSET
    return PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=flags,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=round(hold_s * 1000),
        sub_version=subscription.version,
        subscription=subscription.expression,
        expression_type=subscription.kind,
        max_msg_bytes=PULL_BYTES,
    )


def messages_in(
    kind: type[M], body: bytes, queue: MessageQueue, subscription: Subscription, log_limit: LogLimit
) -> list[M]:
    """Return the messages of a pull's answer that match the subscription; brokers compare only hashes of tags.

    A damaged record is logged and left out: another pull would not repair it. `log_limit` limits these lines, as a
    broker can answer thousands of times a second.
    """
    messages: list[M] = []
    damaged_offsets: list[int] = []
    problem = receive(kind, body, messages, damaged_offsets)
    if problem is not None:
        log_limit.log(log, logging.ERROR, "skipping the rest of an answer for %s: %s", queue, problem)
    for offset in damaged_offsets:
        log_limit.log(log, logging.ERROR, "skipping a message of %s: %s", queue, body_damage(offset))
    tags = subscription.tags
    return [message for message in messages if message._tags() in tags] if tags else messages


def messages_of_answer(
    answer: Response[PullMessageReply], place: PullPosition, subscription: Subscription, log_limit: LogLimit
) -> list[ReceivedMessage]:
    """Return the messages of an answer to a pull. Raises: RemoteProtocolError, as `check_progress`."""
    if answer.code != ResponseCode.SUCCESS:
        return []
    messages = messages_in(ReceivedMessage, answer.body, place.queue, subscription, log_limit)
    if messages:
        check_progress(place.queue, place.next_offset, answer.header.next_begin_offset)
    return messages


def check_progress(queue: MessageQueue, offset: int, next_offset: int) -> None:
    """Check the next offset that an answer with messages names, or one that says that none matches.
    Raises: RemoteProtocolError, the next pull would be the same one again, and so would each later one.
    """
    if next_offset <= offset:
        raise RemoteProtocolError(
            f"the broker was asked for messages of {queue} from offset {offset} on, and names {next_offset} as the "
            "next offset; restart the broker, or look for a program that answers in its place"
        )


class EmptyPollBackoff:
    """The quick answers without messages that came one after another from one queue."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def pause_s(self, has_messages: bool, took_s: float) -> float:
        """Return the pause before the next request, after an answer that found something, or that took so long."""
        if has_messages or took_s >= QUICK_ANSWER_S:
            self._count = 0
            return 0.0
        self._count = min(self._count + 1, 100)
        if self._count <= _FREE_POLLS:
            return 0.0
        return min(_FIRST_BACKOFF_S * 2.0 ** (self._count - _FREE_POLLS - 1), _MAX_BACKOFF_S)


class FetchLoop:
    """Asks a broker for messages of one queue, again and again."""

    def __init__(
        self, group: str, process_queue: ProcessQueue, subscription: Subscription, brokers: Brokers, clock: Clock
    ) -> None:
        self._group = group
        self._process_queue = process_queue
        self._subscription = subscription
        self._brokers = brokers
        self._clock = clock
        self._is_failing = False
        self._empty_polls = EmptyPollBackoff()

    async def run(self) -> None:
        """Ask until cancelled, when the queue is given up. This drops the request in flight; no message is lost.
        Raises: AccessDenied; ConfigError, the broker cannot filter by this subscription, and will not learn it, or
        cannot pop.
        """
        while True:
            if not self._process_queue.has_room:
                await self._wait_for_room()
            began_s = self._clock.monotonic()
            try:
                has_messages = await self._ask()
            except (AccessDenied, ConfigError):
                raise
            except SparrowError as error:
                await self._recover(error)
                continue
            pause_s = self._empty_polls.pause_s(has_messages, self._clock.monotonic() - began_s)
            if pause_s:
                await self._clock.sleep(pause_s)

    async def _ask(self) -> bool:
        """Ask once, and pass on the answer. Return whether messages or a later offset came. Raises: SparrowError."""
        raise NotImplementedError

    async def _wait_for_room(self) -> None:
        try:
            await self._clock.wait_for(_room(self._process_queue), STALLED_S)
        except TimeoutError:
            if self._process_queue.is_full:
                log.warning(
                    "%s waits: %d messages (%d bytes) are delivered and not settled; use "
                    "`async with msg.process()`, or call msg.ack()",
                    self._process_queue.queue,
                    self._process_queue.unsettled_count,
                    self._process_queue.unsettled_bytes,
                )
            await _room(self._process_queue)

    async def _recover(self, error: SparrowError) -> None:
        """Repair what the client can repair, and wait a moment."""
        process_queue = self._process_queue
        level = logging.DEBUG if self._is_failing else logging.WARNING
        log.log(level, "cannot pull %s, trying again: %s", process_queue.queue, error)
        self._is_failing = True
        if isinstance(error, NetworkError):
            process_queue.is_cut_off = process_queue.is_cut_off or process_queue.broker_id == MASTER
            process_queue.broker_id = MASTER
        elif isinstance(error, RemoteError) and error.code in UNKNOWN_GROUP:
            await self._brokers.announce()
        elif isinstance(error, RemoteError):
            await self._check_filter(error)
        await self._clock.sleep(PAUSE_S)

    async def _check_filter(self, error: RemoteError) -> None:
        """Ask if the broker refuses the filter, as Java does when a consumer starts. Raises: ConfigError, it does."""
        subscription, broker_name = self._subscription, self._process_queue.queue.broker_name
        if error.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            if subscription.kind == TAG:
                return
            check = ClientConfigCheck(group=self._group, subscription_data=subscription)
            try:
                session = await self._brokers.of(broker_name)
                await session.call(CheckClientConfig(), check.encode())
                return
            except RemoteError as refusal:
                error = refusal
            except SparrowError:
                return
        raise ConfigError(
            f"{broker_name} cannot filter {subscription.topic} by the {subscription.kind} expression "
            f"{subscription.expression!r} ({shown(error.remark)}); correct it, filter by tag=, or let the broker do it "
            "(Apache's does SQL92 with enablePropertyFilter=true)"
        ) from error


async def _room(process_queue: ProcessQueue) -> None:
    while not process_queue.has_room:
        await process_queue.wait_for_change()


def log_move(
    log_limit: LogLimit, queue: MessageQueue, missing_offset: int, reply: PullMessageReply, offset: int
) -> None:
    """Warn that a queue does not have the offset that a consumer wants, and is read from another one on."""
    text = "%s has no offset %d for us (it holds %d to %d); going on at %d"
    log_limit.log(log, logging.WARNING, text, queue, missing_offset, reply.min_offset, reply.max_offset, offset)


class PullPosition(Protocol):
    """A queue, its next offset, and the offset and the storage time of its last message; 0 before the first."""

    queue: MessageQueue
    next_offset: int
    last_offset: int
    stored_ms: int


def note_last(place: PullPosition, messages: list[ReceivedMessage]) -> None:
    """Note the last message. No other message has its offset and time, even if the broker loses it."""
    if messages:
        last = messages[-1]
        place.last_offset, place.stored_ms = last.offset, last.store_timestamp_ms


async def first_new(place: PullPosition, end: int, brokers: Brokers) -> int:
    """The offset of the first message that was stored after the last one that came; `end` if none is known."""
    return min(end, await offset_since(place.queue, place.stored_ms + 1, brokers)) if place.stored_ms else end


async def offset_after_break(group: str, place: PullPosition, subscription: Subscription, brokers: Brokers) -> int:
    """The offset to go on at, at a broker that was away: the next one, unless other messages took the place of ours.

    The last message that came shows this. If it is not where it was, the broker has lost its end. If the queue ends
    before that place, or begins behind it, the next pull says so.
    """
    if not place.stored_ms:
        return place.next_offset
    session = await brokers.having(place.queue)
    pull = request(group, place.queue, place.last_offset, subscription, count=1, hold_s=0.0)
    answer = await session.call(pull, accept=ACCEPTED)
    if not answer.header.min_offset <= place.last_offset < answer.header.max_offset:
        return place.next_offset
    messages: list[ReceivedMessage] = []
    if answer.code == ResponseCode.SUCCESS:
        messages = messages_in(ReceivedMessage, answer.body, place.queue, subscription, brokers.log_limit)
    stored_places = {(message.offset, message.store_timestamp_ms) for message in messages}
    if (place.last_offset, place.stored_ms) in stored_places:
        return place.next_offset
    offset = await first_new(place, place.next_offset, brokers)
    if offset < place.next_offset:
        text = "%s has new messages in the place of those that its broker lost; going on at %d instead of %d"
        brokers.log_limit.log(log, logging.WARNING, text, place.queue, offset, place.next_offset)
    return offset


class Puller(FetchLoop):
    """Pulls one queue, again and again.

    Args:
        on_moved: called when the broker gives another offset while messages are being handled.
        read_committed: returns the offset that the group has committed; None if there is none.
        commits: whether pulls commit settled messages; not for offsets that are kept locally, which no broker lowers.
    """

    def __init__(
        self,
        group: str,
        process_queue: ProcessQueue,
        subscription: Subscription,
        brokers: Brokers,
        clock: Clock,
        on_pulled: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        on_moved: Callable[[ProcessQueue, int], None],
        read_committed: Callable[[MessageQueue], Awaitable[int | None]],
        *,
        count: int = 32,
        commits: bool = True,
    ) -> None:
        super().__init__(group, process_queue, subscription, brokers, clock)
        self._on_pulled = on_pulled
        self._on_moved = on_moved
        self._read_committed = read_committed
        self._count = count
        self._commits = commits

    async def _ask(self) -> bool:
        process_queue = self._process_queue
        if process_queue.is_cut_off:
            offset = await offset_after_break(self._group, process_queue, self._subscription, self._brokers)
            if offset < process_queue.next_offset:
                self._go_on(min(offset, process_queue.commit_offset))
                return False
        answer = await self._pull()
        messages = messages_of_answer(answer, process_queue, self._subscription, self._brokers.log_limit)
        self._is_failing = False
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await self._move(answer.header)
            return False
        return self._take(answer, messages)

    async def _pull(self) -> Response[PullMessageReply]:
        process_queue = self._process_queue
        session = await self._brokers.of(process_queue.queue.broker_name, process_queue.broker_id)
        is_known = process_queue.has_begun and not process_queue.is_cut_off
        # Only a master keeps offsets.
        commit = (
            process_queue.commit_offset if self._commits and is_known and process_queue.broker_id == MASTER else None
        )
        process_queue.pull_commits = commit
        process_queue.last_pull_ms = self._clock.now_ms()
        pull = request(
            self._group,
            process_queue.queue,
            process_queue.next_offset,
            self._subscription,
            count=self._count,
            hold_s=HOLD_S,
            commit_offset=commit,
        )
        return await session.call(pull, timeout_s=HOLD_S + ANSWER_S, accept=ACCEPTED)

    def _take(self, answer: Response[PullMessageReply], messages: list[ReceivedMessage]) -> bool:
        process_queue = self._process_queue
        has_advanced = answer.header.next_begin_offset > process_queue.next_offset
        process_queue.has_begun, process_queue.is_cut_off = True, False
        process_queue.pull_commits = None
        process_queue.broker_id = answer.header.suggest_which_broker_id
        process_queue.next_offset = answer.header.next_begin_offset
        if answer.code == ResponseCode.SUCCESS:
            stats = process_queue.stats
            stats.pulls += 1
            stats.pull_ms += max(self._clock.now_ms() - process_queue.last_pull_ms, 0)
            stats.pulled += len(messages)
            note_last(process_queue, messages)
            self._on_pulled(process_queue, messages)
        return has_advanced

    async def _move(self, reply: PullMessageReply) -> None:
        """Go on at another offset: the queue has none of ours (messages expired, or an operator set another)."""
        process_queue = self._process_queue
        offset = reply.next_begin_offset
        if process_queue.next_offset > reply.max_offset and offset > 0:
            offset = await self._after_loss(offset)
        log_move(self._brokers.log_limit, process_queue.queue, process_queue.next_offset, reply, offset)
        if not process_queue.unsettled_count and process_queue.next_offset == offset:
            await self._clock.sleep(PAUSE_S)
        else:
            self._go_on(offset)

    async def _after_loss(self, end: int) -> int:
        """The offset to go on at, of a queue that has lost messages, and has perhaps new ones in their place.

        The end would skip these. A group goes on at its committed offset, which such a broker has lowered to the end
        that it began with. Without one, new messages are those that were stored after the last one that came.
        """
        process_queue = self._process_queue
        committed = await self._read_committed(process_queue.queue) if self._commits else None
        if committed is not None and 0 <= committed < end:
            return committed
        return min(await first_new(process_queue, end, self._brokers), process_queue.commit_offset)

    def _go_on(self, offset: int) -> None:
        process_queue = self._process_queue
        if process_queue.unsettled_count:
            self._on_moved(process_queue, offset)
        else:
            process_queue.has_begun, process_queue.is_cut_off = True, False
            process_queue.next_offset = offset
