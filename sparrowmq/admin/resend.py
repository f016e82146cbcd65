"""Sends stored messages again that a cluster lacks, such as those of `set-aside`: `sparrowmq store resend`.

    prepare     routes of the topics, settings of their masters
    state       each master of the topic is asked for the unique id: is the message there already?
    send        to the queue from which it came, or always to the same other one; waits for SEND_OK

A send says that the message may be stored already (MAY_BE_STORED). So our brokers store it once even if two programs
send it at the same time. Brokers of Apache ignore that.

A message is not recognised if its record has expired at the cluster, or has left the index of keys. A broker without an
index (messageIndexEnable=false) is refused. A broker whose index lacks keys answers searches with an error.

Where a record goes, and which do not go:

    orders                 sent, also what a transaction committed, and what a staged batch published
    SCHEDULE_TOPIC_XXXX    sent to the topic where the message was to go; at once if its time is over
    rmq_sys_wheel_timer    likewise; not if a recall of the message is there, too. A recall alone is not sent: the
                           cluster does not say if it still waits for the message
    %RETRY%billing         sent with the number of its tries: the group has not handled this message yet. Of several
                           tries only the last one
    %DLQ%billing           sent: the message is there for people, and nothing else says that it failed
    half messages          not sent, as an open transaction has no result. The same for the records of how they ended
    a request              not sent: its sender has stopped waiting, and may have repeated it
    X_REPLY_TOPIC          not sent: answers to such requests
    rmq_sys_..., traces    not sent: records of the broker itself. A new master has its own topics, groups and offsets.
                           A writer stages a batch again that was not committed
    batch queues of 5.x    not sent: such a record has several messages in a form that no producer sends

A message keeps its body, tag, keys, flag, its unique id and the properties of its producer. The properties that a
broker added are left out, and so are those that would make it wait or be half a message again. A message without a
unique id gets its offset id as one: consumers already know it by that id, and a second run finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from sparrowmq.admin.catalogue import PAGE, broker_settings, query_messages
from sparrowmq.admin.dead_letters import DELAY_PROPERTIES, TRANSACTION_PROPERTIES
from sparrowmq.admin.message_search import FOR_EVER_MS
from sparrowmq.admin.servers import BrokerPlace, Servers
from sparrowmq.client.cluster.routes import MASTER, Route
from sparrowmq.client.sending.send_request import SendContent
from sparrowmq.client.sending.send_result import LESS_SAFE, SendStatus
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import AccessDenied, BrokerUnreachable, NoBroker, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import JAVA_LEVELS, DelayLevels, level_of
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage, SysFlag
from sparrowmq.protocol.messages.property_names import DELAYS, POP_NOTES, TIMER_NOTES, Property
from sparrowmq.protocol.requests.headers import QueryMessage

_DELAY_TOPICS: Final = (names.SCHEDULE_TOPIC, names.TIMER_TOPIC)
_TRANSACTION_TOPICS: Final = (names.HALF_TOPIC, names.OP_HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC)
_PARKING_TOPICS: Final = frozenset({*_DELAY_TOPICS, names.HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC})
_MAX_CLOCK_DIFFERENCE_MS: Final = 86_400_000  # clocks of brokers may differ by so much


# Written by a broker, or only for the first send.
_DROPPED_PROPERTIES: Final = (
    DELAY_PROPERTIES
    | TRANSACTION_PROPERTIES
    | {
        Property.WAIT,
        Property.CLUSTER,
        Property.TRAN_OWNER,
        *TIMER_NOTES,
        *POP_NOTES,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.FORWARD_QUEUE_ID,
        Property.INNER_MULTI_QUEUE_OFFSET,
    }
)


class LeftOut(Enum):
    """The reason why a record is not sent."""

    HALF = "half messages, and records of how transactions ended"
    OPEN = "committed messages whose transaction the cluster has still open; run this again when it has ended"
    REQUEST = "requests that want an answer: their senders have stopped waiting"
    ANSWER = "answers to requests: the clients that asked have stopped waiting"
    RECALL = "recalls of messages that were to come later"
    RECALLED = "messages that were recalled"
    COPY = "second copies, or earlier tries, of messages in these files"
    PACKED = "records of a batch queue, which no producer can send"
    OWN = "records of the broker itself: topics, groups, offsets, staged batches, traces"


Key: TypeAlias = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Resent:
    """A stored message that can be sent again. `topic` and `queue_id` are those where its producer sent it. `level` is
    the delay level by which it waited, `due_ms` the time for which it waited; 0 for others.
    """

    stored: StoredMessage
    topic: str
    queue_id: int
    level: int = 0
    due_ms: int = 0

    @property
    def unique_id(self) -> str:
        """The id by which it can be found: its own, or the one of its place in the log that it left."""
        return self.stored.message_id

    @property
    def key(self) -> Key:
        """The same for another copy of the message, and for another try of it."""
        return self.topic, self.unique_id, self.stored.body_crc, len(self.stored.body)

    @property
    def is_committed(self) -> bool:
        """Whether it was a half message before."""
        return self.stored.properties.get(Property.TRAN_MSG, "").lower() == "true"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics where it may be, if it is there already."""
        topics = [self.topic]
        is_retry = self.topic.startswith(names.RETRY)
        if is_retry or self.level or self.due_ms or not self.stored.properties.keys().isdisjoint(DELAYS):
            topics += _DELAY_TOPICS
        if is_retry:
            topics.append(names.dlq_topic(self.topic.removeprefix(names.RETRY)))
        return tuple(topics)

    def is_in(self, record: StoredMessage) -> bool:
        """Return whether a found record is this message, or a later try of it. Other messages may have the same id."""
        topic = record.properties.get(Property.REAL_TOPIC) if record.topic in _PARKING_TOPICS else record.topic
        is_there = topic == self.topic or topic == self.topic.replace(names.RETRY, names.DLQ, 1)
        return (
            is_there
            and record.unique_key == self.unique_id
            and record.body == self.stored.body
            and record.reconsume_times >= self.stored.reconsume_times
        )

    def packed(self, now_ms: int, delays: DelayLevels, *, has_timers: bool) -> SendContent:
        """Return it for a send. A broker without timers may deliver it later, by a delay level."""
        stored = self.stored
        kept_properties = {name: value for name, value in stored.properties.items() if name not in _DROPPED_PROPERTIES}
        kept_properties[Property.UNIQ_KEY] = self.unique_id
        due_ms = self.due_ms or (
            delays.deliver_timestamp_ms(self.level, stored.store_timestamp_ms) if self.level else 0
        )
        if due_ms > now_ms and has_timers:
            kept_properties[Property.TIMER_DELIVER_MS] = str(due_ms)
        elif due_ms > now_ms:
            levels = range(1, delays.max + 1)
            kept_properties[Property.DELAY] = str(
                next((level for level in levels if delays.delay_ms(level) >= due_ms - now_ms), delays.max)
            )
        group, tries = names.group_of(self.topic), stored.reconsume_times
        topic, max_tries = self.topic, None
        if group is not None:
            # A try that was due comes, even above the group's limit. A retry without tries left is a dead letter: the
            # broker makes its topic if there is none.
            topic, max_tries = names.retry_topic(group), 0 if self.topic.startswith(names.DLQ) else tries + 1
        return SendContent(
            *(topic, stored.body, properties.render(kept_properties), stored.sys_flag & SysFlag.OF_BODY, stored.flag),
            reconsume_times=tries,
            max_reconsume_times=max_tries,
        )


