"""The settings of consumers and pull consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypedDict

from sparrowmq.client import arguments
from sparrowmq.client.consuming.retry import FailureRules, Retry
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.allocation import Strategy, StrategyName, strategy_of
from sparrowmq.protocol.messages.message import INT32, MessageQueue
from sparrowmq.protocol.names import check_group, check_topic
from sparrowmq.protocol.requests.pop_headers import AFTER_NEWEST, FROM_NEWEST, FROM_OLDEST
from sparrowmq.protocol.subscription import ALL, SQL92, TAG, Subscription, check_tags

PopStart = Literal["latest", "new", "earliest"]
Start = PopStart | datetime
Mode = Literal["pull", "pop"]
QueuesChanged = Callable[[list[MessageQueue]], object]
"""A listener, called with the queues that came or go; plain or asynchronous."""

Topics = str | Sequence[str] | Mapping[str, str]
OFFSET_FOLDER: Final = Path.home() / ".rocketmq_offsets"
MAX_BATCH: Final = 1024
MAX_CONCURRENCY: Final = 10_000  # each has a task: all start in 0.7 s and take 29 MiB. Java allows 1,000
PULL_BATCH: Final = 256  # larger batches gain nothing: the overhead of a request is already 1 %
DEFAULT_RECONSUME_TIMES: Final = 16
FOR_EVER: Final = 0x7FFFFFFF
MIN_PAUSE_S: Final = 0.01  # the pause of a queue after a failure
MAX_PAUSE_S: Final = 30.0
MAX_INVISIBLE_S: Final = 43_200.0  # 12 hours, as Apache's proxy allows
_CONSUME_FROM_WHERE: Final = {
    "latest": "CONSUME_FROM_LAST_OFFSET",
    "new": "CONSUME_FROM_LAST_OFFSET",
    "earliest": "CONSUME_FROM_FIRST_OFFSET",
}
_INIT_MODES: Final[Mapping[Start, int]] = {"latest": FROM_NEWEST, "new": AFTER_NEWEST, "earliest": FROM_OLDEST}


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The limits of unsettled messages of one queue. When one is reached, the queue is not pulled.

    `span` is between the first unsettled message and the next to pull; it limits the messages that come again after a
    crash.
    Raises: ConfigError, one is not a whole number above 0.
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000

    def __post_init__(self) -> None:
        for name in ("messages", "size_bytes", "span"):
            arguments.check_count(name, getattr(self, name))


class Tuning(TypedDict, total=False):
    """Arguments of `Client.subscribe` besides topics, filter, group and batch: fields of `ConsumerSettings`."""

    concurrency: int
    start: Start
    ordered: bool
    broadcast: bool
    max_reconsume_times: int | None
    retry: Retry | None
    pull_batch: int
    flow: FlowLimits
    strategy: Strategy | StrategyName
    grace_s: float
    handler_timeout_s: float | None
    suspend_s: float
    mode: Mode
    prefetch: int | None
    invisible_s: float
    on_assigned: QueuesChanged | None
    on_revoked: QueuesChanged | None
    offset_folder: Path


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of a consumer. All members of a group must subscribe to the same topics with the same filters."""

    group: str
    concurrency: int = 16
    """The number of handlers that run at once, at most 10,000; `Consumer.concurrency` can change it."""
    batch: int | None = None
    """The most messages delivered at once; None delivers each alone."""
    start: Start = "latest"
    """The begin of a group that has never consumed a topic. "latest" is Java's CONSUME_FROM_LAST_OFFSET: after
    the newest message, but at the beginning of a queue that still has its first one. Young and small topics have
    such queues, and so lose no message. "new" is after the newest message in every topic. "earliest" is the oldest
    stored message. A datetime is the first message stored since."""
    ordered: bool = False
    broadcast: bool = False
    max_reconsume_times: int | None = None
    """Failures before a message ends in the dead letters; None is 16, or forever when ordered."""
    retry: Retry | None = None
    """The delays and the number of retries, and the errors without any; None leaves the delays to the broker."""
    pull_batch: int = PULL_BATCH
    """Messages asked for at once: at most 256 KiB, and no more than `flow` lets wait. Apache's broker answers at most
    32."""
    flow: FlowLimits = field(default_factory=FlowLimits)
    strategy: Strategy | StrategyName = "averagely"
    """The way to share the queues among the members: "averagely", "by_circle", "consistent_hash", or a result of the
    functions of `sparrowmq.allocation`. All members must have the same one. (Java:
    allocateMessageQueueStrategy)"""
    grace_s: float = 5.0
    """The time for which running handlers may go on when the consumer is left."""
    handler_timeout_s: float | None = 900.0
    """The time limit of a handler. Then its messages are given back, and the handler is cancelled, up to a
    tenth later. A plain handler has a thread, which cannot be stopped: the log shows its stack, and it runs on. When
    ordered it keeps its messages. `ReceivedMessage.extend` adds time. None is no limit. (Java: consumeTimeout)"""
    suspend_s: float = 1.0
    """The pause of a queue after a failure when ordered, from 10 ms to 30 s; other values count as the
    nearest limit. `ReceivedMessage.retry` can set another. (Java: suspendCurrentQueueTimeMillis)"""
    mode: Mode = "pull"
    """"pull" gives each queue to one member. With "pop" the brokers give each message to one member, so there may be
    more members than queues, and a slow message delays no other. (Java: clientRebalance=false)"""
    prefetch: int | None = None
    """With mode="pop" the most messages that wait here while every handler has one; other members get the rest. None is
    one message, and with quick handlers as many as they have lately handled in 0.1 s, up to `flow.messages`."""
    invisible_s: float = 60.0
    """With mode="pop" the time after which the messages of a member that has died are delivered again. A member that
    lives extends the time of messages that it still handles. (Java: popInvisibleTime)"""
    on_assigned: QueuesChanged | None = None
    """Called with the queues that became this member's, before they are pulled: the place for `seek`."""
    on_revoked: QueuesChanged | None = None
    """Called with the queues that are being given up, before their last commit."""
    offset_folder: Path = OFFSET_FOLDER
    """The folder for offsets of broadcast groups."""

    def __post_init__(self) -> None:
        check_group(self.group)
        if self.batch is not None:
            arguments.check_count("batch", self.batch, at_most=MAX_BATCH)
        arguments.check_count("concurrency", self.concurrency, at_most=MAX_CONCURRENCY)
        arguments.check_count("pull_batch", self.pull_batch, at_most=INT32)
        if self.max_reconsume_times is not None:
            arguments.check_count("max_reconsume_times", self.max_reconsume_times, at_least=-1, at_most=INT32)
        arguments.check_flag("ordered", self.ordered)
        arguments.check_flag("broadcast", self.broadcast)
        arguments.check_kind("retry", self.retry, Retry | None, 'Retry("1s", "10s", "1m"), or leave it out')
        if self.retry is not None and (self.max_reconsume_times is not None or self.broadcast):
            raise ConfigError(
                "retry= has the number of retries: leave out max_reconsume_times="
                if self.max_reconsume_times is not None
                else "broadcast messages are not retried: leave out retry="
            )
        arguments.check_seconds("grace_s", self.grace_s, or_zero=True)
        arguments.check_seconds("suspend_s", self.suspend_s)
        arguments.check_seconds("handler_timeout_s", self.handler_timeout_s, or_none=True)
        arguments.check_kind("flow", self.flow, FlowLimits, "FlowLimits, or leave it out")
        arguments.check_kind("offset_folder", self.offset_folder, Path, "a pathlib.Path")
        check_start(self.start)
        check_listener("on_assigned", self.on_assigned)
        check_listener("on_revoked", self.on_revoked)
        check_strategy(self.strategy)
        check_invisible("invisible_s", self.invisible_s)
        if self.mode not in ("pull", "pop"):
            raise ConfigError(f"mode={self.mode!r} is unknown; use 'pull' or 'pop'")
        if self.prefetch is not None:
            arguments.check_count("prefetch", self.prefetch, at_least=0, at_most=INT32)
        if self.mode == "pop":
            check_pop_start(self.start)
            for name in ("ordered", "broadcast", "on_assigned", "on_revoked"):
                if getattr(self, name):
                    raise ConfigError(
                        f'{name}= needs queues of its own, and mode="pop" has none: leave out one of them'
                    )
        elif self.prefetch is not None:
            raise ConfigError('prefetch= needs mode="pop"; queues of its own have flow=FlowLimits(messages=...)')

    @property
    def reconsume_times(self) -> int:
        """Failures before a message ends in the dead letters."""
        if self.retry is not None:
            return self.retry.times
        if self.max_reconsume_times is not None and self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return FOR_EVER if self.ordered else DEFAULT_RECONSUME_TIMES

    @property
    def rules(self) -> FailureRules:
        """The rules for messages that fail, without the name of a handler."""
        times = 0 if self.broadcast else self.reconsume_times
        return FailureRules(
            self.group,
            retry=self.retry,
            times=None if times == FOR_EVER else times,
            pause_s=min(max(self.suspend_s, MIN_PAUSE_S), MAX_PAUSE_S) if self.ordered else None,
            not_retried="it is dropped: broadcast messages are not retried" if self.broadcast else "",
        )


