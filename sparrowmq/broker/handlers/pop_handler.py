"""POP_MESSAGE (200050), PEEK_MESSAGE (200052), NOTIFICATION (200054) and POLLING_INFO (200055): messages of any queue.

    pop ── messages ── their records, and the parts of their handles
        └─ none     ── hold until one comes ── or 210: the time is over; 209: too many wait

A handle is made by the client, from the header of the answer. Every client sends the revive queue back, and we have
none: it is a random token, and a handle without the right one does nothing.
Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor and PollingInfoProcessor, Java 5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.handlers.handler import Handler, SharedParts, no_topic
from sparrowmq.broker.handlers.pop_ack_handler import PopAckHandler
from sparrowmq.broker.handlers.pull_handler import selector_of
from sparrowmq.broker.held_pulls import HeldLimits, HeldPull, HeldPulls
from sparrowmq.broker.journal import Journal, not_safe_error
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.broker.pop.popper import (
    MAX_MESSAGES,
    MAX_SINGLE_READS,
    PopDeadLetters,
    Popper,
    PopRequest,
    PopResult,
    PopWakeups,
    QueueIds,
)
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.errors import NotSafeInTime, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.loop.tasks import after_thread, await_result
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.names import RETRY
from sparrowmq.protocol.receipt_handle import Kind, message_offsets_text, queue_counts_text, start_offsets_text
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.requests.pop_headers import (
    ANY_QUEUE,
    FROM_OLDEST,
    Notification,
    NotificationReply,
    PeekMessage,
    Polling,
    PollingReply,
    PopMessage,
    PopMessageReply,
)
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.protocol.subscription import TAG
from sparrowmq.remoting.handler import PendingReply, Reply, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Usage
from sparrowmq.store.message_store import MessageStore

_MAX_HOLD_MS: Final = 60_000
_MAX_INVISIBLE_MS: Final = 7 * 86_400_000
_MIN_HOLD_S: Final = 1.0  # for a read that goes on
_MANY_QUEUES: Final = 1024
_PopRequests = PopMessage | PeekMessage | Notification
_Result = Reply | PendingReply | Awaitable[Reply | PendingReply]


class PopHandler(Handler):
    """Give messages to consumers. At a slave, which has no journal, the guard refuses pops."""

    def __init__(
        self,
        shared: SharedParts,
        popper: Popper,
        wakeups: PopWakeups,
        filters: Filters,
        limits: HeldLimits | None = None,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(shared)
        self._journal = journal
        self._popper = popper
        self._wakeups = wakeups
        self._filters = filters
        self._first_queues: Counter[tuple[str, str]] = Counter()
        self.held_pops = HeldPulls(shared.clock, self._serve_held, shared.quotas, limits)

    @handles(PopMessage)
    def pop(self, header: PopMessage, body: bytes, peer: Peer) -> _Result:
        self._check(header, peer)
        if not 0 <= header.invisible_time <= _MAX_INVISIBLE_MS:
            raise RemoteError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime is {header.invisible_time} ms; it must be between 0 and {_MAX_INVISIBLE_MS}",
            )
        return self._with_selector(header, lambda selector: self._pop(header, selector, peer))

    @handles(PeekMessage)
    def peek(self, header: PeekMessage, body: bytes, peer: Peer) -> Reply:
        self._check(header, peer)
        request = self._request(header)
        result = self._popper.peek(request, self._clock.now_ms())
        self._note_unchecked(header, request, result)
        return self._answer(header, result, peer)

    @handles(Notification)
    def notify(self, header: Notification, body: bytes, peer: Peer) -> Reply | PendingReply:
        self._check(header, peer)
        result = self._find_any(header)
        if result.count:
            return Reply(0, NotificationReply(True, False))
        return self._hold_if_wanted(header, ALL, peer, result.is_out_of_time) or Reply(
            0, NotificationReply(False, False)
        )

    @handles(Polling)
    def polling(self, header: Polling, body: bytes, peer: Peer) -> PollingReply:
        return PollingReply(self.held_pops.waiting_for(self._wakeups.watermark(header.topic, header.consumer_group)))

    def _with_selector(self, header: PopMessage, serve: Callable[[Selector], _Result]) -> _Result:
        if not header.exp:
            return serve(ALL)
        if not header.exp_type or header.exp_type == TAG:
            return serve(selector_of(header.exp))
        selector = self._filters.selector(header.exp_type, header.exp)
        if isinstance(selector, Selector):
            return serve(selector)
        return await_result(in_slices(_serve_after(selector, serve)))

    def _pop(self, header: PopMessage, selector: Selector, peer: Peer) -> _Result:
        request = self._request(header, selector)
        read_cold = self._popper.cold_read(request)
        if read_cold is not None:
            return after_thread(read_cold, lambda: self._pop_or_hold(header, request, peer))
        return self._pop_or_hold(header, request, peer)

    def _pop_or_hold(self, header: PopMessage, request: PopRequest, peer: Peer) -> Reply | PendingReply:
        result = self._pop_messages(header, request)
        if result.count:
            return self._answer_when_safe(header, result, self._answer(header, result, peer))
        pending = self._hold_if_wanted(header, request.selector, peer, result.is_out_of_time)
        return pending or self._answer(header, result, peer)

    def _pop_messages(self, header: PopMessage, request: PopRequest) -> PopResult:
        now_ms, result = self._clock.now_ms(), None
        for retry in self._retry_topics_of_apache(header):
            ids = QueueIds(self._wakeups.queues_of(retry.topic_name, retry.read_queue_nums))
            retry_request = replace(
                request,
                topic=retry.topic_name,
                queue_ids=ids,
                count=min(request.count, MAX_SINGLE_READS),
                selector=ALL,
                init_mode=FROM_OLDEST,
                visible_topic=request.topic,
            )
            result = self._popper.pop(retry_request, now_ms, result)
        result = self._popper.pop(request, now_ms, result)
        self._note_unchecked(header, request, result)
        return result

    def _note_unchecked(self, header: _PopRequests, request: PopRequest, result: PopResult) -> None:
        """If time ended, let the next pop begin with the next queue, until all of them were looked at in vain."""
        key = (header.topic, header.consumer_group)
        if result.count:
            self._wakeups.empty_pops.pop(key, None)
        if not result.is_out_of_time or header.queue_id != ANY_QUEUE:
            return
        if result.checked_queues == 0:  # one queue has much to read
            self._wakeups.empty_pops.pop(key, None)
            return
        self._first_queues[key] += result.checked_queues - 1
        self._wakeups.empty_pops[key] += result.checked_queues
        result.is_out_of_time = self._wakeups.empty_pops[key] < len(request.queue_ids)

    def _retry_topics_of_apache(self, header: PopMessage) -> Iterator[TopicConfig]:
        """Yield the group's retry topics of this topic. The first kind could be the retry topic of another group."""
        group, topic = header.consumer_group, header.topic
        if header.order or topic.startswith(RETRY):
            return
        for kind in (Kind.RETRY_V1, Kind.RETRY_V2):
            name = kind.topic_of(topic, group)
            retry_topic = self._topics.get(name)
            if retry_topic is not None and self._groups.get(name.removeprefix(RETRY)) is None:
                yield retry_topic

    def _hold_if_wanted(
        self, header: PopMessage | Notification, selector: Selector, peer: Peer, is_unfinished: bool = False
    ) -> PendingReply | None:
        timeout_s = min(header.poll_time, _MAX_HOLD_MS) / 1000
        if is_unfinished:
            timeout_s = max(timeout_s, _MIN_HOLD_S)
        if timeout_s <= 0:
            return None
        topic, group = header.topic, header.consumer_group
        try:
            pending = self.held_pops.hold(
                HeldPull(header, selector, peer), self._wakeups.watermark(topic, group), timeout_s
            )
        except RemoteError as full:
            raise RemoteError(ResponseCode.POLLING_FULL, full.remark) from full
        self._wakeups.watch(topic)
        if is_unfinished:
            self._wakeups.wake_soon(topic, group)
        return pending

    def _serve_held(self, pull: HeldPull, is_over: bool) -> Reply | PendingReply | None:
        header = pull.header
        assert not isinstance(header, PullMessage)
        if pull.is_doubtful:
            return _retry_reply(header)
        if isinstance(header, Notification):
            result = self._find_any(header)
        else:
            assert pull.selector is not None
            result = self._pop_messages(header, self._request(header, pull.selector))
        is_over = is_over or (header.poll_time <= 0 and not result.is_out_of_time)
        if result.is_out_of_time:
            self._wakeups.wake_soon(header.topic, header.consumer_group)
        if not result.count and not is_over:
            self._wakeups.watch(header.topic)
            return None
        if isinstance(header, Notification):
            return Reply(0, NotificationReply(result.count > 0, False))
        answer = self._answer(header, result, pull.peer, pull.usages)
        return self._answer_when_safe(header, result, answer, pull)

    def _answer_when_safe(
        self, header: PopMessage, result: PopResult, answer: Reply, pending: PendingReply | None = None
    ) -> Reply | PendingReply:
        """Return the answer to a pop. One with messages in order waits until no election gives them to others."""
        if not header.order or not result.count or self._journal is None:
            return answer
        make_refusal = partial(self._undo_pop, header, result)
        return self._journal.answer_soon(answer, pending, make_refusal)

    def _undo_pop(self, header: PopMessage, result: PopResult, problem: BaseException) -> RemoteError:
        error = not_safe_error("the messages are given", problem)
        if isinstance(problem, NotSafeInTime):
            self._popper.take_back(header.topic, header.consumer_group, result)
            error = RemoteError(problem.code, f"no message is given now, as that is not safe: {problem}")
        error.__cause__ = problem
        return error

    def _find_any(self, header: Notification) -> PopResult:
        request = self._request(header)
        result = self._popper.has_any(request, self._clock.now_ms())
        self._note_unchecked(header, request, result)
        return result

    def _answer(
        self, header: PopMessage | PeekMessage, result: PopResult, peer: Peer, usages: list[Usage] | None = None
    ) -> Reply:
        topic, group = header.topic, header.consumer_group
        for queue in result.queues:
            self._consumption.count_received(group, topic, len(queue.offsets), queue.queue_id, result.size)
        if self._quotas.is_on:
            self._quotas.count_pulled(peer, topic, result.size, usages)
        if not result.count:
            self._consumption.count_received(group, topic, 0)
        counts = isinstance(header, PopMessage) and header.wants_counts
        reply = PopMessageReply(
            pop_time=result.pop_ms,
            invisible_time=header.invisible_time if isinstance(header, PopMessage) else 0,
            revive_qid=result.token,
            rest_num=self._popper.count_unread(topic, group, self._all_queue_ids(header)),
            start_offset_info=start_offsets_text(result.queues),
            msg_offset_info=None if counts else message_offsets_text(result.queues),
            most_msg_nums=MAX_MESSAGES,
            queue_counts=queue_counts_text(result.queues) if counts else None,
        )
        if result.count:
            return Reply(ResponseCode.SUCCESS, reply, "FOUND", result.views)
        code = ResponseCode.POLLING_TIMEOUT if isinstance(header, PopMessage) else ResponseCode.PULL_NOT_FOUND
        return Reply(code, reply, "NO_MESSAGE_IN_QUEUE")

    def _request(self, header: _PopRequests, selector: Selector = ALL) -> PopRequest:
        place = (header.topic, header.consumer_group, self._queue_ids(header))
        if isinstance(header, Notification):
            return PopRequest(*place, 1, is_orderly=bool(header.order), attempt_id=header.attempt_id or "")
        count = max(1, header.max_msg_nums)
        if isinstance(header, PeekMessage):
            return PopRequest(*place, count)
        return PopRequest(
            *place,
            min(count, MAX_SINGLE_READS) if header.order else count,
            header.invisible_time,
            selector,
            init_mode=header.init_mode,
            is_orderly=bool(header.order),
            attempt_id=header.attempt_id or "",
        )

    def _queue_ids(self, header: _PopRequests) -> QueueIds:
        ids = self._all_queue_ids(header)
        if header.queue_id != ANY_QUEUE:
            return QueueIds(ids)
        key = (header.topic, header.consumer_group)
        self._first_queues[key] = first_index = (self._first_queues[key] + 1) % max(len(ids), 1)
        return QueueIds(ids, first_index)

    def _all_queue_ids(self, header: _PopRequests) -> Sequence[int]:
        if header.queue_id != ANY_QUEUE:
            return (header.queue_id,)
        count = self._topic(header).read_queue_nums
        return range(count) if count <= _MANY_QUEUES else self._wakeups.queues_of(header.topic, count)

    def _topic(self, header: _PopRequests) -> TopicConfig:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise no_topic(header.topic)
        return topic

    def _check(self, header: _PopRequests, peer: Peer) -> None:
        if not self._topics.permission & Perm.READ:
            raise self._topics.forbidden("pop")
        if not isinstance(header, Notification) and header.max_msg_nums > MAX_MESSAGES:
            raise RemoteError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._topics.broker_name}] pop message's num is greater than {MAX_MESSAGES}",
            )
        topic = self._topic(header)
        if not topic.perm & Perm.READ:
            raise RemoteError(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] peeking message is forbidden")
        if not ANY_QUEUE <= header.queue_id < topic.read_queue_nums:
            raise RemoteError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer.address}]",
            )
        if not self._groups.ensure(header.consumer_group).consume_enable:
            raise RemoteError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")


