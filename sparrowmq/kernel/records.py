"""Records: one message each, as the commit log and the answers to PULL, QUERY and VIEW have them.

    bytes ── Record.find ──> places of its parts ── fault, check, pass_sound ──> may it be served?
                                               └── fields ──> numbers, topic, body, properties
    fields ── encode ──> bytes

record_layout.py draws the layout. Java's CRC covers only the body. So the store adds a last property, which 5.x knows
as `enabledAppendPropCRC`. It always has 20 bytes: `__CRC32#` 0x01, ten decimal digits, lowest first, 0x02. It covers
all bytes before itself. Brokers and clients that do not know it see one more property.
Source: MessageExtEncoder, MessageDecoder and CommitLog.checkMessageAndReturnSize, Java 4.9.8 and 5.3.
"""

from __future__ import annotations

from typing import TypeAlias

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.record_layout import (
    BODY_BEHIND_RECONSUME_TIMES,
    BODY_CRC_AT,
    BODY_SIZE_BEHIND_PREPARED_OFFSET,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    CRC_MASK,
    CRC_NAME,
    FLAG_AT,
    HOST_BITS_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    MIN_SIZE_BYTES,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_FIELD,
    PROPERTY_CRC_SIZE,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_BY_HOSTS,
    SYS_FLAG_AT,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = tuple[bytes, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, bytes, bytes]
Shared: TypeAlias = tuple[bytes, int, int, int, bytes, int, bytes, int, int]

_CRC_NAME_SIZE = len(CRC_NAME)
_ZERO = 48  # "0"
_PROPERTY_END = 2
# The bits of a system flag, as in message.SysFlag.
_TRANSACTION_BITS = 0x0C
_COMMIT = 0x08
_HOST_BITS = 0x30
_BORN_V6 = 0x10
_STORE_V6 = 0x20
_V6_HOST_SIZE = 20
# Places from the begin of a record with two IPv4 hosts.
_STORE_TIMESTAMP_AT = STORE_TIMESTAMP_BY_HOSTS[0]
_BODY_SIZE_AT = BODY_SIZE_BY_HOSTS[0]
_V6_SHIFT = 12

# Why bytes are no record.
_SOUND, _SHORT, _MAGIC, _SIZE, _HOSTS, _BODY, _TOPIC, _PARTS = range(8)


class Record:
    """The places of a record's parts in the bytes of `source`. `find` sets them."""

    __slots__ = (
        "at",
        "body_at",
        "body_end",
        "end",
        "magic",
        "properties_at",
        "size",
        "source",
        "store_timestamp_at",
        "topic_at",
    )

    def __init__(self, source: In) -> None:
        self.source = source
        self.at = self.size = self.end = self.magic = 0
        self.store_timestamp_at = self.body_at = self.body_end = self.topic_at = self.properties_at = 0

    def find(self, at: int, limit: int) -> int:
        """Find the parts of the record that begins at `at` and ends at `limit` at the latest.

        Returns: its fault, 0 if all its sizes add up. It may end before `limit`: `size` says so.
        """
        source = self.source
        self.at = at
        if limit - at < MIN_SIZE_BYTES:
            return _SHORT
        self.size = source.i32(at)
        self.magic = source.i32(at + MAGIC_AT)
        if self.magic != MAGIC_V1 and self.magic != MAGIC_V2:
            return _MAGIC
        if self.size < MIN_SIZE_BYTES or self.size > limit - at:
            return _SIZE
        self.end = at + self.size
        bits = source.u8(at + HOST_BITS_AT)
        shift = _V6_SHIFT if bits & _BORN_V6 else 0
        self.store_timestamp_at = at + _STORE_TIMESTAMP_AT + shift
        if bits & _STORE_V6:
            shift += _V6_SHIFT
        self.body_at = at + _BODY_SIZE_AT + shift + BODY_SIZE_FIELD
        if self.body_at > self.end:  # a flipped bit turned a host into IPv6
            return _HOSTS
        body_size = source.i32(self.body_at - BODY_SIZE_FIELD)
        topic_field = TOPIC_SIZE_FIELD_V1 if self.magic == MAGIC_V1 else TOPIC_SIZE_FIELD_V2
        if body_size < 0 or body_size > self.end - topic_field - PROPERTIES_SIZE_FIELD - self.body_at:
            return _BODY
        self.body_end = self.body_at + body_size
        self.topic_at = self.body_end + topic_field
        topic_size = source.u8(self.body_end) if topic_field == 1 else source.u16(self.body_end)
        self.properties_at = self.topic_at + topic_size + PROPERTIES_SIZE_FIELD
        if self.properties_at > self.end:
            return _TOPIC
        if self.properties_at + source.i16(self.properties_at - PROPERTIES_SIZE_FIELD) != self.end:
            return _PARTS
        return _SOUND

    def is_whole(self, fault: int) -> bool:
        """Whether the record ends within the bytes, though with this fault its parts may not add up to its size."""
        return fault not in (_SHORT, _MAGIC, _SIZE)

    def has_sound_body(self) -> bool:
        """Whether the body fits its CRC."""
        source = self.source
        return source.crc(self.body_at, self.body_end) & CRC_MASK == source.i32(self.at + BODY_CRC_AT)

    def has_property_crc(self) -> bool:
        """Whether the record ends with the mark of a property CRC."""
        return self.source.is_at(CRC_NAME, self.end - PROPERTY_CRC_SIZE)

    def resembles_property_crc(self) -> bool:
        """Whether the mark around the ten digits of a property CRC is there, except for at most one byte."""
        if self.has_property_crc():
            return True
        source, crc_at, same = self.source, self.end - PROPERTY_CRC_SIZE, 0
        for i in range(_CRC_NAME_SIZE):
            same += source.u8(crc_at + i) == CRC_NAME[i]
        return same + (source.u8(self.end - 1) == _PROPERTY_END) >= _CRC_NAME_SIZE

    def has_right_property_crc(self) -> bool:
        """Whether the record ends with the property CRC of all bytes before it."""
        source = self.source
        digit_at = self.end - 2
        crc_at = self.end - PROPERTY_CRC_SIZE
        if not self.has_property_crc() or source.u8(self.end - 1) != _PROPERTY_END:
            return False
        number = 0
        while digit_at >= crc_at + _CRC_NAME_SIZE:
            digit = source.u8(digit_at) - _ZERO
            if digit < 0 or digit > 9:
                return False
            number = number * 10 + digit
            digit_at -= 1
        return number == source.crc(self.at, crc_at) & CRC_MASK

    def is_unfinished(self) -> bool:
        """Whether its properties end in zero: their end was never written."""
        return self.properties_at != self.end and self.source.u8(self.end - 1) == 0

    def store_timestamp_ms(self) -> int:
        return self.source.i64(self.store_timestamp_at)

    def offset(self) -> int:
        """Its own place in the log, as it says."""
        return self.source.i64(self.at + PHYSICAL_OFFSET_AT)

    def prepared_offset(self) -> int:
        return self.source.i64(self.body_at - BODY_SIZE_FIELD - BODY_SIZE_BEHIND_PREPARED_OFFSET)

    def is_commit(self) -> bool:
        return self.source.u8(self.at + HOST_BITS_AT) & _TRANSACTION_BITS == _COMMIT

    def reconsume_times(self) -> int:
        return self.source.i32(self.body_at - BODY_BEHIND_RECONSUME_TIMES)

    def topic(self) -> bytes:
        return self.source.slice(self.topic_at, self.properties_at - PROPERTIES_SIZE_FIELD)

    def fields(self) -> Fields:
        """All fields, with times before their hosts: topic, queue id, queue offset, offset, size, CRC of the body,
        flag, system flag, born time, store time, reconsume times, prepared offset, body, properties.
        """
        source, at = self.source, self.at
        store_at = self.store_timestamp_at
        return (
            self.topic(),
            source.i32(at + QUEUE_ID_AT),
            source.i64(at + QUEUE_OFFSET_AT),
            self.offset(),
            self.size,
            source.i32(at + BODY_CRC_AT),
            source.i32(at + FLAG_AT),
            source.i32(at + SYS_FLAG_AT),
            source.i64(at + BORN_TIMESTAMP_AT),
            source.slice(at + BORN_HOST_AT, store_at),
            source.i64(store_at),
            source.slice(store_at + 8, self.body_at - BODY_BEHIND_RECONSUME_TIMES),
            self.reconsume_times(),
            self.prepared_offset(),
            source.slice(self.body_at, self.body_end),
            source.slice(self.properties_at, self.end),
        )


def shape_problem(raw: bytes) -> str | None:
    """The fault of a record whose inner sizes do not add up to its own; None if they do."""
    record = Record(In(raw))
    return _shape_problem(record, record.find(0, len(raw)), len(raw))


def check(raw: bytes, place: int = -1, needs_crc: bool = False) -> str | None:
    """The fault of a record, or None: in its shape, its CRCs or, if `place` is not -1, its place in the log.

    With `needs_crc` it must have a property CRC. Without this demand, a record whose end was never written could pass
    for a record of Java, whose CRC covers only the body. Such a record is recognised by properties that end in zero.

    The check finds every flipped bit in a record with a property CRC. If the flip hit the mark of that CRC, the rest of
    the mark shows that there was one.
    """
    record = Record(In(raw))
    problem = _shape_problem(record, record.find(0, len(raw)), len(raw))
    return problem if problem is not None else content_problem(record, place, needs_crc)


def is_sound(content: Buffer, begin: int, size: int, place: int, needs_crc: bool) -> bool:
    """`check` of the record of `size` bytes that begins at `begin` of `content`."""
    record = Record(In(content))
    if begin < 0 or size > record.source.size - begin:
        return False
    if record.find(begin, begin + size) != _SOUND or record.size != size:
        return False
    return content_problem(record, place, needs_crc) is None


class Passed:
    """Findings about the records that passed.

    Attributes:
        last_ms: the time of storing of the last one.
        finished_halves: the log offsets of half messages whose transactions ended with one of them.
    """

    __slots__ = ("count", "finished_halves", "last_ms")

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.finished_halves: set[int] = set()


def pass_sound(content: Buffer, place: int, crc_from: int, passed: Passed, begin: int = 0, end: int = -1) -> int:
    """Check the records in `content[begin:end]`, end to end, until one is damaged or not whole.

    A broker checks the end of its log before it serves, so people wait for this. `check` finds the fault of that one.

    Args:
        place: the log offset of `content`.
        crc_from: from this offset on, each record must have a property CRC.
        end: -1 for the end of `content`.
    Returns: the end of the last sound one.
    """
    record = Record(In(content))
    at = begin
    if end < 0:
        end = record.source.size
    while at < end and record.find(at, end) == _SOUND:
        if content_problem(record, place + at, place + at >= crc_from) is not None:
            break
        passed.last_ms = record.store_timestamp_ms()
        if record.prepared_offset() != 0 or record.is_commit():
            passed.finished_halves.add(record.prepared_offset())
        passed.count += 1
        at = record.end
    return at


def collect_prepared(content: Buffer, prepared: set[int]) -> int:
    """Add the prepared offsets, other than 0, of the whole records at the beginning of `content`.

    Of the records only the sizes are checked.

    Returns: the end of the last one.
    """
    record = Record(In(content))
    at, end = 0, record.source.size
    while True:
        fault = record.find(at, end)
        if not record.is_whole(fault):
            return at
        if fault != _HOSTS and record.prepared_offset() != 0:
            prepared.add(record.prepared_offset())
        at = record.end


def starts(records: Buffer) -> tuple[list[int], int, str | None]:
    """The start of each of several records end to end, as in the body of a pull reply; only their sizes are read.

    Returns: the starts, the end of the last one, and why the next bytes are no complete record; None at the end.
    """
    record = Record(In(records))
    found: list[int] = []
    at, end = 0, record.source.size
    while at < end:
        fault = record.find(at, end)
        if not record.is_whole(fault):
            return found, at, next_problem(record, fault, end)
        found.append(at)
        at += record.size
    return found, at, None


def parse_properties(text: str) -> dict[str, str]:
    """The properties in the string form, in their order. As in Java, pairs without a separator, a name or a value do
    not count."""
    properties: dict[str, str] = {}
    for pair in text.split("\2"):
        name, _, value = pair.partition("\1")
        if name and value:
            properties[name] = value
    return properties


class RecordWriter:
    """Writes records one after the other that share some fields.

    Args:
        shared: topic, queue id, system flag, born time and host, store time and host, reconsume times, and prepared
            offset. A host is an address and a port in 8 or 20 bytes; it sets the IPv6 bits of the system flag.
        crc: whether a record ends with a property CRC.
        out: gets the records, behind what it has.
    Raises:
        OverflowError: of each method, too, if a number does not fit its field.
    """

    __slots__ = (
        "_born_host",
        "_born_timestamp_ms",
        "_fixed_size",
        "_prepared_offset",
        "_queue_id",
        "_reconsume_times",
        "_store_host",
        "_store_timestamp_ms",
        "_sys_flag",
        "_topic",
        "crc",
        "out",
    )

    def __init__(self, shared: Shared, crc: bool, out: Out | None = None) -> None:
        self.out = Out() if out is None else out
        self.crc = crc
        topic, queue_id, sys_flag, born_ms, born_host, self._store_timestamp_ms, self._store_host = shared[:7]
        self._reconsume_times, prepared_offset = shared[7:]
        self.share(topic, queue_id, sys_flag, born_ms, born_host, self._store_timestamp_ms, prepared_offset)

    def share(
        self,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_timestamp_ms: int,
        prepared_offset: int = 0,
    ) -> None:
        """Set fields that the next records share."""
        self._prepared_offset = prepared_offset
        self._topic, self._queue_id, self._sys_flag = topic, queue_id, sys_flag & ~_HOST_BITS
        self._born_timestamp_ms, self._born_host = born_ms, born_host
        self._store_timestamp_ms = store_timestamp_ms
        self._fixed_size = MIN_SIZE_BYTES + len(self._topic) + (len(self._topic) > MAX_TOPIC_BYTES_V1)
        if len(self._born_host) == _V6_HOST_SIZE:
            self._sys_flag |= _BORN_V6
            self._fixed_size += _V6_SHIFT
        if len(self._store_host) == _V6_HOST_SIZE:
            self._sys_flag |= _STORE_V6
            self._fixed_size += _V6_SHIFT

    def begin(
        self, queue_offset: int, offset: int, flag: int, content: In, body_at: int, body_end: int, properties_size: int
    ) -> None:
        """Write a record up to its properties, of which `properties_size` bytes are to follow before the CRC."""
        out, topic = self.out, self._topic
        if self.crc:
            properties_size += PROPERTY_CRC_SIZE
        out.i32(self._fixed_size + body_end - body_at + properties_size)
        out.i32(MAGIC_V2 if len(topic) > MAX_TOPIC_BYTES_V1 else MAGIC_V1)
        out.i32(content.crc(body_at, body_end) & CRC_MASK)
        out.i32(self._queue_id)
        out.i32(flag)
        out.i64(queue_offset)
        out.i64(offset)
        out.i32(self._sys_flag)
        out.i64(self._born_timestamp_ms)
        out.raw(self._born_host)
        out.i64(self._store_timestamp_ms)
        out.raw(self._store_host)
        out.i32(self._reconsume_times)
        out.i64(self._prepared_offset)
        out.i32(body_end - body_at)
        out.copy(content, body_at, body_end)
        if len(topic) > MAX_TOPIC_BYTES_V1:
            out.i16(len(topic))
        else:
            out.u8(len(topic))
        out.raw(topic)
        out.i16(properties_size)

    def end(self, begin: int) -> None:
        """Write what follows the properties of the record that begins at `begin` of `out`."""
        if self.crc:
            _put_property_crc(self.out, self.out.crc(begin))


def encode(
    shared: Shared, queue_offset: int, offset: int, flag: int, body: Buffer, properties: bytes, crc: bool
) -> bytes:
    """Encode one record; `shared` and `crc` are as for `RecordWriter`.

    Raises: OverflowError, a number does not fit its field.
    """
    writer = RecordWriter(shared, crc)
    is_cut = crc and len(properties) > 0 and properties[-1] != _PROPERTY_END
    writer.begin(queue_offset, offset, flag, In(body), 0, len(body), len(properties) + is_cut)
    writer.out.raw(properties)
    if is_cut:
        writer.out.u8(_PROPERTY_END)
    writer.end(0)
    return writer.out.take()


def seal_copy(raw: bytes) -> bytes | None:
    """The record with the right property CRC, if its only fault is that it has the CRC of another record."""
    record = Record(In(raw))
    if record.find(0, len(raw)) != _SOUND or record.size != len(raw):
        return None
    if not record.has_property_crc() or not record.has_sound_body():
        return None
    out = Out()
    out.raw(raw[:-PROPERTY_CRC_SIZE])
    _put_property_crc(out, out.crc(0))
    return out.take()


def property_crc(crc: int) -> bytes:
    """The last property of a record, from the CRC-32 of all bytes before it."""
    out = Out()
    _put_property_crc(out, crc)
    return out.take()


def _put_property_crc(out: Out, crc: int) -> None:
    """Write the property: its name, and the ten decimal digits of the CRC, the last one first."""
    out.raw(CRC_NAME)
    number, digits = crc & CRC_MASK, 0
    for _ in range(8):
        digits = digits << 8 | _ZERO + number % 10
        number //= 10
    out.i64(digits)
    out.u8(_ZERO + number % 10)
    out.u8(_ZERO + number // 10)
    out.u8(_PROPERTY_END)


def content_problem(record: Record, place: int, needs_crc: bool) -> str | None:
    """The fault of a record of the right shape; see `check`."""
    if place != -1 and record.offset() != place:
        return f"its own offset is {record.offset()}"
    if record.resembles_property_crc():
        return None if record.has_right_property_crc() else "its CRC does not fit its bytes"
    if needs_crc:
        return "it has no CRC over all of its bytes"
    if record.is_unfinished():
        return "the end of its properties was never written"
    return None if record.has_sound_body() else "its CRC does not fit its body"


def next_problem(record: Record, fault: int, end: int) -> str:
    """The fault of the record that `find` looked for, among others that end at `end`."""
    at = record.at
    if fault == _SHORT:
        return f"{end - at} bytes after the last whole record"
    if fault == _MAGIC:
        return f"no record at byte {at}: magic {record.magic & 0xFFFFFFFF:#x}"
    if fault == _SIZE:
        return f"a record of {record.size} bytes at byte {at}, where {end - at} are left"
    return f"not a record: {_shape_problem(record, fault, record.size)}"


def _shape_problem(record: Record, fault: int, size: int) -> str | None:
    if fault == _SOUND:
        return None if record.size == size else f"its size says {record.size} bytes, not {size}"
    if fault == _SHORT:
        return f"{size} bytes are too few"
    if fault == _MAGIC:
        return f"magic {record.magic & 0xFFFFFFFF:#010x} is none of a record"
    if fault == _SIZE:
        return f"its size says {record.size} bytes, not {size}"
    if fault == _HOSTS:
        return "its hosts do not fit into it"
    if fault == _BODY:
        return "its body does not fit into it"
    if fault == _TOPIC:
        return "its topic does not fit into it"
    return "its parts do not add up to its size"
