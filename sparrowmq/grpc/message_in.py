"""A message of a gRPC client, checked, as the fields of a send to a broker.

    id 40009    tag 40004    key 40005    message group 40006    property 40007    size of properties 43101
    body 41302 (empty), 41301 (too large), 40016 (does not fit its digest)    delivery time 40012    type 40014

Unlike Java, the digest is compared, and a body packed by gzip is stored plain, as clients of 4.x cannot unpack gzip.
Source: GrpcValidator and SendMessageActivity, Java 5.4, and its answers.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.client_settings import MAX_BODY_BYTES, ms_of
from sparrowmq.grpc.statuses import Status, refusal
from sparrowmq.grpc.wire_types import Encoding, MessageType
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import KEY_SEPARATOR, SysFlag
from sparrowmq.protocol.messages.property_names import RESERVED, Property
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.headers import SendMessageV2

MAX_PROPERTIES: Final = 128
MAX_UNPACKED_BYTES: Final = 16 << 20  # bytes of the bodies of one call, as of a whole call that is not packed
MAX_PROPERTIES_BYTES: Final = 16 * 1024
MAX_MESSAGE_GROUP_CHARS: Final = 63
MAX_ID_CHARS: Final = 255
MAX_DELAY_MS: Final = 24 * 3_600_000
NEW_TOPIC_QUEUES: Final = 4  # of a topic that a broker would create
_MAX_TIMESTAMP_MS: Final = 253_402_300_799_999  # the end of the year 9999, as `Timestamp` has it
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_CONTROL_CHARACTER: Final = re.compile("[\0-\x1f\x7f-\x9f]")
_CRC32: Final = 1  # the types of digests
_MD5: Final = 2
_SHA1: Final = 3


def type_of(message: Any) -> MessageType:
    """The type of a message, by what it has. Raises: RemoteError, it has what two types have."""
    system = message.system_properties
    types: list[MessageType] = []
    if system.message_type == MessageType.TRANSACTION:
        types.append(MessageType.TRANSACTION)
    if system.HasField("delivery_timestamp"):
        types.append(MessageType.DELAY)
    if system.message_group:
        types.append(MessageType.FIFO)
    if system.HasField("priority"):
        types.append(MessageType.PRIORITY)
    if len(types) > 1:
        raise refusal(
            Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message cannot be {types[0].name} and {types[1].name}; leave one of them out",
        )
    return types[0] if types else MessageType.NORMAL


def is_packed(message: Any) -> bool:
    return bool(message.system_properties.body_encoding == Encoding.GZIP)


def body_of(message: Any) -> bytes:
    """The body of a message as it was sent, which fits its digest. Raises: RemoteError."""
    body = bytes(message.body)
    if not body:
        raise refusal(Status.MESSAGE_BODY_EMPTY, "the message has no body; give it one byte at least")
    if len(body) > MAX_BODY_BYTES:
        raise _body_too_large(len(body))
    system = message.system_properties
    digest = system.body_digest
    checksum: str = digest.checksum
    if checksum and not has_digest(body, digest.type, checksum.upper()):
        raise refusal(Status.MESSAGE_CORRUPTED, "the body does not fit its digest; send the message again")
    return body


def unpack_bodies(bodies: Sequence[bytes], are_packed: Sequence[bool]) -> list[bytes]:
    """The bodies of one call, those that are `packed` by gzip unpacked. This belongs into a thread: 4 KB may become
    4 MiB, which take 20 ms. Raises: RemoteError."""
    unpacked_bodies: list[bytes] = []
    room_bytes = MAX_UNPACKED_BYTES
    for body, is_packed in zip(bodies, are_packed, strict=True):
        unpacked_bodies.append(_unpack(body) if is_packed else body)
        room_bytes -= len(unpacked_bodies[-1]) if is_packed else 0
        if room_bytes < 0:
            raise refusal(
                Status.PAYLOAD_TOO_LARGE,
                f"the bodies of the call become more than {MAX_UNPACKED_BYTES:,} bytes; make several calls",
            )
    return unpacked_bodies


def _unpack(body: bytes) -> bytes:
    try:
        plain = zlib.decompressobj(_GZIP_WINDOW).decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise refusal(Status.MESSAGE_CORRUPTED, f"the gzip body is damaged ({error})") from None
    if len(plain) > MAX_BODY_BYTES:
        raise _body_too_large(len(plain))
    return plain


def has_digest(body: bytes, digest_type: int, checksum: str) -> bool:
    """Whether a body has this digest, in capital letters; true if its type is unknown. Java's client writes a CRC32 in
    hexadecimal digits without leading zeros, others with them, and the Node client reads decimal digits."""
    if digest_type == _CRC32:
        crc = zlib.crc32(body)
        return checksum == f"{crc:X}" or checksum == f"{crc:08X}" or checksum == str(crc)
    if digest_type == _MD5:
        return hashlib.md5(body, usedforsecurity=False).hexdigest().upper() == checksum
    return digest_type != _SHA1 or hashlib.sha1(body, usedforsecurity=False).hexdigest().upper() == checksum


def properties_of(message: Any, topic: str, now_ms: int) -> str:
    """All properties of a message, as a broker gets them. Raises: RemoteError."""
    system = message.system_properties
    sent_properties: dict[str, str] = {}
    count = len(message.user_properties)
    if count > 0:  # an empty map costs as much to copy as a small one
        if count <= MAX_PROPERTIES:
            sent_properties.update(message.user_properties)
        _check_user_properties(sent_properties, count)
    _add_system_properties(sent_properties, system, topic)
    if system.HasField("delivery_timestamp"):
        due_ms = ms_of(system.delivery_timestamp)
        if due_ms - now_ms > MAX_DELAY_MS:
            raise refusal(
                Status.ILLEGAL_DELIVERY_TIME,
                f"the delivery time is {(due_ms - now_ms) // 1000} s ahead; {MAX_DELAY_MS // 1000} s are allowed",
            )
        sent_properties[Property.TIMER_DELIVER_MS] = str(due_ms)
    return properties.render(sent_properties)


def send_request(message: Any, topic: str, queue: tuple[str, int], now_ms: int) -> SendMessageV2:
    """The request that sends a message to a queue, which is given by its broker's name and its id."""
    is_half = message.system_properties.message_type == MessageType.TRANSACTION
    born_ms = ms_of(message.system_properties.born_timestamp) or now_ms
    if abs(born_ms) > _MAX_TIMESTAMP_MS:
        raise refusal(Status.BAD_REQUEST, f"born_timestamp is {born_ms} ms, and no time; give the time of now")
    return request_to(topic, queue, born_ms, properties_of(message, topic, now_ms), is_half=is_half)


