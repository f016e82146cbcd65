"""Requests of consumers that pop. Each popped message is invisible for a while, and acknowledged by itself.

`receipt_handle.py` reads the handles (`extra_info`) and the lists of places in an answer. The answer to a pop is a body
of records, as that of a pull. A broker holds a pop that finds nothing for `poll_time` ms.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.header import Header, Long, NoFields, Request, request

ANY_QUEUE: Final = -1
FROM_OLDEST: Final = 0  # `init_mode` of a group that has never consumed the topic
FROM_NEWEST: Final = 1  # but at the beginning of a young queue
AFTER_NEWEST: Final = 2  # in young queues too. Ours: Java's brokers take it as FROM_NEWEST


class PopMessageReply(Header):
    """The numbers may be absent in an answer without messages."""

    pop_time: Long = 0
    invisible_time: Long = 0
    revive_qid: Long = 0
    rest_num: Long = 0  # the number of messages that are left, as far as the broker has counted
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None
    most_msg_nums: Long | None = None  # the most messages that a pop may ask for. Ours; Java's brokers give at most 32.
    # The numbers of messages of the queues in `start_offset_info`. Ours, for clients that want it instead of
    # `msg_offset_info`.
    queue_counts: str | None = None


@request(RequestCode.POP_MESSAGE)
class PopMessage(Request[PopMessageReply]):
    """Messages of one queue, or of any; no other consumer of the group gets them within `invisible_time` ms.

    Attributes:
        exp, exp_type: the filter and its kind; without one, everything.
    """

    consumer_group: str
    topic: str
    queue_id: Long
    max_msg_nums: Long
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Long
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None  # a queue gives no more messages until those before are acknowledged or visible again
    attempt_id: str | None = None  # the same one gets the same messages of an orderly pop again, after a lost answer
    wants_counts: bool | None = None  # the client reads `queue_counts`, and no list of all offsets. Ours.


@request(RequestCode.ACK_MESSAGE)
class AckMessage(Request[NoFields]):
    """Acknowledge a popped message. Topic, queue and offset are those of its handle."""

    consumer_group: str
    topic: str
    queue_id: Long
    extra_info: str
    offset: Long

    @classmethod
    def of(cls, group: str, topic: str, handle: ReceiptHandle, text: str) -> AckMessage:
        """The request for a handle and its text, which a group got for a message of `topic`."""
        return cls(group, handle.kind.topic_of(topic, group), handle.queue_id, text, handle.queue_offset)


class BatchAckReply(Header):
    """Attributes: left_out: the number of messages without a valid handle. Ours; Java's brokers do not count them."""

    left_out: Long | None = None


@request(RequestCode.BATCH_ACK_MESSAGE)
class BatchAckMessage(Request[BatchAckReply]):
    """Acknowledge many messages. The body is a `BatchAcks`."""


class ChangeInvisibleTimeReply(Header):
    """The parts of the new handle. The former one is worth nothing then."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Long
    extra_info: str | None = None  # the whole new handle. Ours; Java's brokers leave it to the client to make one.

    def new_handle(self, former_handle: ReceiptHandle) -> tuple[str, ReceiptHandle]:
        """The text and the new handle, as the broker gave it, or made as Java makes it. Raises: ConfigError."""
        if self.extra_info:
            return self.extra_info, ReceiptHandle.parse(self.extra_info)
        handle = former_handle.with_times(self.pop_time, self.invisible_time, self.revive_qid)
        return str(handle), handle


@request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
class ChangeInvisibleTime(Request[ChangeInvisibleTimeReply]):
    """Let a popped message become visible so many ms from now."""

    consumer_group: str
    topic: str
    queue_id: Long
    extra_info: str
    offset: Long
    invisible_time: Long

    @classmethod
    def of(cls, group: str, topic: str, handle: ReceiptHandle, text: str, invisible_ms: int) -> ChangeInvisibleTime:
        """The request for a handle and its text, as that of an acknowledgement."""
        place = handle.kind.topic_of(topic, group), handle.queue_id
        return cls(group, *place, text, handle.queue_offset, invisible_ms)


@request(RequestCode.PEEK_MESSAGE)
class PeekMessage(Request[PopMessageReply]):
    """As a pop, and the messages stay visible."""

    topic: str
    queue_id: Long
    max_msg_nums: Long
    consumer_group: str


class NotificationReply(Header):
    has_msg: bool
    polling_full: bool | None = None


@request(RequestCode.NOTIFICATION)
class Notification(Request[NotificationReply]):
    """Wait up to `poll_time` ms until a pop would find a message."""

    consumer_group: str
    topic: str
    queue_id: Long
    poll_time: Long
    born_time: Long
    order: bool | None = None
    attempt_id: str | None = None


class PollingReply(Header):
    polling_num: Long


@request(RequestCode.POLLING_INFO)
class Polling(Request[PollingReply]):
    """The number of pops of a queue that the broker holds. (Java: PollingInfo)"""

    consumer_group: str
    topic: str
    queue_id: Long


@request(RequestCode.QUERY_ASSIGNMENT)
class QueryAssignment(Request[NoFields]):
    """The queues of one member. The body is an `AssignmentQuery`, that of the answer `Assignments`."""


@request(RequestCode.SET_MESSAGE_REQUEST_MODE)
class SetRequestMode(Request[NoFields]):
    """Let a group pull or pop a topic. The body is a `RequestMode`."""


@request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
class GetAllRequestModes(Request[NoFields]):
    """All modes, as a `RequestModeTable`."""


_BATCH_ACK_KEYS: Final = {
    "consumer_group": "c",
    "topic": "t",
    "retry": "r",
    "start_offset": "so",
    "queue_id": "q",
    "revive_queue_id": "rq",
    "pop_time": "pt",
    "invisible_time": "it",
    "bits": "b",
}


class BatchAck(msgspec.Struct, frozen=True, rename=_BATCH_ACK_KEYS):
    """The messages of one pop of one queue that are acknowledged."""

    consumer_group: str
    topic: str  # the topic itself, also for a retry topic, which `retry` names: "0", "1" or "2"
    retry: str
    start_offset: int
    queue_id: int
    revive_queue_id: int
    pop_time: int
    invisible_time: int
    # Java's BitSet in base64: bit n is the message n places behind `start_offset`, the lowest bit first.
    bits: Annotated[str, msgspec.Meta(max_length=65_536)]


class BatchAcks(Body):
    broker_name: str = ""
    acks: list[BatchAck] = msgspec.field(default_factory=list)
