"""Request headers and their replies, one typed struct each: what clients and brokers say to each other.

Two more files go on: `namesrv_headers.py` has what name servers are asked, `admin_headers.py` what tools ask a broker.
The class is named after Java's (without RequestHeader / ResponseHeader, and without Info), its fields after the wire's
in snake case; where Java has no header class the request is named after its code. Fields without a default are those
which Java demands (CFNotNull) and every client sends.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request

# Sending ------------------------------------------------------------------------------------------------------------


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


class SendMessage(Request[SendMessageReply]):
    """Send one message, or a batch of them (`batch`)."""

    code: ClassVar[int] = RequestCode.SEND_MESSAGE

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


class SendMessageV2(Request[SendMessageReply]):
    """As `SendMessage`, with one-letter names on the wire.

    `may_be_stored` is ours: it was sent before, and the answer got lost. Brokers of Apache ignore it.
    The numbers have no bounds here, which would cost a message 0.2 us: making the record checks them.
    """

    code: ClassVar[int] = RequestCode.SEND_MESSAGE_V2

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


class SendBatchMessage(SendMessageV2):
    """A batch of messages to one queue."""

    code: ClassVar[int] = RequestCode.SEND_BATCH_MESSAGE


class SendReply(SendMessage):
    """The answer to a request: it goes on to the client that its property REPLY_TO_CLIENT names."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE


class SendReplyV2(SendMessageV2):
    """As `SendReply`, with one-letter names on the wire."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE_V2


# Pulling ------------------------------------------------------------------------------------------------------------


class PullMessageReply(Header):
    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long


class PullMessage(Request[PullMessageReply]):
    """Records of one queue from an offset on; `sys_flag` bits as in `PullFlag`.

    Attributes:
        incarnation: of the topic that is meant. The broker refuses to read another topic of the name. Ours; Java's
            brokers ignore it.
    """

    code: ClassVar[int] = RequestCode.PULL_MESSAGE

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
    incarnation: Long | None = None


class LitePullMessage(PullMessage):
    """As `PullMessage`, from a lite pull consumer."""

    code: ClassVar[int] = RequestCode.LITE_PULL_MESSAGE


class StageBatch(Request[NoFields]):
    """Store messages for one queue, in a batch's body, which stay invisible until their batch is committed. Ours."""

    code: ClassVar[int] = RequestCode.STAGE_BATCH

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


class CommitBatch(Request[CommitBatchReply]):
    """Publish a batch: the body has, as JSON, how many requests each of its attempts has staged. Ours.

    It may also say what each other broker is to publish; this one then decides, and tells it to who asks again.

    Attributes:
        plan: names what the batch was made of; if the writer repeats the batch, it is the same again.
    """

    code: ClassVar[int] = RequestCode.COMMIT_BATCH

    writer: str
    run: str
    batch: Long
    plan: str | None = None


class CopyBatchReply(Header):
    """Whether the batch was stored, and the place in the source that the copies have reached.

    Attributes:
        reached: the end of the source that the broker has copies of; -1 if the broker does not know that.
    """

    stored: bool
    reached: Long


class CopyBatch(Request[CopyBatchReply]):
    """Store copies of messages, if they follow the copies that are there. The body is one of copied_batch.py. Ours.

    Attributes:
        source: the name of the queue that is copied, the same for all copies of it.
        follows: the end of the copies before these, as an offset of the source; `reaches`: the end after these.
        begins: whether to store them also if the broker does not know what is there. Then the client has looked.
    """

    code: ClassVar[int] = RequestCode.COPY_BATCH

    topic: str
    queue_id: Long
    source: str
    follows: Long
    reaches: Long
    begins: bool | None = None


class RecallMessageReply(Header):
    msg_id: str


class RecallMessage(Request[RecallMessageReply]):
    """Do not deliver the message of which a send's answer gave this handle (5.x)."""

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class QueryMessageReply(Header):
    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryMessage(Request[QueryMessageReply]):
    """Records by key; with the extField `_UNIQUE_KEY_QUERY` the key is a unique id. At most 64 from one broker."""

    code: ClassVar[int] = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: Long
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool = field(name="_UNIQUE_KEY_QUERY", default=False)


class ViewMessage(Request[NoFields]):
    """The record at a physical offset."""

    code: ClassVar[int] = RequestCode.VIEW_MESSAGE_BY_ID

    offset: Long
    topic: str | None = None


# Offsets ------------------------------------------------------------------------------------------------------------


# The incarnation of a topic that was made before brokers kept incarnations, or whose settings were lost.
UNKNOWN_INCARNATION: Final = 1


class OffsetReply(Header):
    """Java has one such class for each request; the field is the same.

    Attributes:
        incarnation: of the topic, if the request asks for it; 0 if the broker has no such topic. Ours.
    """

    offset: Long
    incarnation: Long | None = None


class QueryConsumerOffset(Request[OffsetReply]):
    """Ask for a group's offset. Code 22 if it has none and the queue's beginning is gone."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Long
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Request[NoFields]):
    """Set a group's offset."""

    code: ClassVar[int] = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    topic: str
    queue_id: Long
    commit_offset: Long


