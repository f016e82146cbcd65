"""Request headers, continued: what tools, and other brokers, ask a broker. See `headers.py` for the rules."""

from __future__ import annotations

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.headers import GetConsumerStatus
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request, request

# The broker itself


class GetBrokerConfigReply(Header):
    """The body is properties text."""

    version: str


@request(RequestCode.GET_BROKER_CONFIG)
class GetBrokerConfig(Request[GetBrokerConfigReply]):
    """The broker's settings."""


@request(RequestCode.UPDATE_BROKER_CONFIG)
class UpdateBrokerConfig(Request[NoFields]):
    """Change some of the broker's settings; the body is properties text."""


@request(RequestCode.GET_BROKER_RUNTIME_INFO)
class GetBrokerRuntime(Request[NoFields]):
    """The broker's status: about fifty figures in a `KVTable`."""


@request(RequestCode.GET_BROKER_HA_STATUS)
class GetHaStatus(Request[NoFields]):
    """The state of replication, as an `HaStatus`."""


@request(RequestCode.GET_DIAGNOSIS)
class GetDiagnosis(Request[NoFields]):
    """The state of the server's process as a `KVTable`: stacks, the end of its log, versions. Ours."""


class HandOverLeadReply(Header):
    """The member that leads next."""

    member: Long


@request(RequestCode.HAND_OVER_LEAD)
class HandOverLead(Request[HandOverLeadReply]):
    """Let another member of a replicated group lead: this one, or any member in sync for 0. Ours."""

    member: Long = 0


@request(RequestCode.ELECT_MEMBER)
class ElectMember(Request[NoFields]):
    """Let this member begin a new line of epochs, by an operator's decision. Ours.

    `force` gives up what other members have acknowledged, where etcd still knows which members these are.
    """

    member: Long
    force: bool = False


@request(RequestCode.RESTART_BROKER)
class RestartBroker(Request[NoFields]):
    """End in order and begin again, as the same process. Ours.

    `boot_timestamp` is that of the brokerStatus: a broker that has begun since then refuses, so a repeated request
    restarts it once.
    """

    boot_timestamp: Long


@request(RequestCode.VIEW_BROKER_STATS_DATA)
class ViewBrokerStats(Request[NoFields]):
    """One figure over the last minute, hour and day, as `BrokerStats`. (Java: ViewBrokerStatsDataRequestHeader)"""

    stats_name: str
    stats_key: str


@request(RequestCode.UPDATE_AND_CREATE_TOPIC)
class UpdateAndCreateTopic(Request[NoFields]):
    """Create a topic or change it. (Java: CreateTopicRequestHeader; `attributes` and `force` are 5.x.)"""

    topic: str
    read_queue_nums: Long
    write_queue_nums: Long
    perm: Long
    default_topic: str | None = None
    topic_filter_type: str | None = None
    topic_sys_flag: Long | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
class UpdateAndCreateTopicList(Request[NoFields]):
    """Create or change many topics, or none. The body is a `TopicConfigList`. 5.x."""


@request(RequestCode.GET_TOPIC_CONFIG)
class GetTopicConfig(Request[NoFields]):
    """The settings of one topic, as a `TopicConfig`. `lo` asks for static topics, which are not made here. 5.x."""

    topic: str
    lo: bool | None = None


@request(RequestCode.DELETE_TOPIC_IN_BROKER)
class DeleteTopic(Request[NoFields]):
    """Delete a topic from this broker."""

    topic: str


@request(RequestCode.GET_TOPIC_STATS_INFO)
class GetTopicStats(Request[NoFields]):
    """The offsets of a topic's queues, all of them, as `TopicStats`."""

    topic: str


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
class GetSystemTopicListFromBroker(Request[NoFields]):
    """The topics that RocketMQ itself uses, as a `TopicList`."""


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
class QueryTopicConsumeByWho(Request[NoFields]):
    """The groups that consume a topic, as a `GroupList`."""

    topic: str


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
class UpdateAndCreateSubscriptionGroup(Request[NoFields]):
    """Create a group or change it. The body is a `GroupConfig`."""


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
class UpdateAndCreateGroupList(Request[NoFields]):
    """Create or change many groups, or none. The body is a `GroupConfigList`. 5.x."""


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER)
class QueryTopicsByConsumer(Request[NoFields]):
    """The topics that a group has consumed, as a `TopicList`. 5.x."""

    group: str


@request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
class QuerySubscriptionByConsumer(Request[NoFields]):
    """The subscription of a group to a topic, as a `GroupTopicSubscription`. 5.x."""

    group: str
    topic: str


@request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
class GetGroupConfig(Request[NoFields]):
    """The settings of one group, as a `GroupConfig`. (Java: GetSubscriptionGroupConfigRequestHeader, 5.x)"""

    group: str


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP)
class DeleteSubscriptionGroup(Request[NoFields]):
    """Delete a group, and its offsets if asked to: 4.9 says `removeOffset`, 5.x `cleanOffset`."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


@request(RequestCode.GET_CONSUME_STATS)
class GetConsumeStats(Request[NoFields]):
    """The progress of a group, in one topic or in all, as `ConsumeStats`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
class ResetOffset(Request[NoFields]):
    """Set a group back or forward to a time; -1 is the end. The answer's body is a `ResetOffsets`."""

    topic: str
    group: str
    timestamp: Long
    is_force: bool
    queue_id: Long = -1
    offset: Long | None = None


