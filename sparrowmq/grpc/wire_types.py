"""The messages of `apache.rocketmq.v2`, made when this module is loaded from the table below.

    Resource: 1 resource_namespace string, 2 name string
              number, name and type of a field; `*` repeated, `?` with presence, `|x` one of the group x

A type is one of protobuf's, `Timestamp`, `Duration`, `map` of text to text, or another message of the table. An enum is
an int32, which has the same bytes. So no generated code and no compiler of protobuf is needed. The messages have a pool
of their own, so a program may use an official client beside them. Source: rocketmq-apis, RocketMQ 5.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError

from sparrowmq.errors import RemoteProtocolError

SERVICE: Final = "apache.rocketmq.v2.MessagingService"
_PACKAGE: Final = "apache.rocketmq.v2"
_FIELD_PROTO: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _FIELD_PROTO.TYPE_STRING,
    "bytes": _FIELD_PROTO.TYPE_BYTES,
    "int32": _FIELD_PROTO.TYPE_INT32,
    "int64": _FIELD_PROTO.TYPE_INT64,
    "bool": _FIELD_PROTO.TYPE_BOOL,
    "float": _FIELD_PROTO.TYPE_FLOAT,
}
_WELL_KNOWN_TYPES: Final = {"Timestamp": ".google.protobuf.Timestamp", "Duration": ".google.protobuf.Duration"}

_MESSAGE_TABLE: Final = """
Status: 1 code int32, 2 message string
Resource: 1 resource_namespace string, 2 name string
FilterExpression: 1 type int32, 2 expression string
RetryPolicy: 1 max_attempts int32, 2 exponential_backoff ExponentialBackoff|strategy,
    3 customized_backoff CustomizedBackoff|strategy
ExponentialBackoff: 1 initial Duration, 2 max Duration, 3 multiplier float
CustomizedBackoff: 1 next Duration*
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
Address: 1 host string, 2 port int32
Endpoints: 1 scheme int32, 2 addresses Address*
Broker: 1 name string, 2 id int32, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id int32, 3 permission int32, 4 broker Broker, 5 accept_message_types int32*
Digest: 1 type int32, 2 checksum string
SystemProperties: 1 tag string?, 2 keys string*, 3 message_id string, 4 body_digest Digest, 5 body_encoding int32,
    6 message_type int32, 7 born_timestamp Timestamp, 8 born_host string, 9 store_timestamp Timestamp?,
    10 store_host string, 11 delivery_timestamp Timestamp?, 12 receipt_handle string?, 13 queue_id int32,
    14 queue_offset int64?, 15 invisible_duration Duration?, 16 delivery_attempt int32?, 17 message_group string?,
    18 trace_context string?, 19 orphaned_transaction_recovery_duration Duration?,
    20 dead_letter_queue DeadLetterQueue?, 21 lite_topic string?, 22 priority int32?
DeadLetterQueue: 1 topic string, 2 message_id string
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties, 4 body bytes
Assignment: 1 message_queue MessageQueue
UA: 1 language int32, 2 version string, 3 platform string, 4 hostname string
Settings: 1 client_type int32?, 2 access_point Endpoints?, 3 backoff_policy RetryPolicy?, 4 request_timeout Duration?,
    5 publishing Publishing|pub_sub, 6 subscription Subscription|pub_sub, 7 user_agent UA, 8 metric Metric
Publishing: 1 topics Resource*, 2 max_body_size int32, 3 validate_message_type bool
Subscription: 1 group Resource?, 2 subscriptions SubscriptionEntry*, 3 fifo bool?, 4 receive_batch_size int32?,
    5 long_polling_timeout Duration?, 6 lite_subscription_quota int32?, 7 max_lite_topic_size int32?
Metric: 1 on bool, 2 endpoints Endpoints?
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2 message_queues MessageQueue*
SendMessageRequest: 1 messages Message*
SendResultEntry: 1 status Status, 2 message_id string, 3 transaction_id string, 4 offset int64, 5 recall_handle string
SendMessageResponse: 1 status Status, 2 entries SendResultEntry*
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2 assignments Assignment*
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 filter_expression FilterExpression,
    4 batch_size int32, 5 invisible_duration Duration?, 6 auto_renew bool, 7 long_polling_timeout Duration?,
    8 attempt_id string?
ReceiveMessageResponse: 1 status Status|content, 2 message Message|content, 3 delivery_timestamp Timestamp|content
AckMessageEntry: 1 message_id string, 2 receipt_handle string, 3 lite_topic string?
AckMessageRequest: 1 group Resource, 2 topic Resource, 3 entries AckMessageEntry*
AckMessageResultEntry: 1 message_id string, 2 receipt_handle string, 3 status Status
AckMessageResponse: 1 status Status, 2 entries AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string,
    4 message_id string, 5 delivery_attempt int32, 6 max_delivery_attempts int32, 7 lite_topic string?
