"""The JSON bodies of requests and replies. What Java calls ...Data, ...Wrapper or ...Info has a plainer name here.

Source: the classes of org.apache.rocketmq.common.protocol, Java 4.9.8, whose output the tests hold. Members that only
5.x has are None unless they came in.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec import field

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.group_settings import GroupRetryPolicy, GroupSubscription
from sparrowmq.protocol.subscription import Subscription, with_subscriptions
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.body import Body

# Routes -------------------------------------------------------------------------------------------------------------

MASTER: Final = 0
MOST_QUEUES: Final = 65_535  # of a topic at one broker


class BrokerRoute(Body):
    """The addresses of the brokers of one name, by broker id; `MASTER` is 0. (Java: BrokerData)"""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class QueueRoute(Body):
    """The queues of a topic on one broker, and their permission. (Java: QueueData)"""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class TopicRoute(Body):
    """The answer to GetRoute. Clients before V4_9_4 get bare integer keys. (Java: TopicRouteData)"""

    broker_datas: list[BrokerRoute] = []
    queue_datas: list[QueueRoute] = []
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = {}
    names_brokers: bool | None = None  # ours: these are a proxy's addresses, so requests name their broker


class ClusterTable(Body):
    """All brokers by name, and the brokers of each cluster. (Java: ClusterInfo)"""

    broker_addr_table: dict[str, BrokerRoute] = {}
    cluster_addr_table: dict[str, list[str]] = {}
    names_brokers: bool | None = None  # as in a TopicRoute


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    """Texts by name: a name server's settings, a broker's figures."""

    table: dict[str, str] = {}


CONDITION: Final = "condition."  # the begin of its key in a brokerStatus; the name of the condition follows


class ToldCondition(Body):
    """A condition in which a broker does less than people expect, in its brokerStatus. Ours (metrics/conditions.py)."""

    severity: str = ""
    what: str = ""
    since_ms: int = 0
    remedy: str = ""
    cause: str | None = None  # the name of the condition of the same server that it follows from


class LostBroker(Body):
    """A broker that died, and its topics, in the values of a name server. Ours (namesrv/lost_brokers.py)."""

    cluster: str = ""
    address: str = ""
    since_ms: int = 0
    topics: list[str] = []


# Topics and groups as they are configured ---------------------------------------------------------------------------


class DataVersion(Body):  # the wire's word
    """Which state of a broker's topics this is; Java compares time and counter."""

    counter: int = 0
    timestamp: int = 0
    state_version: int | None = None

    def is_same(self, other: DataVersion) -> bool:
        """Whether both name one state; 4.9 has no `stateVersion`, which is then 0."""
        mine = (self.counter, self.timestamp, self.state_version or 0)
        return mine == (other.counter, other.timestamp, other.state_version or 0)

    def after_change(self, now_ms: int) -> DataVersion:
        return DataVersion(self.counter + 1, now_ms, self.state_version)


class JournalMark(Body):
    """The part of a broker's journal that a table has. Ours; other programs ignore it (broker/state/replay.py)."""

    next: int = 0  # the queue offset of the first record that it does not have
    is_ahead: bool = False  # whether it has a change that the log could not take


class TopicConfig(Body):
    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class TopicConfigTable(Body):
    """A broker's topics: code 21, topics.json, and a part of a registration. (Java: TopicConfigSerializeWrapper)

    Attributes:
        incarnations: by topic, a number that differs for each topic that the broker has made under the name. Ours;
            other programs ignore it.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    journal: JournalMark | None = None
    incarnations: dict[str, int] | None = None


class GroupConfig(Body):
    """The settings of a consumer group. (Java: SubscriptionGroupConfig)"""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    consume_timeout_minute: int | None = None
    group_sys_flag: int | None = None
    group_retry_policy: GroupRetryPolicy | None = None
    subscription_data_set: list[GroupSubscription] | None = None
    attributes: dict[str, str] | None = None


class GroupConfigTable(Body):
    """A broker's groups: code 201 and subscriptionGroup.json. (Java: SubscriptionGroupWrapper)"""

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, GroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] | None = None
    journal: JournalMark | None = None


class GroupList(Body):
    group_list: list[str] = []


# Clients ------------------------------------------------------------------------------------------------------------

# C++ sends the place in these rows instead of the name.
CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


# A body that was read holds the name, so that is the type for all who use it.
if TYPE_CHECKING:
    Word = str
else:
    Word = str | int


class ProducerBeat(Body):
    group_name: str = ""


