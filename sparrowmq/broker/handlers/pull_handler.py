"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): records of one queue, at once or when they arrive.

The broker sends the records as views of the log's bytes. A pull that finds no message is held (held_pulls.py) for as
long as the client asks. Only a pull of cold messages (cold_reads.py) costs a task.
Source: PullMessageProcessor, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Final

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.handler import SharedParts, no_topic, system_error
from sparrowmq.broker.held_pulls import HeldLimits, HeldPull, HeldPulls
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import InvalidMessage, RemoteError
from sparrowmq.kernel.pulls import Pull, PullAnswers
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.loop.tasks import after_thread, await_result
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.headers import LitePullMessage, PullMessage, PullMessageReply
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import ALL, TAG, Subscription
from sparrowmq.remoting.handler import PendingReply, Reply, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Usage
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.plain_reading import QueueLane
from sparrowmq.store.queues.queue_reading import MAX_SCANNED_ENTRIES, Read, Status

# Bits of `sysFlag` (Java: PullSysFlag).
COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4

SENT_AWAY_S: Final = 1.0
_MAX_LANE_ENTRIES: Final = 1024  # that one pull of a lane looks at

_CODES = {
    Status.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    Status.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    Status.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(frozen=True)
class PullRules:
    """The limits and rules for one pull.

    `max_count` and `max_bytes` limit a request without a byte limit. Unlike Java, only bytes limit one with
    `maxMsgBytes`, which makes bulk readers fast. A client that reads further than `near_bytes` from the log's end is
    sent to another broker. Without `serves`, as at a slave without a master, every client is sent away. A slave keeps
    no offsets, as its master has newer ones.
    """

    broker_name: str
    max_count: int = 32
    max_bytes: int = 256 * 1024
    max_sized_count: int = 8192
    max_sized_bytes: int = 1024 * 1024
    longest_hold_ms: int = 60_000
    near_bytes: int | None = None
    serves: bool = True
    keeps_offsets: bool = True
    held_limits: HeldLimits = field(default_factory=HeldLimits)


class PullHandler:
    def __init__(self, shared: SharedParts, rules: PullRules, filters: Filters) -> None:
        self._filters = filters
        self._store: MessageStore = shared.store
        self._topics: Topics = shared.topics
        self._groups: Groups = shared.groups
        self._clients: Clients = shared.clients
        self._offsets: Offsets = shared.offsets
        self._consumption: Consumption = shared.consumption
        self._rules = rules
        self._last_read_s = 0.0  # the time of the last read
        self._quotas = shared.quotas
        self.held_pulls = HeldPulls(shared.clock, self._serve_held, shared.quotas, rules.held_limits)
        shared.store.queues.on_removed = lambda queue: self.held_pulls.void(queue.end)
        self._plain_reader = shared.store.plain_reader()

    def apply_rules(self, rules: PullRules) -> None:
        self._rules = rules
        self.held_pulls.apply_limits(rules.held_limits)

    @property
    def lane_rules(self) -> object:
        """All that lanes rely on, as far as this handler knows: another value after each change."""
        topics = self._topics
        versions = topics.version, self._groups.version, self._clients.version, self._store.queues.version
        return self._rules, topics.permission, versions

    def lane(self, header: PullMessage) -> QueueLane | None:
        """A lane for pulls that differ from an allowed one in their offsets; None if they need the long way. Raises:
        SparrowError, that one was refused.
        """
        rules, group = self._rules, self._groups.get(header.consumer_group)
        queue = self._store.queues.get(header.topic, header.queue_id)
        if group is None or queue is None or not rules.serves or rules.near_bytes is not None:
            return None
        self._check(header, group, "")
        selector = self._find_selector(header)
        if not isinstance(selector, Selector) or selector.predicate is not None:
            return None
        count, size = self._limits(header)
        scanned = count if selector.takes_all else MAX_SCANNED_ENTRIES
        commits = bool(header.sys_flag & COMMIT_OFFSET) and rules.keeps_offsets
        if scanned > _MAX_LANE_ENTRIES:
            return None
        return QueueLane(
            count, size, scanned, selector.codes, queue=queue, group=header.consumer_group, commits=commits
        )

    def answer_plain(self, pull: Pull, answers: PullAnswers) -> bool:
        """Add the answer to a pull of a lane. Returns False, and nothing has changed, if it needs the long way."""
        lane = pull.lane
        assert isinstance(lane, QueueLane)
        begin_s = perf_counter()
        if not self._plain_reader.answer(pull, lane, answers):
            return False
        queue, group = lane.queue, lane.group
        if lane.commits:
            self._offsets.commit(group, queue.topic, queue.queue_id, pull.commit_offset)
        self._consumption.count_received(
            group, queue.topic, lane.count, queue.queue_id, lane.size_bytes, perf_counter() - begin_s
        )
        return True

    @handles(PullMessage, LitePullMessage)
    def pull(
        self, header: PullMessage, body: bytes, peer: Peer
    ) -> Reply | PendingReply | Awaitable[Reply | PendingReply]:
        group = self._groups.get(header.consumer_group) or self._groups.ensure(header.consumer_group)
        self._check(header, group, peer.address)
        if not self._rules.serves:
            # After a pause. Unlike Java, which answers at once, so clients loop while the master is gone.
            return self.held_pulls.hold(HeldPull(header, None, peer, header.queue_offset), None, SENT_AWAY_S)
        selector = self._find_selector(header)
        if not isinstance(selector, Selector):
            return await_result(in_slices(self._pull_after(selector, header, peer)))
        return self._pull(header, selector, peer)

    def _pull_after(
        self, compiling: Steps[Selector], header: PullMessage, peer: Peer
    ) -> Steps[Reply | PendingReply | Awaitable[Reply | PendingReply]]:
        selector = yield from compiling
        return self._pull(header, selector, peer)

    def _pull(
        self, header: PullMessage, selector: Selector, peer: Peer
    ) -> Reply | PendingReply | Awaitable[Reply | PendingReply]:
        if header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0 and self._rules.keeps_offsets:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        size = self._limits(header)[1]
        read_cold = self._store.cold_read(header.topic, header.queue_id, header.queue_offset, size)
        if read_cold is not None:
            return after_thread(read_cold, lambda: self._serve(header, selector, peer))
        return self._serve(header, selector, peer)

    def _serve(self, header: PullMessage, selector: Selector, peer: Peer) -> Reply | PendingReply:
        read = self._read(header, header.queue_offset, selector)
        if self._hides_known_messages(read, header):
            return self._hold(header, selector, peer, SENT_AWAY_S)
        may_wait = header.sys_flag & SUSPEND and header.suspend_timeout_millis > 0
        if may_wait and _code(read, header) == ResponseCode.PULL_NOT_FOUND:
            timeout_s = min(header.suspend_timeout_millis, self._rules.longest_hold_ms) / 1000
            return self._hold(header, selector, peer, timeout_s)
        return self._answer(read, header, peer)

    def _hides_known_messages(self, read: Read, header: PullMessage) -> bool:
        """Whether the client knows messages that this broker does not show yet. The client must not go back."""
        offset = header.queue_offset
        if offset <= read.max_offset:
            return False
        queue = self._store.queues.get(header.topic, header.queue_id)
        return not self._rules.keeps_offsets or (queue is not None and offset <= queue.next_offset)

    def _hold(self, header: PullMessage, selector: Selector, peer: Peer, timeout_s: float) -> PendingReply:
        self._consumption.count_held()
        end = self._store.queues.obtain(header.topic, header.queue_id).end
        return self.held_pulls.hold(HeldPull(header, selector, peer, header.queue_offset), end, timeout_s)

    def _serve_held(self, pull: HeldPull, is_over: bool) -> Reply | None:
        header, selector = pull.header, pull.selector
        assert isinstance(header, PullMessage)
        if pull.is_void:
            # The client reads the queue from its first message on. Unlike Java, which answers the same offset again:
            # in a topic that was made again, that would skip messages.
            return Reply(ResponseCode.PULL_OFFSET_MOVED, PullMessageReply(0, 0, 0, 0), "the topic was deleted")
        if pull.is_doubtful:
            return _retry_reply(header, "the accounts have changed: pull again")
        if selector is None:
            return _sent_away_reply(header) if is_over else None
        if is_over and pull.scanned is not None:
            return self._answer(pull.scanned, header, pull.peer, pull.usages)
        read = self._read(header, pull.next_offset, selector)
        if is_over and self._hides_known_messages(read, header):
            return _sent_away_reply(header)
        if is_over or read.status is Status.FOUND or read.status is Status.MESSAGE_WAS_REMOVING:
            return self._answer(read, header, pull.peer, pull.usages)
        if read.next_offset > pull.next_offset:
            pull.next_offset, pull.scanned = read.next_offset, read
        return None

    def _read(self, header: PullMessage, offset: int, selector: Selector) -> Read:
        count, size = self._limits(header)
        begin_s = perf_counter()
        read = self._store.read(header.topic, header.queue_id, offset, count, size, selector)
        self._last_read_s = perf_counter() - begin_s
        return read

    def _limits(self, header: PullMessage) -> tuple[int, int]:
        rules = self._rules
        count = max(1, header.max_msg_nums)
        if header.max_msg_bytes is None or header.max_msg_bytes <= 0:
            return min(count, rules.max_count), rules.max_bytes
        return min(count, rules.max_sized_count), min(header.max_msg_bytes, rules.max_sized_bytes)

    def _answer(self, read: Read, header: PullMessage, peer: Peer, usages: list[Usage] | None = None) -> Reply:
        if self._quotas.is_on:
            self._quotas.count_pulled(peer, header.topic, read.size, usages)
        self._consumption.count_received(
            header.consumer_group, header.topic, read.count, header.queue_id, read.size, self._last_read_s
        )
        near_bytes = self._rules.near_bytes
        whom_next = 0 if near_bytes is None else self._next_broker(header, read, near_bytes)
        reply = PullMessageReply(whom_next, read.next_offset, read.min_offset, read.max_offset)
        return Reply(_code(read, header), reply, read.status.name, read.views)

    def _next_broker(self, header: PullMessage, read: Read, near_bytes: int) -> int:
        group = self._groups.get(header.consumer_group)
        if group is None:
            return 0
        queue = self._store.queues.get(header.topic, header.queue_id)
        has_read = queue is not None and read.next_offset > header.queue_offset
        last_entry = queue.entry(read.next_offset - 1) if queue is not None and has_read else None
        is_far = last_entry is not None and self._store.end - last_entry.offset > near_bytes
        return group.which_broker_when_consume_slowly if is_far else group.broker_id

    def _check(self, header: PullMessage, group: GroupConfig, address: str) -> None:
        if not self._topics.permission & Perm.READ:
            raise self._topics.forbidden("pulling")
        if not group.consume_enable:
            raise RemoteError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}")
        if not group.consume_broadcast_enable:
            self._refuse_broadcasting(header.consumer_group)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise no_topic(header.topic)
        if header.incarnation is not None and not self._topics.may_be(header.topic, header.incarnation):
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] of incarnation {header.incarnation} not exist: it was deleted, and another one "
                "of its name was made",
            )
        if not topic.perm & Perm.READ:
            raise RemoteError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden on broker {self._rules.broker_name}",
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise system_error(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{address}]"
            )

    def _refuse_broadcasting(self, name: str) -> None:
        """Raise if the group consumes in broadcasting mode. Unlike Java: also if the pull has its own subscription."""
        group = self._clients.group_view(name)
        if group is not None and group.message_model == "BROADCASTING":
            raise RemoteError(
                ResponseCode.NO_PERMISSION, f"the consumer group[{name}] can not consume by broadcast way"
            )

    def _find_selector(self, header: PullMessage) -> Selector | Steps[Selector]:
        if header.sys_flag & SUBSCRIPTION:
            kind = header.expression_type
            if kind and kind != TAG:
                return self._filters.selector(kind, header.subscription)
            return selector_of(header.subscription or ALL)
        subscription = self._known_subscription(header)
        if subscription.kind != TAG:
            return self._filters.selector(subscription.kind, subscription.expression)
        return _selector_of_codes(subscription.codes)

    def _known_subscription(self, header: PullMessage) -> Subscription:
        subscription = self._clients.subscription(header.consumer_group, header.topic)
        if subscription is None:
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: group {header.consumer_group} sent no heartbeat that "
                f"subscribes {header.topic}",
            )
        if subscription.version < header.sub_version:
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest: the heartbeat with the new one has not come yet",
            )
        return subscription