class PullTuning(TypedDict, total=False):
    """Arguments of `Client.pull_consumer` besides the group: fields of `PullSettings`."""

    start: Start
    pull_batch: int
    broadcast: bool
    auto_commit_s: float | None
    strategy: Strategy | StrategyName
    on_assigned: QueuesChanged | None
    on_revoked: QueuesChanged | None
    offset_folder: Path


@dataclass(frozen=True, slots=True)
class PullSettings:
    group: str
    start: Start = "latest"
    """The begin of a queue without committed offset and without `seek`; as for consumers."""
    pull_batch: int = PULL_BATCH
    """Messages asked for at once of each queue, at most 256 KiB; Apache's broker answers at most 32."""
    broadcast: bool = False
    """Whether a subscriber gets all queues, and offsets are kept in a file on this machine."""
    auto_commit_s: float | None = None
    """Seconds between commits of messages that `poll` returned before its last call. The program may still
    handle those of the last call. None leaves commits to `commit`. (Java: autoCommit, 5 s)"""
    strategy: Strategy | StrategyName = "averagely"
    """The way to share the queues of subscribed topics among the members; as for consumers."""
    on_assigned: QueuesChanged | None = None
    """As for consumers, called with the queues that `subscribe` brings and takes."""
    on_revoked: QueuesChanged | None = None
    """As for consumers, called with the queues that `subscribe` brings and takes."""
    offset_folder: Path = OFFSET_FOLDER

    def __post_init__(self) -> None:
        check_group(self.group)
        arguments.check_flag("broadcast", self.broadcast)
        check_start(self.start)
        check_listener("on_assigned", self.on_assigned)
        check_listener("on_revoked", self.on_revoked)
        check_strategy(self.strategy)
        arguments.check_count("pull_batch", self.pull_batch, at_most=INT32)
        arguments.check_kind("offset_folder", self.offset_folder, Path, "a pathlib.Path")
        arguments.check_seconds("auto_commit_s", self.auto_commit_s, or_none=True)