class ConsumerBeat(Body):
    """One consumer group of a client. The three words are always names here, even if the client sent numbers."""

    group_name: str = ""
    consume_type: Word = "CONSUME_PASSIVELY"
    message_model: Word = "CLUSTERING"
    consume_from_where: Word = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_type = _name(self.consume_type, CONSUME_TYPES)
        self.message_model = _name(self.message_model, MESSAGE_MODELS)
        self.consume_from_where = _name(self.consume_from_where, CONSUME_FROM_WHERE)


class Heartbeat(Body):
    """A client and its groups; `without_sub` says: my subscriptions are those you know. (Java: HeartbeatData)"""

    client_id: str = field(name="clientID", default="")
    producer_data_set: list[ProducerBeat] = []
    consumer_data_set: list[ConsumerBeat] = []
    heartbeat_fingerprint: int | None = None
    without_sub: bool | None = None

    @classmethod
    def of_request(cls, raw: bytes | bytearray | memoryview) -> Self:
        return super().of_request(with_subscriptions(raw, "heartbeat"))


class ConsumerList(Body):
    consumer_id_list: list[str] = []


class ClientConfigCheck(Body):
    """The body of CheckClientConfig. (Java: CheckClientRequestBody)"""

    client_id: str = ""
    group: str = ""
    subscription_data: Subscription | None = None
    namespace: str | None = None

    @classmethod
    def of_request(cls, raw: bytes | bytearray | memoryview) -> Self:
        return super().of_request(with_subscriptions(raw, "check"))


LOCKED_QUEUES: Final = 4096  # of one request, with the object around them