def _retry_reply(header: PopMessage | Notification) -> Reply:
    """Return the answer after which a client asks again, as the accounts have changed: it may be denied then."""
    if isinstance(header, Notification):
        return Reply(0, NotificationReply(True, False))
    return Reply(ResponseCode.POLLING_TIMEOUT, PopMessageReply(0, 0, 0, 0), "the accounts have changed")


def _serve_after(compiling: Steps[Selector], serve: Callable[[Selector], _Result]) -> Steps[_Result]:
    return serve((yield from compiling))


def pop_parts(
    shared: SharedParts,
    journal: Journal | None,
    pops: PopState,
    filters: Filters,
    settings: BrokerSettings,
) -> Part:
    wakeups = PopWakeups(shared.store)
    pops.on_ready = wakeups.wake
    limits = HeldLimits(settings.max_held_pulls, settings.max_held_pulls_of_one)
    popper = Popper(shared.store, pops, settings.name, settings.message_group_read_ahead)
    pops_handler = PopHandler(shared, popper, wakeups, filters, limits, journal)
    ack_handler = PopAckHandler(pops, journal, shared.clock, settings.name)

    async def close() -> None:
        pops.work.close()

    return Part((pops_handler, ack_handler), tasks=(Task("show popped messages again", pops.work.run),), saves=(close,))


def pops_of(
    store: MessageStore,
    state: BrokerState,
    writer: Writer,
    clock: Clock,
    turn: Turn,
    figures: Figures,
    young_bytes: int,
) -> PopState:
    pops = PopState(state.pops, store, state.offsets, clock, turn, state.journal, young_bytes)
    pops.move_to_dlq = PopDeadLetters(store, writer, state.topics, state.groups).move_to_dlq
    if state.journal is not None:
        state.journal.watch_pops(pops)
    _declare_figures(pops, figures)
    return pops


def _declare_figures(pops: PopState, figures: Figures) -> None:
    figures.gauge(
        "sparrowmq_pop_messages",
        "popped messages that are not acknowledged: with consumers, visible again, or waiting",
        lambda: pops.invisible,
    )
    figures.counters(
        "sparrowmq_pop_total",
        "popped messages: given to consumers, acknowledged, not acknowledged in time, moved to dead-letter queues",
        ("what",),
        lambda: [
            (("taken",), pops.count_popped),
            (("acknowledged",), pops.count_acknowledged),
            (("expired",), pops.expired),
            (("dead",), pops.moved_to_dlq),
        ],
    )