def resent(stored: StoredMessage) -> Resent | LeftOut:
    """Return how a record of the log is sent again, or why it is not."""
    properties, topic, queue_id = stored.properties, stored.topic, stored.queue_id
    level = due_ms = 0
    if topic in _DELAY_TOPICS:
        if Property.TIMER_DEL_UNIQKEY in properties:
            return LeftOut.RECALL
        if topic == names.SCHEDULE_TOPIC:
            level = level_of(queue_id)
        else:
            due_ms = whole_number(properties.get(Property.TIMER_OUT_MS)) or 0
        topic = properties.get(Property.REAL_TOPIC, topic)
        queue_id = whole_number(properties.get(Property.REAL_QID)) or 0
    state = stored.sys_flag & SysFlag.TRANSACTION_MASK
    if topic in _TRANSACTION_TOPICS or state in (SysFlag.PREPARED, SysFlag.ROLLBACK):
        return LeftOut.HALF
    if names.is_internal(topic) or names.is_system_topic(topic):
        return LeftOut.OWN
    if stored.sys_flag & (SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP):
        return LeftOut.PACKED
    if topic.endswith(names.REPLY_SUFFIX):
        return LeftOut.ANSWER
    if Property.REPLY_TO_CLIENT in properties:
        return LeftOut.REQUEST
    return Resent(stored, topic, queue_id, level, due_ms)


class ResendState(Enum):
    """The state of a message at a cluster."""

    MISSING = "missing"
    THERE = "there"
    OPEN = "open"  # its transaction is: its producer will be asked for the result