FIRST_AT_OR_AFTER: Final = "LOWER"  # Apache's brokers up to 4.9 answer the nearest message instead


class SearchOffset(Request[OffsetReply]):
    """The queue offset of the message nearest to a time; `boundary_type` LOWER or UPPER is 5.x."""

    code: ClassVar[int] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    queue_id: Long
    timestamp: Long
    boundary_type: str | None = None


class GetMaxOffset(Request[OffsetReply]):
    """The queue offset that the next message will get.

    Attributes:
        with_incarnation: whether the answer names the topic's incarnation. Ours; Java's brokers ignore it.
    """

    code: ClassVar[int] = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Long
    committed: bool | None = None
    with_incarnation: bool | None = None


class GetMinOffset(Request[OffsetReply]):
    """The queue offset of the oldest message that is kept."""

    code: ClassVar[int] = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: Long


class GetEarliestMsgStoretimeReply(Header):
    timestamp: Long


class GetEarliestMsgStoretime(Request[GetEarliestMsgStoretimeReply]):
    """When the oldest message of a queue was stored."""

    code: ClassVar[int] = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: Long


# Clients and groups -------------------------------------------------------------------------------------------------


class HeartBeatReply(Header):
    """Java 5 clients read the first two; always sent. The others are ours.

    They say how far ahead messages can be delivered, and how long the broker recognises a message that is sent again.
    """

    is_support_heart_beat_v2: bool = field(name="IS_SUPPORT_HEART_BEAT_V2", default=True)
    is_sub_change: bool = field(name="IS_SUB_CHANGE", default=True)
    timer_max_delay_sec: Long | None = field(name="TIMER_MAX_DELAY_SEC", default=None)
    repeat_window_ms: Long | None = field(name="REPEAT_WINDOW_MS", default=None)


class HeartBeat(Request[HeartBeatReply]):
    """I am here, with these groups and subscriptions. The body is a `Heartbeat`."""

    code: ClassVar[int] = RequestCode.HEART_BEAT


class UnregisterClient(Request[NoFields]):
    """A client leaves with one or both of its groups; the C++ client sends an empty name for none."""

    code: ClassVar[int] = RequestCode.UNREGISTER_CLIENT

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroup(Request[NoFields]):
    """The members of a group. The answer's body is a `ConsumerList`; code 1 if there is none."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str


class LockBatchMq(Request[NoFields]):
    """Lock queues for one orderly consumer. The bodies are `LockQueues` and `LockedQueues`."""

    code: ClassVar[int] = RequestCode.LOCK_BATCH_MQ


class UnlockBatchMq(Request[NoFields]):
    """Free queues. The body is a `LockQueues`."""

    code: ClassVar[int] = RequestCode.UNLOCK_BATCH_MQ


class CheckClientConfig(Request[NoFields]):
    """Is this subscription understood? The body is a `ClientConfigCheck`."""

    code: ClassVar[int] = RequestCode.CHECK_CLIENT_CONFIG


class ConsumerSendMsgBack(Request[NoFields]):
    """Deliver this message again later; C++ sends only the first three. Offsets are physical here."""

    code: ClassVar[int] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: Long
    group: str
    delay_level: Long
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Long | None = None


class EndTransaction(Request[NoFields]):
    """Commit (8) or roll back (12) a half message, or say that the result is still unknown (0)."""

    code: ClassVar[int] = RequestCode.END_TRANSACTION

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Long
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None


class ResumeCheckHalfMessage(Request[NoFields]):
    """Resume the check-backs of a transaction that had too many: `msg_id` is the offset id of its message."""

    code: ClassVar[int] = RequestCode.RESUME_CHECK_HALF_MESSAGE

    msg_id: str | None = None
    topic: str | None = None


# A broker to its clients --------------------------------------------------------------------------------------------


class CheckTransactionState(Request[NoFields]):
    """Ask a producer for the result of a half message. Its record is the body; the answer is an `EndTransaction`."""

    code: ClassVar[int] = RequestCode.CHECK_TRANSACTION_STATE

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class PushReply(Request[NoFields]):
    """Somebody has answered your request. The body is the answer's, as it was sent; hosts are `ip:port`."""

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

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


class NotifyConsumerIdsChanged(Request[NoFields]):
    """Somebody joined or left the group: rebalance."""

    code: ClassVar[int] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str


class ResetConsumerClientOffset(Request[NoFields]):
    """Go on from other offsets. The body is a `ResetOffsets`; Java sends the names in the header too."""

    code: ClassVar[int] = RequestCode.RESET_CONSUMER_CLIENT_OFFSET

    topic: str | None = None
    group: str | None = None
    timestamp: Long | None = None
    is_force: bool | None = None


class GetConsumerStatus(Request[NoFields]):
    """Ask a client for its offsets in a topic."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunning(Request[NoFields]):
    """Show what a consumer is doing; asked of a broker, which asks the client. The answer is a `ConsumerRunning`."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_RUNNING_INFO

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class ConsumeMessageDirectly(Request[NoFields]):
    """Consume this one message now; asked of a broker, which asks the client."""

    code: ClassVar[int] = RequestCode.CONSUME_MESSAGE_DIRECTLY

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