def request_to(
    topic: str, queue: tuple[str, int], born_ms: int, rendered_properties: str, *, is_half: bool = False
) -> SendMessageV2:
    """The request that sends a message with these properties to a queue."""
    broker_name, queue_id = queue
    return SendMessageV2(
        producer_group=topic,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=NEW_TOPIC_QUEUES,
        queue_id=queue_id,
        sys_flag=SysFlag.PREPARED if is_half else 0,
        born_timestamp=born_ms,
        flag=0,
        properties=rendered_properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name=broker_name,
    )


def _add_system_properties(sent_properties: dict[str, str], system: Any, topic: str) -> None:
    message_id = _check_text(system.message_id, Status.ILLEGAL_MESSAGE_ID, "the message id", MAX_ID_CHARS)
    sent_properties[Property.UNIQ_KEY] = message_id
    sent_properties[Property.WAIT] = "true"
    if system.HasField("tag") and system.tag:
        tag = _check_text(system.tag, Status.ILLEGAL_MESSAGE_TAG, "the tag", MAX_PROPERTIES_BYTES)
        if "|" in tag:
            raise refusal(Status.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:40]!r} has a '|', which separates tags")
        sent_properties[Property.TAGS] = tag
    if len(system.keys) > MAX_PROPERTIES:
        raise refusal(Status.ILLEGAL_MESSAGE_KEY, f"{len(system.keys)} keys; {MAX_PROPERTIES} are allowed")
    if system.keys:
        keys = [_check_text(key, Status.ILLEGAL_MESSAGE_KEY, "a key", MAX_PROPERTIES_BYTES) for key in system.keys]
        sent_properties[Property.KEYS] = KEY_SEPARATOR.join(keys)
    if system.HasField("message_group"):
        code = Status.ILLEGAL_MESSAGE_GROUP
        group = _check_text(system.message_group, code, "the message group", MAX_MESSAGE_GROUP_CHARS)
        sent_properties[Property.SHARDING_KEY] = group
    if system.HasField("priority"):
        sent_properties[Property.PRIORITY] = str(system.priority)
    if system.trace_context:
        sent_properties[Property.TRACE_CONTEXT] = _without_control_characters(system.trace_context)
    if system.born_host:
        sent_properties[Property.BORN_HOST] = _without_control_characters(system.born_host)
    if system.message_type == MessageType.TRANSACTION:
        sent_properties[Property.TRAN_MSG] = "true"
        sent_properties[Property.PGROUP] = topic
        wait_s = int(system.orphaned_transaction_recovery_duration.seconds)
        if wait_s > 0:
            sent_properties[Property.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(wait_s)


def _check_user_properties(user_properties: Mapping[str, str], count: int) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in user_properties.items())
    if count > MAX_PROPERTIES or size > MAX_PROPERTIES_BYTES:
        raise refusal(
            Status.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{count} properties of {size} bytes; {MAX_PROPERTIES} and {MAX_PROPERTIES_BYTES} bytes are allowed",
        )
    for name, value in user_properties.items():
        if (
            not name.strip()
            or name in RESERVED
            or name == Property.PRIORITY
            or _has_control_characters(name)
            or _has_control_characters(value)
        ):
            raise refusal(
                Status.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name[:40]!r} belongs to RocketMQ, is blank, or has control characters; rename it",
            )


def _check_text(text: str, code: Status, kind: str, max_chars: int) -> str:
    if not text.strip() or len(text) > max_chars or _has_control_characters(text):
        raise refusal(
            code,
            f"{kind} is {text[:40]!r}; give 1 to {max_chars} characters, not only blanks, and no control characters",
        )
    return text


def _has_control_characters(text: str) -> bool:
    return not text.isprintable() and _CONTROL_CHARACTER.search(text) is not None


def _without_control_characters(text: str) -> str:
    return text if text.isprintable() else _CONTROL_CHARACTER.sub("", text)


def _body_too_large(size: int) -> RemoteError:
    return refusal(Status.MESSAGE_BODY_TOO_LARGE, f"the body has {size} bytes or more; {MAX_BODY_BYTES} are allowed")
