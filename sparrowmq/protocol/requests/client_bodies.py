"""The JSON bodies about clients: their heartbeats, their locked queues, and what they report to operators.

Source: the classes of org.apache.rocketmq.common.protocol, Java 4.9.8, whose output the tests hold. Members that only
5.x has are None unless they came in.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeAlias

from msgspec import field

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.subscription import Subscription, with_subscriptions
from sparrowmq.protocol.wire.body import Body

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
            raise RemoteProtocolError(f"more than {LOCKED_QUEUES} queues; lock or unlock them in several requests")
        return super().of_request(body)


class LockedQueues(Body):
    """The queues that were locked. (Java: LockBatchResponseBody)"""

    locked: list[MessageQueue] = field(name="lockOKMQSet", default_factory=list)


class Connection(Body):
    """A member of a group. Our brokers add the filter of each topic that a consumer wants, by its heartbeats."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "JAVA"
    version: int = 0
    wanted: dict[str, str] | None = None


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


def _name(name_or_index: str | int, names: tuple[str, ...]) -> str:
    """The name that was sent, or the name at the index that was sent."""
    index = whole_number(name_or_index) if isinstance(name_or_index, str) else name_or_index
    if index is None:
        return str(name_or_index)
    if not 0 <= index < len(names):
        raise ValueError(f"{name_or_index} is no index of {', '.join(names)}")
    return names[index]


# Queues that a broker shares among the members of a group, and groups that pop:
#
#     QUERY_ASSIGNMENT (400)               AssignmentQuery ── Assignments
#     SET_MESSAGE_REQUEST_MODE (401)       RequestMode
#     GET_ALL_MESSAGE_REQUEST_MODE (402)   RequestModeTable, also messageRequestMode.json
#
# Source: QueryAssignmentRequestBody, SetMessageRequestModeRequestBody, MessageRequestModeSerializeWrapper, Java 5.4.0.


PULL: Final = "PULL"
POP: Final = "POP"
MODES: Final = (PULL, POP)


class AssignmentQuery(Body):
    """The question of one member: which queues of a topic are its own?"""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


class Assignment(Body):
    """A queue of the member, or with id -1 any queue of a broker; and whether the member pulls or pops it."""

    message_queue: MessageQueue
    mode: str = PULL


class Assignments(Body):
    """The answer; None if the broker cannot tell, so the member keeps what it has."""

    message_queue_assignments: list[Assignment] | None = None


class RequestMode(Body):
    """The way in which a group consumes a topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = PULL
    pop_share_queue_num: int = 0  # the number of other members whose queues each member pops too; 0 is all


Modes: TypeAlias = dict[str, dict[str, RequestMode]]  # by topic and group


class RequestModeTable(Body):
    """The modes that operators have set, by topic and group. Data version and journal are ours."""

    message_request_mode_map: Modes = {}
    data_version: DataVersion | None = None
    journal: JournalMark | None = None
