"""Request headers and their replies, one typed struct each: what clients and brokers say to each other.

The class is named after Java's (without RequestHeader / ResponseHeader, and without Info), its fields after the wire's
in snake case; without a header class in Java, after its code. Fields without a default are those which Java demands
(CFNotNull). `namesrv_headers.py` has what name servers are asked, `admin_headers.py` what tools ask a broker.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import MessageQueue, PullFlag
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request, request

# Sending


class SendMessageReply(Header):
    """The place of the stored message. Every answer to a send has MSG_REGION and TRACE_ON (seen: 4.9.7).

    `stored_at` is ours: the places of a batch that are not in a row, each as "queue:offset", with commas between.
    """

    msg_id: str
    queue_id: Long
    queue_offset: Long
    transaction_id: str | None = None
    recall_handle: str | None = None
    stored_at: str | None = None
    msg_region: str = field(name="MSG_REGION", default="DefaultRegion")
    trace_on: str = field(name="TRACE_ON", default="true")


@request(RequestCode.SEND_MESSAGE)
class SendMessage(Request[SendMessageReply]):
    """Send one message, or a batch of them (`batch`)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: int | None = None
    may_be_stored: bool | None = field(name="MAY_BE_STORED", default=None)


@request(RequestCode.SEND_MESSAGE_V2)
class SendMessageV2(Request[SendMessageReply]):
    """As `SendMessage`, with one-letter names on the wire.

    `may_be_stored` is ours: it was sent before, and the answer got lost. Brokers of Apache ignore it.
    The numbers have no bounds here, which would cost a message 0.2 us: making the record checks them.
    """

    producer_group: str = field(name="a")
    topic: str = field(name="b")
    default_topic: str = field(name="c")
    default_topic_queue_nums: int = field(name="d")
    queue_id: int = field(name="e")
    sys_flag: int = field(name="f")
    born_timestamp: int = field(name="g")
    flag: int = field(name="h")
    properties: str | None = field(name="i", default=None)
    reconsume_times: int | None = field(name="j", default=None)
    unit_mode: bool | None = field(name="k", default=None)
    max_reconsume_times: int | None = field(name="l", default=None)
    batch: bool | None = field(name="m", default=None)
    broker_name: str | None = field(name="n", default=None)
    may_be_stored: bool | None = field(name="MAY_BE_STORED", default=None)


@request(RequestCode.SEND_BATCH_MESSAGE)
class SendBatchMessage(SendMessageV2):
    """A batch of messages to one queue."""


@request(RequestCode.SEND_REPLY_MESSAGE)
class SendReply(SendMessage):
    """The answer to a request: it goes on to the client that its property REPLY_TO_CLIENT names."""


@request(RequestCode.SEND_REPLY_MESSAGE_V2)
class SendReplyV2(SendMessageV2):
    """As `SendReply`, with one-letter names on the wire."""


class PullMessageReply(Header):
    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long


@request(RequestCode.PULL_MESSAGE)
class PullMessage(Request[PullMessageReply]):
    """Records of one queue from an offset on; `sys_flag` bits as in `PullFlag`."""

    consumer_group: str
    topic: str
    queue_id: Long
    queue_offset: Long
    max_msg_nums: Long
    sys_flag: Long
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Long | None = None
    # Of the topic that is meant. The broker refuses to read another topic of the name. Ours; Java's brokers ignore it.
    incarnation: Long | None = None

    @classmethod
    def now(
        cls, group: str, queue: MessageQueue, offset: int, count: int, most_bytes: int | None = None
    ) -> PullMessage:
        """Ask for messages of all tags, without a wait for more, and without a commit."""
        return cls(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            max_msg_bytes=most_bytes,
        )


@request(RequestCode.LITE_PULL_MESSAGE)
class LitePullMessage(PullMessage):
    """As `PullMessage`, from a lite pull consumer."""


@request(RequestCode.STAGE_BATCH)
class StageBatch(Request[NoFields]):
    """Store messages for one queue, in a batch's body, which stay invisible until their batch is committed. Ours."""

    topic: str
    queue_id: Long
    writer: str
    run: str
    batch: Long
    attempt: str
    number: Long
    born_timestamp: Long