class SimpleTuning(TypedDict, total=False):
    """Arguments of `Client.simple_consumer` besides topics, filter and group: fields of `SimpleSettings`."""

    start: PopStart
    order: bool
    max_reconsume_times: int


@dataclass(frozen=True, slots=True)
class SimpleSettings:
    group: str
    start: PopStart = "latest"
    """The begin of a group that has never consumed a topic; as for consumers."""
    order: bool = False
    """Whether a queue gives no more messages until those before are acknowledged, or visible again."""
    max_reconsume_times: int = DEFAULT_RECONSUME_TIMES
    """Failures of `message.process()` before a message ends in the dead letters."""

    def __post_init__(self) -> None:
        check_group(self.group)
        check_pop_start(self.start)
        arguments.check_flag("order", self.order)
        arguments.check_count("max_reconsume_times", self.max_reconsume_times, at_least=0, at_most=INT32)


def check_pop_start(start: object) -> None:
    """Raises: ConfigError, pop consumption cannot begin there."""
    if not isinstance(start, str) or start not in _CONSUME_FROM_WHERE:
        raise ConfigError(f"start={start!r}: pop consumption begins at 'latest', 'new' or 'earliest'")


def check_invisible(name: str, seconds: object) -> None:
    """Raises: ConfigError, that is no invisible time."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_INVISIBLE_S:
        raise ConfigError(f"{name}={seconds!r}: give seconds above 0, at most {MAX_INVISIBLE_S:.0f}")


def init_mode(start: Start) -> int:
    """`start` as pops name it."""
    return _INIT_MODES[start]


def consume_from_where(start: Start) -> str:
    """`start` as heartbeats name it."""
    return _CONSUME_FROM_WHERE[start] if isinstance(start, str) else "CONSUME_FROM_TIMESTAMP"


def check_strategy(strategy: Strategy | StrategyName) -> None:
    """Raises: ConfigError, the strategy is unknown, or cannot be called as one."""
    arguments.check_callable(
        "strategy", strategy_of(strategy), "a function of all queues, the members, and this member", takes=3
    )


def check_listener(name: str, changed: QueuesChanged | None) -> None:
    """Raises: ConfigError, the listener cannot be called."""
    if changed is not None:
        arguments.check_callable(name, changed, "a function of a list of queues", takes=1)


def check_start(start: object) -> None:
    """Raises: ConfigError, the start is unknown."""
    if isinstance(start, datetime):
        arguments.check_time("start", start)
    elif not (isinstance(start, str) and start in _CONSUME_FROM_WHERE):
        raise ConfigError(f"start={start!r} is unknown; use 'latest', 'new', 'earliest' or a datetime")


def full_names(topics: Topics, full_name: Callable[[str], str]) -> Topics:
    """The topics by the names that brokers know. Raises: ConfigError, they are no topics."""
    if isinstance(topics, str):
        return full_name(topics)
    if isinstance(topics, Mapping):
        return {full_name(topic): tags for topic, tags in topics.items()}
    arguments.check_kind("topics", topics, Iterable, "a topic, several, or tags by topic")
    if isinstance(topics, Iterator):
        raise ConfigError(f"topics={topics!r} can be read only once; give a list")
    return [full_name(topic) for topic in topics]


def subscriptions(topics: Topics, tag: str | None, where: str | None, now_ms: int) -> dict[str, Subscription]:
    """The subscriptions by topic. A mapping gives each topic its own tags.
    Raises: InvalidName, a topic cannot exist; ConfigError, two filters for the same topic, a filter that is no text, or
    no topic.
    """
    if tag is not None and where is not None:
        raise ConfigError("give tag= or where=, not both; SQL92 knows the tag as TAGS")
    if not topics and not isinstance(topics, str):
        raise ConfigError(f"topics={topics!r} is empty; give a topic, several, or tags by topic")
    if isinstance(topics, Mapping):
        if tag is not None or where is not None:
            raise ConfigError("a mapping gives each topic its tags; leave out tag= and where=")
        return {topic: subscription(topic, tags, None, now_ms) for topic, tags in topics.items()}
    names = [topics] if isinstance(topics, str) else topics
    return {topic: subscription(topic, tag, where, now_ms) for topic in names}


def subscription(topic: str, tag: str | None, where: str | None, now_ms: int) -> Subscription:
    """One topic's filter: tags as "a || b", an SQL92 expression, or neither for everything.
    Raises: InvalidName, the topic cannot exist; ConfigError, a filter is no text, or an empty expression, for which a
    broker would refuse the client's whole heartbeat; InvalidMessage, as `check_tags`.
    """
    arguments.check_text("tag", tag, or_none=True)
    arguments.check_text("where", where, or_none=True)
    if where is not None and not where.strip():
        raise ConfigError(f"where={where!r} is not a condition; leave it out to get all messages")
    if tag and where is None:
        check_tags(tag)
    expression, kind = (where, SQL92) if where is not None else (tag or ALL, TAG)
    return Subscription.build(check_topic(topic), expression, kind, now_ms)
