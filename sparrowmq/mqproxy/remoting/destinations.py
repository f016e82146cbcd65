"""The brokers that a request goes to. Clients of RocketMQ 5 name the broker in a field; older ones do not.

    ONE       to one broker: the one that a field or the body names, or the only one that has the topic
    ANY       to one of the topic's brokers that answers, as all have the same answer
    ALL       to all of the client's brokers; the answer is the first error, or the first answer
    MEMBERS   to all; the answer has the members that any of them knows
    CONNECTIONS  likewise, with the members at the gRPC port, which no broker knows
    RECORDS   to all brokers of the topic; the answer has the messages of all
    ROUTE, CLUSTER   mqproxy answers, with its own address instead of the brokers'

Requests that name a broker go to this one only, also if their kind is ALL. Other requests are refused: they are for
tools. Source: RemotingProtocolServer and AbstractRemotingActivity of the proxy, Java 5.4.0, which refuses requests
without the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.client_bodies import AssignmentQuery, LockQueues
from sparrowmq.protocol.requests.pop_headers import BatchAcks
from sparrowmq.protocol.signature import BROKER_FIELD


class Reach(Enum):
    """The servers that a request goes to."""

    ONE = auto()
    ANY = auto()
    ALL = auto()
    MEMBERS = auto()
    CONNECTIONS = auto()
    RECORDS = auto()
    ROUTE = auto()
    CLUSTER = auto()


_ONE: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.STAGE_BATCH,
    RequestCode.COMMIT_BATCH,
    RequestCode.COPY_BATCH,
)
REACH: Final[Mapping[int, Reach]] = {
    **dict.fromkeys(_ONE, Reach.ONE),
    RequestCode.QUERY_ASSIGNMENT: Reach.ANY,
    RequestCode.HEART_BEAT: Reach.ALL,
    RequestCode.UNREGISTER_CLIENT: Reach.ALL,
    RequestCode.CHECK_CLIENT_CONFIG: Reach.ALL,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Reach.CONNECTIONS,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Reach.MEMBERS,
    RequestCode.QUERY_MESSAGE: Reach.RECORDS,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Reach.ROUTE,
    RequestCode.GET_BROKER_CLUSTER_INFO: Reach.CLUSTER,
}
OF_A_TOPIC: Final = frozenset({Reach.ONE, Reach.ANY, Reach.RECORDS})  # they go to the brokers that have it
# The topic's one-letter name in requests that have such names.
_SHORT: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)


def named_broker(code: int, fields: Mapping[str, str], body: bytes) -> str:
    """The broker that a request names, in a field, a handle or its body; "" if it names none."""
    name = fields.get(BROKER_FIELD) or (fields.get("n") if code in _SHORT else None)
    try:
        return name or _named_inside(code, fields, body)
    except (ConfigError, RemoteProtocolError):
        return ""


def _named_inside(code: int, fields: Mapping[str, str], body: bytes) -> str:
    match code:
        case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
            return next((queue.broker_name for queue in LockQueues.of_request(body).mq_set), "")
        case RequestCode.ACK_MESSAGE | RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            return ReceiptHandle.parse(fields.get("extraInfo", "")).broker_name
        case RequestCode.BATCH_ACK_MESSAGE:
            return BatchAcks.of_request(body).broker_name
        case RequestCode.RECALL_MESSAGE:
            return RecallHandle.parse(fields.get("recallHandle", "")).broker_name
    return ""


def topic_of(code: int, fields: Mapping[str, str], body: bytes) -> str:
    """The topic of a request; "" if it names none."""
    if code == RequestCode.QUERY_ASSIGNMENT:
        try:
            return AssignmentQuery.of_request(body).topic
        except RemoteProtocolError:
            return ""
    return fields.get("b" if code in _SHORT else "topic") or fields.get("originTopic") or ""