class CommitBatchReply(Header):
    """Whether the batch had been committed before; then this changed nothing.

    `others` is JSON: by broker, and by attempt, how many requests other brokers are to publish.
    """

    repeated: bool
    others: str | None = None


@request(RequestCode.COMMIT_BATCH)
class CommitBatch(Request[CommitBatchReply]):
    """Publish a batch: the body has, as JSON, how many requests each of its attempts has staged. Ours.

    It may also say what each other broker is to publish; this one then decides, and tells it to who asks again.
    """

    writer: str
    run: str
    batch: Long
    plan: str | None = None  # names what the batch was made of; if the writer repeats the batch, it is the same again


class CopyBatchReply(Header):
    """Whether the batch was stored, and the place in the source that the copies have reached."""

    stored: bool
    reached: Long  # the end of the source that the broker has copies of; -1 if the broker does not know that


@request(RequestCode.COPY_BATCH)
class CopyBatch(Request[CopyBatchReply]):
    """Store copies of messages, if they follow the copies that are there. The body is one of copied_batch.py. Ours."""

    topic: str
    queue_id: Long
    source: str  # the name of the queue that is copied, the same for all copies of it
    follows: Long  # the end of the copies before these, as an offset of the source; `reaches`: the end after these
    reaches: Long
    # Whether to store them also if the broker does not know what is there. Then the client has looked.
    begins: bool | None = None


class RecallMessageReply(Header):
    msg_id: str


@request(RequestCode.RECALL_MESSAGE)
class RecallMessage(Request[RecallMessageReply]):
    """Do not deliver the message of which a send's answer gave this handle (5.x)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class QueryMessageReply(Header):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@request(RequestCode.QUERY_MESSAGE)
class QueryMessage(Request[QueryMessageReply]):
    """Records by key; with the extField `_UNIQUE_KEY_QUERY` the key is a unique id. At most 64 from one broker."""

    topic: str
    key: str
    max_num: Long
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


@request(RequestCode.VIEW_MESSAGE_BY_ID)
class ViewMessage(Request[NoFields]):
    """The record at a physical offset."""

    offset: Long
    topic: str | None = None


# The incarnation of a topic that was made before brokers kept incarnations, or whose settings were lost.
UNKNOWN_INCARNATION: Final = 1


class OffsetReply(Header):
    """Java has one such class for each request; the field is the same."""

    offset: Long
    # Of the topic, if the request asks for it; 0 if the broker has no such topic. Ours.
    incarnation: Long | None = None


@request(RequestCode.QUERY_CONSUMER_OFFSET)
class QueryConsumerOffset(Request[OffsetReply]):
    """Ask for a group's offset. Code 22 if it has none and the queue's beginning is gone."""

    consumer_group: str
    topic: str
    queue_id: Long
    set_zero_if_not_found: bool | None = None


@request(RequestCode.UPDATE_CONSUMER_OFFSET)
class UpdateConsumerOffset(Request[NoFields]):
    """Set a group's offset."""

    consumer_group: str
    topic: str
    queue_id: Long
    commit_offset: Long


FIRST_AT_OR_AFTER: Final = "LOWER"  # Apache's brokers up to 4.9 answer the nearest message instead


@request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
class SearchOffset(Request[OffsetReply]):
    """The first queue offset since a time (LOWER, the default), or the last one up to it (UPPER)."""

    topic: str
    queue_id: Long
    timestamp: Long
    boundary_type: str | None = None


@request(RequestCode.GET_MAX_OFFSET)
class GetMaxOffset(Request[OffsetReply]):
    """The queue offset that the next message will get."""

    topic: str
    queue_id: Long
    committed: bool | None = None
    # Whether the answer names the topic's incarnation. Ours; Java's brokers ignore it.
    with_incarnation: bool | None = None


@request(RequestCode.GET_MIN_OFFSET)
class GetMinOffset(Request[OffsetReply]):
    """The queue offset of the oldest message that is kept."""

    topic: str
    queue_id: Long


class GetEarliestMsgStoretimeReply(Header):
    timestamp: Long


