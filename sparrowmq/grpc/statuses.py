"""The statuses of answers: what happened to a call of a client, as the gRPC protocol of RocketMQ 5 counts it.

A call that fails is answered with a status in the message, and the gRPC call itself succeeds. Code raises a
`RemoteError` with a `Status`. Source: ResponseBuilder, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from sparrowmq.errors import (
    AccessDenied,
    BrokerUnreachable,
    ConfigError,
    InvalidFilter,
    InvalidName,
    MessageTooLarge,
    NetworkError,
    NoRoute,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    SparrowError,
)
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.protocol.codes import ResponseCode


class Status(IntEnum):
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500


_STATUS_BY_BROKER_CODE: Final[dict[int, Status]] = {
    ResponseCode.SYSTEM_BUSY: Status.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Status.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Status.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Status.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Status.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Status.HA_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Status.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.MESSAGE_ILLEGAL: Status.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Status.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Status.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Status.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Status.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Status.INVALID_RECEIPT_HANDLE,  # of an acknowledgement; a pop accepts the code
}


def refusal(status: Status, reason: str) -> RemoteError:
    return RemoteError(status, reason)


def status_of(error: SparrowError) -> tuple[int, str]:
    if isinstance(error, AccessDenied):
        return Status.UNAUTHORIZED, error.remark
    if isinstance(error, RemoteError):
        if error.code >= Status.OK:
            return error.code, error.remark
        return _STATUS_BY_BROKER_CODE.get(error.code, Status.INTERNAL_SERVER_ERROR), error.remark or str(error)
    for kind, error_status in _STATUS_BY_ERROR:
        if isinstance(error, kind):
            return error_status, str(error)
    return Status.INTERNAL_SERVER_ERROR, str(error)


_STATUS_BY_ERROR: Final[tuple[tuple[type[SparrowError], Status], ...]] = (
    (NoRoute, Status.TOPIC_NOT_FOUND),
    (InvalidName, Status.ILLEGAL_TOPIC),
    (InvalidFilter, Status.ILLEGAL_FILTER_EXPRESSION),
    (MessageTooLarge, Status.MESSAGE_BODY_TOO_LARGE),
    (RequestTimeout, Status.PROXY_TIMEOUT),
    (BrokerUnreachable, Status.HA_NOT_AVAILABLE),
    (NetworkError, Status.HA_NOT_AVAILABLE),
    (ConfigError, Status.BAD_REQUEST),
    (RemoteProtocolError, Status.BAD_REQUEST),
)


def status(code: int = Status.OK, text: str = "OK") -> Any:
    return message_class("Status")(code=code, message=text)


def status_of_all(entries: Sequence[Any]) -> Any:
    """The status of a call with several results: the status that all have, or that they differ."""
    if len({entry.status.code for entry in entries}) == 1:
        return entries[0].status
    return status(Status.MULTIPLE_RESULTS, "the messages have different results")
