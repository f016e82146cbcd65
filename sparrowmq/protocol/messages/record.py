"""Messages and their records: kernel/records.py has the bytes, this file the objects."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from sparrowmq.errors import CorruptRecord, InvalidMessage, MessageTooLarge, RemoteProtocolError
from sparrowmq.kernel import records as kernel
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.record_layout import (
    BODY_SIZE_BEHIND_PREPARED_OFFSET,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    INT,
    LONG,
    MAGIC_V1,
    MAX_SIZE_BYTES,
    PHYSICAL_OFFSET_AT,
    PREFIX,
    PROPERTIES_SIZE_FIELD,
    PROPERTY_CRC_SIZE,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_BY_HOSTS,
    SYS_FLAG_AT,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)
from sparrowmq.kernel.records import Buffer, Record, Shared, shape_problem
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.properties import MAX_SIZE_BYTES as MAX_PROPERTIES_BYTES
from sparrowmq.protocol.messages.properties import Properties, parse
from sparrowmq.protocol.messages.property_names import Property


class Outline:
    """The fields of a record for the store's own structures."""

    __slots__ = (
        "physical_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "size",
        "store_timestamp_ms",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        size: int,
        topic: str,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        sys_flag: int,
        store_timestamp_ms: int,
        properties: Properties,
    ) -> None:
        self.size = size
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
        self.sys_flag = sys_flag
        self.store_timestamp_ms = store_timestamp_ms
        self.properties = properties


def encode(entry: Entry, placed: Placed, crc: bool = True) -> bytes:
    """Encode the record of a message at `placed`. Sets the IPv6 bits of its system flag.

    Args:
        crc: whether the record ends with a property CRC.

    Raises:
        InvalidMessage: the properties do not fit, or a number does not fit its field.
        MessageTooLarge: the size does not fit an int32.
    """
    properties = entry.properties.encode()
    try:
        shared = shared_fields(entry, placed)
        return kernel.encode(shared, placed.queue_offset, placed.offset, entry.flag, entry.body, properties, crc)
    except OverflowError as error:
        raise misfit(len(entry.body), len(properties), error, crc) from error


def shared_fields(entry: Entry, placed: Placed) -> Shared:
    """The fields that a `RecordWriter` takes."""
    return (
        entry.topic.encode(),
        entry.queue_id,
        entry.sys_flag,
        entry.born_timestamp_ms,
        entry.born_host,
        placed.store_timestamp_ms,
        placed.store_host,
        entry.reconsume_times,
        entry.prepared_offset,
    )


def misfit(size: int, properties_size: int, error: Exception, crc: bool) -> InvalidMessage:
    """The error for a message that does not fit a record.

    Args:
        size: of its body.
        crc: whether a property CRC belongs to its properties.
    """
    properties_size += PROPERTY_CRC_SIZE * crc
    if properties_size > MAX_PROPERTIES_BYTES:
        return InvalidMessage(
            f"the properties take {properties_size} bytes in the record, "
            f"{MAX_PROPERTIES_BYTES} are allowed; use the body instead"
        )
    if size > MAX_SIZE_BYTES:
        return MessageTooLarge(f"the record takes {size} bytes, {MAX_SIZE_BYTES} are allowed; use a smaller body")
    return InvalidMessage(f"a field does not fit the record: {error}")


def find(raw: bytes) -> Record:
    """The places of a record's parts. Raises: RemoteProtocolError, the bytes are not a record."""
    record = Record(In(raw))
    if record.find(0, len(raw)) or record.size != len(raw):
        raise RemoteProtocolError(f"not a record: {shape_problem(raw)}")
    return record


def decode(record: Buffer, check_crc: bool = True) -> StoredMessage:
    """Decode a record. The body is as stored, the properties are without the store's own CRC.

    Raises:
        RemoteProtocolError: the bytes are not a record.
        CorruptRecord: the body does not fit its CRC.
    """
    found = find(bytes(record))
    if check_crc and not found.has_sound_body():
        raise body_damage(found.offset())
    fields = found.fields()
    topic, queue_id, queue_offset, offset, size, body_crc, flag, sys_flag = fields[:8]
    born_ms, born_host, store_ms, store_host, reconsume_times, prepared_offset, body, raw_properties = fields[8:]
    properties = parse(raw_properties)
    properties.pop(Property.CRC32, None)
    return StoredMessage(
        str(topic, "utf-8", "replace"),
        queue_id,
        queue_offset,
        offset,
        size,
        body_crc,
        flag,
        sys_flag,
        born_ms,
        hosts.unpack(born_host),
        store_ms,
        hosts.unpack(store_host),
        reconsume_times,
        prepared_offset,
        body,
        properties,
    )