@request(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretime(Request[GetEarliestMsgStoretimeReply]):
    """When the oldest message of a queue was stored."""

    topic: str
    queue_id: Long


class HeartBeatReply(Header):
    """Java 5 clients read the first two; always sent. The others are ours.

    They say how far ahead messages can be delivered, how long the broker recognises a message that is sent again, and
    that dead letters may have a reason (`ConsumerSendMsgBack.reject_reason`). The last one says how this member wants
    other topics or filters than others of its group.
    """

    is_support_heart_beat_v2: bool = field(name="IS_SUPPORT_HEART_BEAT_V2", default=True)
    is_sub_change: bool = field(name="IS_SUB_CHANGE", default=True)
    timer_max_delay_sec: Long | None = field(name="TIMER_MAX_DELAY_SEC", default=None)
    repeat_window_ms: Long | None = field(name="REPEAT_WINDOW_MS", default=None)
    takes_reasons: bool | None = field(name="TAKES_REASONS", default=None)
    difference: str | None = field(name="DIFFERENCE", default=None)


@request(RequestCode.HEART_BEAT)
class HeartBeat(Request[HeartBeatReply]):
    """I am here, with these groups and subscriptions. The body is a `Heartbeat`."""


@request(RequestCode.UNREGISTER_CLIENT)
class UnregisterClient(Request[NoFields]):
    """A client leaves with one or both of its groups; the C++ client sends an empty name for none."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
class GetConsumerListByGroup(Request[NoFields]):
    """The members of a group. The answer's body is a `ConsumerList`; code 1 if there is none."""

    consumer_group: str


@request(RequestCode.LOCK_BATCH_MQ)
class LockBatchMq(Request[NoFields]):
    """Lock queues for one orderly consumer. The bodies are `LockQueues` and `LockedQueues`."""


@request(RequestCode.UNLOCK_BATCH_MQ)
class UnlockBatchMq(Request[NoFields]):
    """Free queues. The body is a `LockQueues`."""


@request(RequestCode.CHECK_CLIENT_CONFIG)
class CheckClientConfig(Request[NoFields]):
    """Is this subscription understood? The body is a `ClientConfigCheck`."""


@request(RequestCode.CONSUMER_SEND_MSG_BACK)
class ConsumerSendMsgBack(Request[NoFields]):
    """Deliver this message again later; C++ sends only the first three. Offsets are physical here."""

    offset: Long
    group: str
    delay_level: Long
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Long | None = None
    reject_reason: str | None = None  # ours: why it is a dead letter


@request(RequestCode.END_TRANSACTION)
class EndTransaction(Request[NoFields]):
    """Commit (8) or roll back (12) a half message, or say that the result is still unknown (0)."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Long
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE)
class ResumeCheckHalfMessage(Request[NoFields]):
    """Resume the check-backs of a transaction that had too many: `msg_id` is the offset id of its message."""

    msg_id: str | None = None
    topic: str | None = None


@request(RequestCode.CHECK_TRANSACTION_STATE)
class CheckTransactionState(Request[NoFields]):
    """Ask a producer for the result of a half message. Its record is the body; the answer is an `EndTransaction`."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class PushReply(Request[NoFields]):
    """Somebody has answered your request. The body is the answer's, as it was sent; hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Long
    queue_id: Long
    sys_flag: Long
    born_timestamp: Long
    flag: Long
    properties: str | None = None
    reconsume_times: Long | None = None
    unit_mode: bool | None = None
    born_host: str | None = None
    store_host: str | None = None
    store_timestamp: Long | None = None


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChanged(Request[NoFields]):
    """Somebody joined or left the group: rebalance."""

    consumer_group: str


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetConsumerClientOffset(Request[NoFields]):
    """Go on from other offsets. The body is a `ResetOffsets`; Java sends the names in the header too."""

    topic: str | None = None
    group: str | None = None
    timestamp: Long | None = None
    is_force: bool | None = None


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatus(Request[NoFields]):
    """Ask a client for its offsets in a topic."""

    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunning(Request[NoFields]):
    """Show what a consumer is doing; asked of a broker, which asks the client. The answer is a `ConsumerRunning`."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@request(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeMessageDirectly(Request[NoFields]):
    """Consume this one message now; asked of a broker, which asks the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