def _sent_away_reply(header: PullMessage) -> Reply:
    return _retry_reply(
        header,
        "this broker does not show this offset now; pull from its master. It is a slave (slaveReadEnable=false, or no "
        "master is known, or the message has not come yet), or its disk is full",
    )


def _retry_reply(header: PullMessage, reason: str) -> Reply:
    reply = PullMessageReply(0, header.queue_offset, 0, header.queue_offset)
    return Reply(ResponseCode.PULL_RETRY_IMMEDIATELY, reply, reason)


def _code(read: Read, header: PullMessage) -> int:
    """Return the response code. As in Java, an empty queue is "not found" at offset 0 and "moved" elsewhere."""
    if read.status is Status.FOUND:  # the usual case; this check avoids hashing an enum member
        return ResponseCode.SUCCESS
    code = _CODES.get(read.status)
    if code is not None:
        return code
    return ResponseCode.PULL_NOT_FOUND if header.queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED


_MAX_CACHED_EXPRESSION: Final = 1024  # characters of an expression that is cached


@lru_cache(maxsize=4096)
def _selector_of_codes(codes: frozenset[int]) -> Selector:
    return Selector(codes or None)


def selector_of(expression: str) -> Selector:
    return _cached_selector(expression) if len(expression) <= _MAX_CACHED_EXPRESSION else _parse_selector(expression)


@lru_cache(maxsize=4096)
def _cached_selector(expression: str) -> Selector:
    return _parse_selector(expression)


def _parse_selector(expression: str) -> Selector:
    try:
        return Selector(Subscription.build("", expression).codes or None)
    except InvalidMessage as error:
        raise RemoteError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
        ) from None