class LockQueues(Body):
    """Queues to lock or to free for one client. (Java: LockBatchRequestBody)"""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = []
    only_this_broker: bool | None = None

    @classmethod
    def of_request(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse the body of a request. Raises: RemoteProtocolError, it has too many queues, or as for other bodies."""
        body = bytes(raw)
        if len(body) <= cls.MOST_BYTES and body.count(b"{") > LOCKED_QUEUES:
            raise RemoteProtocolError(
                f"more than {LOCKED_QUEUES} queues; lock or unlock them in several requests"
            )
        return super().of_request(body)


class LockedQueues(Body):
    """The queues that were locked. (Java: LockBatchResponseBody)"""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class Connection(Body):
    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0


class ConsumerConnections(Body):
    """The members of a consumer group, and its subscriptions. (Java: ConsumerConnection)"""

    connection_set: list[Connection] = []
    subscription_table: dict[str, Subscription] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnections(Body):
    """The members of a producer group. (Java: ProducerConnection)"""

    connection_set: list[Connection] = []


class ProducerEntry(Body):
    """(Java: ProducerInfo)"""

    client_id: str = ""
    remote_ip: str = field(name="remoteIP", default="")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """The online producers, by producer group. (Java: ProducerTableInfo)"""

    data: dict[str, list[ProducerEntry]] = {}


class ProcessQueueState(Body):
    """A queue in the hands of a consumer. (Java: ProcessQueueInfo)"""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = field(name="droped", default=False)
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body):
    """A client's rates of pulling and consuming a topic; times in milliseconds, the rest per second."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunning(Body):
    """The state of a running consumer; its settings have Java's names. (Java: ConsumerRunningInfo)"""

    properties: dict[str, str] = {}
    subscription_set: list[Subscription] = []
    mq_table: dict[MessageQueue, ProcessQueueState] = {}
    status_table: dict[str, ConsumeStatus] = {}
    jstack: str | None = None


class ConsumerStatus(Body):
    """A client's offsets in a topic; or, from a broker, those of each client of a group, by its id.

    (Java: GetConsumerStatusBody)
    """

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


class ConsumeOutcome(Body):
    """The result of consuming a message on demand. (Java: ConsumeMessageDirectlyResult)"""

    consume_result: str | None = None
    remark: str | None = None
    order: bool = False
    auto_commit: bool = True
    spent_time_mills: int = 0


# Offsets ------------------------------------------------------------------------------------------------------------


class TopicOffset(Body):
    """The oldest and the next offset of a queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    """All queues of a topic, the empty ones too. (Java: TopicStatsTable)"""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class QueueProgress(Body):
    """A group's progress in a queue; `last_timestamp` is when its last message was stored. (Java: OffsetWrapper)"""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int | None = None
    last_timestamp: int = 0

    def left(self, begin: int) -> int:
        """The messages that the group has still to consume; those before the queue's begin are gone."""
        return max(self.broker_offset - max(self.consumer_offset, begin), 0)


class ConsumeStats(Body):
    """A group's progress, and its messages per second."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = {}


class BrokerConsumeStats(Body):
    """The progress of all groups of a broker: for each group its topics, one by one. (Java: ConsumeStatsList)"""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0


class QueueTimeSpan(Body):
    """When the oldest, the newest and the last consumed message of a queue were stored; -1 if it is gone.

    `delay_time`: for how many milliseconds the next one has waited.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpans(Body):
    """(Java: QueryConsumeTimeSpanBody)"""

    consume_time_span_set: list[QueueTimeSpan] = []


class CorrectionOffsets(Body):
    """By queue id. (Java: QueryCorrectionOffsetBody)"""

    correction_offsets: dict[int, int] = {}


class ConsumerOffsets(Body):
    """Queue id to next offset, by "topic@group": code 43 and consumerOffset.json."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion | None = None
    journal: JournalMark | None = None


class DelayPoint(Body):
    """The next offset to deliver by delay level, by the records of the log before an offset."""

    log_offset: int = 0
    offset_table: dict[int, int] = {}


class DelayOffsets(Body):
    """Next offset to deliver by delay level: code 45 and delayOffset.json.

    The other fields are SparrowMQ's own; Java ignores them. The log offset and the earlier points are those of
    broker/later/delay_progress.py. The last two are in answers only: the log offset from which slaves must keep records
    once they have the log up to its end of that moment.
    """

    offset_table: dict[int, int] = {}
    data_version: DataVersion | None = None
    log_offset: int | None = None
    earlier: list[DelayPoint] | None = None
    needed: int | None = None
    log_end: int | None = None


class ResetOffsets(Body):
    """The offsets from which consumers go on after a reset. (Java: ResetOffsetBody, ResetOffsetBodyForC)"""

    offset_table: dict[MessageQueue, int] = {}

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """From either form. Raises: RemoteProtocolError, as always."""
        table = json.decode(raw, dict[str, Any]).get("offsetTable")
        if not isinstance(table, list):
            return super().decode(raw)
        rows = json.decode(raw, _ResetRows).offset_table
        return cls({MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows})

    def encoding_for_c(self) -> Steps[list[bytes]]:
        """Write the form without objects as keys, for requests whose language is CPP. Return its pieces."""
        rows = (
            _ResetRow(mq.topic, mq.broker_name, mq.queue_id, offset)
            for mq, offset in self.offset_table.items()
        )
        return _ResetRows(cast(Any, json.Items(rows))).encoding()


class _ResetRow(Body):
    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0
    offset: int = 0


class _ResetRows(Body):
    offset_table: list[_ResetRow] = []


def _name(sent: str | int, names: tuple[str, ...]) -> str:
    """The name that was sent, or the name at the index that was sent."""
    if isinstance(sent, str) and not sent.isdigit():
        return sent
    if not 0 <= int(sent) < len(names):
        raise ValueError(f"{sent} is no index of {', '.join(names)}")
    return names[int(sent)]


# The store and its figures ------------------------------------------------------------------------------------------


class StatsSpan(Body):
    """A count over a span of time; `avgpt` is the average of one event. (Java: BrokerStatsItem)"""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStats(Body):
    """(Java: BrokerStatsData)"""

    stats_minute: StatsSpan = field(default_factory=StatsSpan)
    stats_hour: StatsSpan = field(default_factory=StatsSpan)
    stats_day: StatsSpan = field(default_factory=StatsSpan)

    @property
    def sum_of_day(self) -> int:
        """The count of the last day, or of the broker's shorter run."""
        return self.stats_day.sum or self.stats_hour.sum or self.stats_minute.sum


class QueueEntry(Body):
    """A message's place in the log, and the hash of its tag. (Java: ConsumeQueueData)"""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None  # the wire's word
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueueEntries(Body):
    """Entries of a queue that holds [min_queue_index, max_queue_index). (Java: QueryConsumeQueueResponseBody)"""

    subscription_data: Subscription | None = None
    filter_data: str | None = None
    queue_data: list[QueueEntry] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


# Access control -----------------------------------------------------------------------------------------------------


class AccountEntry(Body):
    """An account, as in a file. (Java: PlainAccessConfig)"""

    access_key: str = ""
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class AccountList(Body):
    """(Java: GetBrokerClusterAclConfigResponseBody)"""

    global_white_addrs: list[str] = []
    plain_access_configs: list[AccountEntry] = []
