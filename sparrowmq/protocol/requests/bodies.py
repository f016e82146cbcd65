"""The JSON bodies of requests and replies. What Java calls ...Data, ...Wrapper or ...Info has a plainer name here.

Source: the classes of org.apache.rocketmq.common.protocol, Java 4.9.8, whose output the tests hold. Members that only
5.x has are None unless they came in.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, Self, TypeAlias

from msgspec import Meta, field

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.java_numbers import Long
from sparrowmq.protocol.requests.group_settings import GroupRetryPolicy, GroupSubscription
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.body import Body

# Routes

MASTER: Final = 0
MOST_QUEUES: Final = 65_535  # of a topic at one broker
# A route with more is refused when it is read: its readers make each queue, and 2^31 of them fill every memory.
QueueCount: TypeAlias = Annotated[int, Meta(le=MOST_QUEUES)]
# The limits of an answer of a name server. Anyone can register at one without accounts, and its clients connect to each
# broker, and make each queue.
MOST_ROUTE_BYTES: Final = 1 << 20
MOST_ADDRESSES: Final = 4096
MAX_NAME_CHARACTERS: Final = 512  # characters of the name of a broker, or of its address
MOST_ROUTE_QUEUES: Final = 4 * MOST_QUEUES  # to read and to write
# Commands that list brokers read the same answer, so they are refused, too.
_ADVICE: Final = "look for false registrations in its log, and let it check accounts (aclEnable=true)"


class BrokerRoute(Body):
    """The addresses of the brokers of one name, by broker id; `MASTER` is 0. (Java: BrokerData)"""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = {}
    enable_acting_master: bool | None = None
    zone_name: str | None = None


class QueueRoute(Body):
    """The queues of a topic on one broker, and their permission. (Java: QueueData)"""

    broker_name: str = ""
    read_queue_nums: QueueCount = 0
    write_queue_nums: QueueCount = 0
    perm: int = 0
    topic_sys_flag: int = 0


class TopicRoute(Body):
    """The answer to GetRoute. Clients before V4_9_4 get bare integer keys. (Java: TopicRouteData)"""

    broker_datas: list[BrokerRoute] = []
    queue_datas: list[QueueRoute] = []
    order_topic_conf: str | None = None
    filter_server_table: dict[str, list[str]] = {}

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse an answer. Raises: RemoteProtocolError, as any body, or it has more than clients can use."""
        _check_at_most("bytes", len(raw), MOST_ROUTE_BYTES)
        route = json.decode(raw, cls)
        _check_brokers(route.broker_datas)
        queues = sum(row.read_queue_nums + row.write_queue_nums for row in route.queue_datas)
        _check_at_most("queues", queues, MOST_ROUTE_QUEUES)
        return route


class ClusterTable(Body):
    """All brokers by name, and the brokers of each cluster. (Java: ClusterInfo)"""

    broker_addr_table: dict[str, BrokerRoute] = {}
    cluster_addr_table: dict[str, list[str]] = {}

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """Parse an answer. Raises: RemoteProtocolError, as a TopicRoute."""
        _check_at_most("bytes", len(raw), MOST_ROUTE_BYTES)
        table = json.decode(raw, cls)
        _check_brokers(table.broker_addr_table.values())
        return table


def _check_brokers(brokers: Collection[BrokerRoute]) -> None:
    _check_at_most("addresses of brokers", sum(len(broker.broker_addrs) for broker in brokers), MOST_ADDRESSES)
    for broker in brokers:
        for text in (broker.cluster, broker.broker_name, *broker.broker_addrs.values()):
            if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
                raise RemoteProtocolError(
                    f"the answer of the name server has a broker or address that is no name: {shown(text)}; {_ADVICE}"
                )


def _check_at_most(things: str, count: int, max_count: int) -> None:
    if count > max_count:
        raise RemoteProtocolError(
            f"the answer of the name server has {count} {things}, and {max_count} are the most that a client uses; "
            f"{_ADVICE}"
        )


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    """Texts by name: a name server's settings, a broker's figures."""

    table: dict[str, str] = {}


PROTOCOL_RELEASE: Final = "brokerVersionDesc"  # in a brokerStatus; of Apache's brokers it is also their version
OWN_VERSION: Final = "sparrowmqVersion"  # likewise, of our brokers
CONDITION: Final = "condition."  # the begin of its key in a brokerStatus; the name of the condition follows


class ReportedCondition(Body):
    """A condition in which a broker does less than people expect, in its brokerStatus. Ours (metrics/conditions.py)."""

    severity: str = ""
    what: str = ""
    since_ms: int = 0
    remedy: str = ""
    cause: str | None = None  # the name of the condition of the same server that it follows from


class LostBroker(Body):
    """A broker that died, and its topics, in the values of a name server. Ours (namesrv/namesrv.py)."""

    cluster: str = ""
    address: str = ""
    since_ms: int = 0
    topics: list[str] = []


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
    """The part of a broker's journal that a table has. Ours; other programs ignore it (broker/journal_records.py)."""

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
    """A broker's topics: code 21, topics.json, and a part of a registration. (Java: TopicConfigSerializeWrapper)"""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    journal: JournalMark | None = None
    # By topic, a number that differs for each topic that the broker has made under the name. Ours; other programs
    # ignore it.
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


# Replication: the answer to GET_BROKER_HA_STATUS (907)
# Source: HARuntimeInfo, Java 5.4.0.


class SlaveState(Body):
    """A slave, as its master sees it. (Java: HAConnectionRuntimeInfo)"""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0  # bytes that the slave lacks
    in_sync: bool = False  # whether it lacks so little that the master waits for it
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0  # the offset from which the master sends next


class FollowingState(Body):
    """A slave, as it sees itself. Times are in ms since 1970. (Java: HAClientRuntimeInfo)"""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class HaStatus(Body):
    """The state of a master with its slaves, or of a slave."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[SlaveState] = []
    ha_client_runtime_info: FollowingState = field(default_factory=FollowingState)


# Many topics or groups at once, as tools of 5.x send them
# Names of attributes have their sign in these lists, as in a single request: {"+message.type": "FIFO"}.
# Source: CreateTopicListRequestBody, SubscriptionGroupList and QuerySubscriptionResponseBody, Java 5.4.0.


class TopicConfigList(Body):
    """Topics to create or change."""

    topic_config_list: list[TopicConfig] = []


class GroupConfigList(Body):
    """Groups to create or change. (Java: SubscriptionGroupList)"""

    group_config_list: list[GroupConfig] = []


class GroupTopicSubscription(Body):
    """The subscription of a group to a topic; None if no member is online or subscribes to the topic."""

    group: str = ""
    topic: str = ""
    subscription_data: Subscription | None = None