def body_damage(offset: int) -> CorruptRecord:
    """The error for the record at `offset` of the log whose body does not fit its CRC."""
    return CorruptRecord("a record", offset, "a body that fits its CRC; fetch it from another broker")


def walk(records: Buffer) -> Iterator[memoryview]:
    """Each of several records end to end, as in the body of a pull reply, without copies.

    Raises: RemoteProtocolError, the next bytes are no complete record. The records before were returned.
    """
    view = memoryview(records)
    begins, end, problem = kernel.starts(records)
    for begin, following in pairwise([*begins, end]):
        yield view[begin:following]
    if problem is not None:
        raise RemoteProtocolError(problem)


def starts(records: bytes) -> list[int]:
    """The start of each of several records end to end.

    Raises: RemoteProtocolError, some bytes are no complete record.
    """
    begins, _, problem = kernel.starts(records)
    if problem is not None:
        raise RemoteProtocolError(problem)
    return begins


def check(record: Buffer, place: int | None = None, needs_crc: bool = False) -> str | None:
    """The fault of a record, or None; see `kernel.records.check`."""
    return kernel.check(bytes(record), -1 if place is None else place, needs_crc)


def outline(record: Buffer) -> Outline:
    """The few fields of a sound record that queues and index need."""
    return outline_at(bytes(record), 0)


def outline_at(records: bytes, at: int) -> Outline:
    """The same of the record that begins at `at`."""
    record = Record(In(records))
    record.find(at, len(records))
    source = record.source
    return Outline(
        record.size,
        str(record.topic(), "utf-8", "replace"),
        source.i32(at + QUEUE_ID_AT),
        source.i64(at + QUEUE_OFFSET_AT),
        record.offset(),
        source.i32(at + SYS_FLAG_AT),
        record.store_timestamp_ms(),
        Properties.decode(source.slice(record.properties_at, record.end)),
    )


def has_key(record: Buffer, topic: str, key: str) -> bool:
    """Whether a sound record of the topic has that key, or unique key."""
    found = outline(record)
    return found.topic == topic and (key == found.properties.unique_key or key in found.properties.keys)


def properties_at(records: bytes, at: int) -> int:
    """The begin of the properties in the record at `at`, with which they end; `at` if no record is there."""
    record = Record(In(records))
    return at if record.find(at, len(records)) else record.properties_at


def body_end(head: bytes) -> int:
    """The end of the body, where the topic's size follows, in a record with these first `LONGEST_HEAD` bytes."""
    size_at = BODY_SIZE_BY_HOSTS[head[HOST_BITS_AT] >> 4 & 3]
    body_size: int = INT.unpack_from(head, size_at)[0]
    return size_at + BODY_SIZE_FIELD + body_size


def properties_behind_body(head: bytes, tail: bytes) -> bytes:
    """The properties of a record with the first bytes `head`, and with `tail` after its body."""
    _, begin = _topic(tail, PREFIX.unpack_from(head)[1], 0)
    return tail[begin:]


def store_timestamp_ms(record: Buffer) -> int:
    stored_ms: int = LONG.unpack_from(record, STORE_TIMESTAMP_BY_HOSTS[record[HOST_BITS_AT] >> 4 & 3])[0]
    return stored_ms


def queue_offset(record: Buffer) -> int:
    number: int = LONG.unpack_from(record, QUEUE_OFFSET_AT)[0]
    return number


def physical_offset(record: Buffer) -> int:
    offset: int = LONG.unpack_from(record, PHYSICAL_OFFSET_AT)[0]
    return offset


def settled_half(record: Buffer) -> int | None:
    """The log offset of the half message whose transaction ended with this record; None for other records."""
    size_at = BODY_SIZE_BY_HOSTS[record[HOST_BITS_AT] >> 4 & 3]
    prepared_offset: int = LONG.unpack_from(record, size_at - BODY_SIZE_BEHIND_PREPARED_OFFSET)[0]
    is_committed = record[HOST_BITS_AT] & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    return prepared_offset if is_committed or prepared_offset else None


def _topic(record: Buffer, magic: int, at: int) -> tuple[str, int]:
    """The topic with its size at `at`, and the begin of the properties."""
    if magic == MAGIC_V1:
        begin = at + TOPIC_SIZE_FIELD_V1
        end = begin + record[at]
    else:
        begin = at + TOPIC_SIZE_FIELD_V2
        end = begin + int.from_bytes(record[at:begin], "big")
    return str(record[begin:end], "utf-8", "replace"), end + PROPERTIES_SIZE_FIELD