class Resending:
    """Stored messages that are sent to a cluster again. `is_checked`: messages that are there already are looked for.
    `is_dry`: nothing will be sent, so an account without the right to read settings of brokers is enough.
    """

    def __init__(self, servers: Servers, *, is_checked: bool = True, is_dry: bool = False) -> None:
        self._servers = servers
        self._is_dry = is_dry
        self._is_checked = is_checked
        self._routes: dict[str, Route] = {}
        self._settings: dict[str, Mapping[str, str]] = {}  # by the address of a master
        self._broker_names: dict[str, str] = {}  # the brokers' names by their addresses

    async def prepare(self, topics: Iterable[str]) -> list[str]:
        """Ask for what `state_of` and `send` need; return the topics that do not exist.
        Raises: NoBroker, there is none; BrokerUnreachable, a broker of a topic has no master; AccessDenied, the account
        may not read settings of brokers; NoRoute, no queue of a topic takes messages.
        """
        missing_topics = []
        brokers = await self._servers.brokers()
        if not brokers:
            raise NoBroker(self._servers.namesrv)
        self._broker_names = {address: broker.name for broker in brokers for address in broker.addresses.values()}
        for topic in topics:
            try:
                route = Route.build(topic, await self._servers.route(topic))
            except NoRoute:
                if names.group_of(topic) is None:
                    missing_topics.append(topic)
                    continue
                route = _of_group(topic, brokers)
            if not route.writable and not route.lacks_master:
                raise NoRoute(topic, None)
            self._routes[topic] = route
            for address in _masters(route):
                if address not in self._settings:
                    try:
                        self._settings[address] = await broker_settings(self._servers, address)
                    except AccessDenied:
                        if not self._is_dry:
                            raise
                        self._settings[address] = {}
        return missing_topics

    def without_index(self) -> list[str]:
        """Return the addresses of masters that cannot find messages by their ids."""
        settings = self._settings.items()
        return sorted(
            address
            for address, broker_settings_of_address in settings
            if broker_settings_of_address.get("messageIndexEnable") == "false"
        )

    async def state_of(self, message: Resent) -> ResendState:
        """Return whether a message is at the cluster. Raises: RemoteError, a broker cannot find out."""
        if not self._is_checked:
            return ResendState.MISSING
        for topic in message.topics:
            if await self._has(message, topic):
                return ResendState.THERE
        if message.is_committed and await self._has(message, names.HALF_TOPIC):
            # A transaction that was given up is not asked for any more, and this message was committed.
            return ResendState.MISSING if await self._has(message, names.CHECK_MAX_TIME_TOPIC) else ResendState.OPEN
        return ResendState.MISSING

    def queue_of(self, message: Resent) -> MessageQueue:
        """Return the queue for a message: the same one for all messages of one queue, so that they keep their order."""
        route = self._routes[message.topic]
        broker_name = self._broker_names.get(message.stored.store_host, "")
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        return queue if queue in route.writable else route.writable[message.queue_id % len(route.writable)]

    async def send(self, message: Resent) -> None:
        """Send a message, as safely as its broker promises. Raises: SendFailed, it is stored, but less safely."""
        queue = self.queue_of(message)
        address = self._routes[message.topic].brokers[queue.broker_name][MASTER]
        settings = self._settings[address]
        delays = DelayLevels.parse(settings.get("messageDelayLevel") or JAVA_LEVELS)
        has_timers = settings.get("timerWheelEnable") == "true"
        packed = message.packed(self._servers.network.clock.now_ms(), delays, has_timers=has_timers)
        header = packed.request(names.TOOLS_GROUP, queue, message.stored.born_timestamp_ms)
        header.may_be_stored = True if self._is_checked else None
        answer = await self._servers.ask(address, header, packed.body, accept=LESS_SAFE)
        if answer.code != ResponseCode.SUCCESS:
            raise SendFailed(
                f"{queue.broker_name} stored message {message.unique_id}, but a crash there could lose it: "
                f"{SendStatus(answer.code).name}. First do what `sparrowmq doctor` says about its disk or its slaves"
            )

    async def _has(self, message: Resent, topic: str) -> bool:
        for address in _masters(self._routes[message.topic]):
            begin_ms = (
                min(message.stored.born_timestamp_ms, message.stored.store_timestamp_ms) - _MAX_CLOCK_DIFFERENCE_MS
            )
            request = QueryMessage(
                *(topic, message.unique_id, PAGE, max(begin_ms, 0), FOR_EVER_MS), unique_key_query=True
            )
            try:
                records = await query_messages(self._servers, address, request)
            except RemoteError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            if any(map(message.is_in, records)):
                return True
        return False


def _of_group(topic: str, brokers: Sequence[BrokerPlace]) -> Route:
    """Return a route for a retry or dead-letter topic that a broker makes with the first message for it."""
    queues = tuple(MessageQueue(topic, place.name, 0) for place in brokers if place.master is not None)
    return Route(topic, queues, (), {place.name: place.addresses for place in brokers})


def _masters(route: Route) -> list[str]:
    for name, addresses in route.brokers.items():
        if MASTER not in addresses:
            raise BrokerUnreachable(name, "it has no master now")
    return [addresses[MASTER] for addresses in route.brokers.values()]