ForwardMessageToDeadLetterQueueResponse: 1 status Status
HeartbeatRequest: 1 group Resource?, 2 client_type int32
HeartbeatResponse: 1 status Status
EndTransactionRequest: 1 topic Resource, 2 message_id string, 3 transaction_id string, 4 resolution int32,
    5 source int32, 6 trace_context string
EndTransactionResponse: 1 status Status
PrintThreadStackTraceCommand: 1 nonce string
ReconnectEndpointsCommand: 1 nonce string
ThreadStackTrace: 1 nonce string, 2 thread_stack_trace string?
VerifyMessageCommand: 1 nonce string, 2 message Message
VerifyMessageResult: 1 nonce string
RecoverOrphanedTransactionCommand: 1 message Message, 2 transaction_id string
TelemetryCommand: 1 status Status?, 2 settings Settings|command, 3 thread_stack_trace ThreadStackTrace|command,
    4 verify_message_result VerifyMessageResult|command,
    5 recover_orphaned_transaction_command RecoverOrphanedTransactionCommand|command,
    6 print_thread_stack_trace_command PrintThreadStackTraceCommand|command,
    7 verify_message_command VerifyMessageCommand|command,
    8 reconnect_endpoints_command ReconnectEndpointsCommand|command
NotifyClientTerminationRequest: 1 group Resource?
NotifyClientTerminationResponse: 1 status Status
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string,
    4 invisible_duration Duration, 5 message_id string, 6 lite_topic string?, 7 suspend bool?
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle string
RecallMessageRequest: 1 topic Resource, 2 recall_handle string
RecallMessageResponse: 1 status Status, 2 message_id string
"""


class ClientType(IntEnum):
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3


class MessageType(IntEnum):
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    PRIORITY = 6


class Permission(IntEnum):
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class FilterType(IntEnum):
    TAG = 1
    SQL = 2


class AddressScheme(IntEnum):
    IPV4 = 1
    IPV6 = 2
    DOMAIN_NAME = 3


class Encoding(IntEnum):
    IDENTITY = 1
    GZIP = 2


class Resolution(IntEnum):
    """The end of a transaction."""

    UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


MESSAGE_FIELD: Final = 2  # of `ReceiveMessageResponse`
TIME_FIELD: Final = 3
SERVER_CHECK: Final = 2  # the source of an end of a transaction that answers a check


def _fields_by_message() -> dict[str, str]:
    rows: dict[str, str] = {}
    name = ""
    for line in _MESSAGE_TABLE.strip().splitlines():
        if not line.startswith(" "):
            name, _, line = line.partition(":")
        rows[name] = rows.get(name, "") + line
    return rows


def _add_field(message: Any, text: str, groups: list[str]) -> None:
    number, name, kind = text.split()
    kind, _, group = kind.partition("|")
    field = message.field.add(name=name, number=int(number), label=_FIELD_PROTO.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label = _FIELD_PROTO.LABEL_REPEATED
    elif kind.endswith("?"):
        field.proto3_optional = True
        group = f"_{name}"
    if group:
        if group not in groups:
            groups.append(group)
        field.oneof_index = groups.index(group)
    kind = kind.rstrip("*?")
    if kind == "map":
        _add_entries(message, field)
    elif kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _FIELD_PROTO.TYPE_MESSAGE
        field.type_name = _WELL_KNOWN_TYPES.get(kind, f".{_PACKAGE}.{kind}")


def _add_entries(message: Any, field: Any) -> None:
    """Make a field a map of text to text: repeated entries, which are messages."""
    entry = message.nested_type.add(name="".join(part.title() for part in field.name.split("_")) + "Entry")
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=number, label=_FIELD_PROTO.LABEL_OPTIONAL, type=_FIELD_PROTO.TYPE_STRING)
    field.label, field.type = _FIELD_PROTO.LABEL_REPEATED, _FIELD_PROTO.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"


def _make_message_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="sparrowmq/v2.proto", package=_PACKAGE, syntax="proto3")
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    rows = _fields_by_message()
    for name, fields in rows.items():
        message = file.message_type.add(name=name)
        groups: list[str] = []
        parts = fields.split(",")
        # Protobuf wants the groups of plain fields behind the others.
        for part in sorted(parts, key=lambda text: "?" in text):
            _add_field(message, part, groups)
        for group in groups:
            message.oneof_decl.add(name=group)
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in rows}


_MESSAGE_CLASSES: Final = _make_message_classes()


def message_class(name: str) -> Any:
    return _MESSAGE_CLASSES[name]


def read(message_class: Any, raw: bytes) -> Any:
    """A message from its bytes. Raises: RemoteProtocolError, they are none."""
    try:
        return message_class.FromString(raw)
    except DecodeError:
        raise RemoteProtocolError(f"{len(raw)} bytes are no {message_class.DESCRIPTOR.name}") from None