@request(RequestCode.GET_CONSUMER_CONNECTION_LIST)
class GetConsumerConnectionList(Request[NoFields]):
    """The members of a group, as `ConsumerConnections`; code 206 if there is none."""

    consumer_group: str


@request(RequestCode.GET_PRODUCER_CONNECTION_LIST)
class GetProducerConnectionList(Request[NoFields]):
    """The members of a producer group, as `ProducerConnections`; code 1 if there is none."""

    producer_group: str


@request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
class InvokeGetConsumerStatus(GetConsumerStatus):
    """The offsets of a group's members, or of `client_addr` only, in a topic, as a `ConsumerStatus`."""


@request(RequestCode.CLONE_GROUP_OFFSET)
class CloneGroupOffset(Request[NoFields]):
    """Let one group go on where another is, in a topic or in all that the other consumed."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@request(RequestCode.QUERY_CONSUME_TIME_SPAN)
class QueryConsumeTimeSpan(Request[NoFields]):
    """When a topic's queues were filled, and how far behind a group is in time, as `ConsumeTimeSpans`."""

    topic: str
    group: str


@request(RequestCode.QUERY_CORRECTION_OFFSET)
class QueryCorrectionOffset(Request[NoFields]):
    """The offsets of a topic's slowest groups, as `CorrectionOffsets`. (Java: QueryCorrectionOffsetHeader)

    `filter_groups`, with commas, are left out. If `compare_group` is behind them, the answer is the largest number.
    """

    topic: str
    filter_groups: str | None = None
    compare_group: str | None = None


@request(RequestCode.GET_BROKER_CONSUME_STATS)
class GetBrokerConsumeStats(Request[NoFields]):
    """The progress of every group of the broker, as `BrokerConsumeStats`. (Java: GetConsumeStatsInBrokerHeader)

    `is_order`: only in ordered topics.
    """

    is_order: bool = False


@request(RequestCode.GET_ALL_PRODUCER_INFO)
class GetAllProducers(Request[NoFields]):
    """The online members of every producer group, as a `ProducerTable`. (Java: GetAllProducerInfoRequestHeader)"""


@request(RequestCode.QUERY_CONSUME_QUEUE)
class QueryConsumeQueue(Request[NoFields]):
    """Some entries of a queue, and the subscription of an online group, as `QueueEntries`."""

    topic: str
    queue_id: Long
    index: Long
    count: Long
    consumer_group: str | None = None


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
class CleanExpiredConsumeQueue(Request[NoFields]):
    """Let queues forget at once what is no longer in the log."""


@request(RequestCode.CLEAN_UNUSED_TOPIC)
class CleanUnusedTopic(Request[NoFields]):
    """Delete the queues of topics that are no longer there."""


@request(RequestCode.DELETE_EXPIRED_COMMITLOG)
class DeleteExpiredCommitLog(Request[NoFields]):
    """Delete expired files of the log at once, at any hour."""


class GetAllTopicConfigReply(Header):
    """5.x pages through the topics; 4.9 sends all and no number. The body is a `TopicConfigTable`."""

    total_topic_num: Long | None = None


@request(RequestCode.GET_ALL_TOPIC_CONFIG)
class GetAllTopicConfig(Request[GetAllTopicConfigReply]):
    """All topics of the broker."""

    topic_seq: Long | None = None
    data_version: str | None = None
    max_topic_num: Long | None = None


class GetAllSubscriptionGroupReply(Header):
    """The body is a `GroupConfigTable`."""

    total_group_num: Long | None = None


@request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
class GetAllSubscriptionGroup(Request[GetAllSubscriptionGroupReply]):
    """All groups of the broker."""

    group_seq: Long | None = None
    data_version: str | None = None
    max_group_num: Long | None = None


@request(RequestCode.GET_ALL_CONSUMER_OFFSET)
class GetAllConsumerOffset(Request[NoFields]):
    """The offsets of every group, as `ConsumerOffsets`."""


@request(RequestCode.GET_ALL_DELAY_OFFSET)
class GetAllDelayOffset(Request[NoFields]):
    """The progress of each delay level's delivery, as `DelayOffsets`."""


@request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
class UpdateAndCreateAclConfig(Request[NoFields]):
    """Make an account, or change what is given of one; lists have commas. (Java: CreateAccessConfigRequestHeader)"""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@request(RequestCode.DELETE_ACL_CONFIG)
class DeleteAclConfig(Request[NoFields]):
    """Remove an account. (Java: DeleteAccessConfigRequestHeader)"""

    access_key: str


class GetBrokerClusterAclReply(Header):
    """`version` is that of the main file, `all_acl_file_version` an object with all of them, both as JSON."""

    version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
    all_acl_file_version: str | None = None


@request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
class GetBrokerClusterAcl(Request[GetBrokerClusterAclReply]):
    """Which versions the broker's files with accounts have."""


@request(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
class UpdateGlobalWhiteAddrsConfig(Request[NoFields]):
    """Replace the white list that holds for everybody, with commas, in the main file or the one that is named."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@request(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
class GetBrokerClusterAclConfig(Request[NoFields]):
    """All accounts. The body is an `AccountList`."""
