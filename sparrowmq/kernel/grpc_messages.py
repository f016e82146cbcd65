"""The protobuf of the calls that gRPC clients make for each message: bytes in and out, without objects of protobuf.

    sent_message      SendMessage of one plain message   -> its topic, properties and body, as a broker gets them
    acked_message     AckMessage of one message          -> its names and receipt handle
    message           a stored message                   -> `Message` of an answer to ReceiveMessage

The first two return None for every other call, right or wrong: the caller lets protobuf read it then, and checks it. A
message is plain if it is a normal one, and its texts are printable ASCII. So no rule of protobuf is here twice. Source:
rocketmq-apis, RocketMQ 5; the numbers of the fields are listed in grpc/wire_types.py.
"""

from __future__ import annotations

from hashlib import md5

from sparrowmq.core.digits import whole_number
from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.record_layout import (
    BORN_HOST_AT,
    BORN_TIMESTAMP_AT,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_FIELD,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from sparrowmq.kernel.records import Buffer, Record, parse_properties

_VARINT, _BYTES = 0, 2  # kinds of fields
_MAX_INT32 = 0x7FFFFFFF
_LAST_MS = 253_402_300_799_999  # of the year 9999: Java's clients give up a whole answer because of a later time
_LAST_SECOND = 253_402_300_799
_MAX_KEYS = 128
_MAX_ID_BYTES = 255
_MAX_PROPERTIES = 128
_MAX_PROPERTIES_BYTES = 16 * 1024
_IDENTITY, _GZIP = 1, 2  # of body_encoding
_NORMAL, _FIFO, _DELAY, _TRANSACTION = 1, 2, 3, 4  # of message_type
_DELAYS = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
# The bits of a system flag, as in message.SysFlag.
_COMPRESSED, _COMPRESSION, _ZLIB = 0x1, 0x700, 0x300
_TRANSACTION_BITS, _HOST_BITS = 0x0C, 0x30
_MD5_HEAD = b"\x08\x02\x12\x20"  # of a digest: its type, and the field of 32 characters
_NO_TEXT = b""
_NOTHING = In(b"")


class _Fields:
    """The fields of a message of protobuf, one after the other."""

    def __init__(self) -> None:
        self.source = _NOTHING
        self.begin = self.end = 0  # of the bytes in a field
        self.number = self.kind = self.value = self.seen = 0
        self._at = self._last = 0

    def read(self, source: In, at: int, end: int) -> _Fields:
        """Begin with the fields from `at` to `end`."""
        self.source, self._at, self._last = source, at, end
        return self

    def next(self) -> bool:
        """Go to the next field; False behind the last one. Raises: ValueError, IndexError."""
        if self._at >= self._last:
            return False
        key = self._varint()
        self.number, self.kind = key >> 3, key & 7
        self.value = self._varint()
        if self.kind == _BYTES:
            if self.value > self._last - self._at:
                raise ValueError("a field is longer than its message")
            self.begin = self._at
            self.end = self._at = self._at + self.value
        elif self.kind != _VARINT:
            raise ValueError("a field of another kind")
        return True

    def text(self) -> bytes:
        """The text of a field, empty or printable ASCII that begins with no blank. Raises: ValueError."""
        at, end = self.begin, self.end
        if self.kind != _BYTES or (at < end and self.source.u8(at) == 0x20):
            raise ValueError("another text")
        while at < end:
            if not 0x20 <= self.source.u8(at) < 0x7F:
                raise ValueError("another text")
            at += 1
        return self.source.slice(self.begin, end)

    def inner(self) -> _Fields:
        if self.kind != _BYTES:
            raise ValueError("another kind of field")
        return _Fields().read(self.source, self.begin, self.end)

    def once(self, last: int) -> int:
        """The number of the field, from 1 to `last`. Raises: ValueError, it is another one, or comes again."""
        if not 1 <= self.number <= last or self.seen >> self.number & 1:
            raise ValueError("a field that is unknown or comes again")
        self.seen |= 1 << self.number
        return self.number

    def small(self) -> int:
        """The number in a field, from 0 on. Raises: ValueError."""
        if self.kind != _VARINT:
            raise ValueError("another kind of field")
        return self.value

    def _varint(self) -> int:
        number, shift = 0, 0
        while shift < 56:
            if self._at >= self._last:
                raise ValueError("a number is cut off")
            byte = self.source.u8(self._at)
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise ValueError("a number of more bits")


class _Sent:
    """The parts of a message that were read so far."""

    def __init__(self) -> None:
        self.topic = ("", "")
        self.message_id = self.tag = self.born_host = self.checksum = self.trace_context = _NO_TEXT
        self.keys: list[bytes] = []
        self.names: set[bytes] = set()
        self.out = Out()  # its properties
        self.body = _NO_TEXT
        self.born_ms = self.digest = self.properties_bytes = 0


def sent_message(
    raw: bytes, reserved: frozenset[bytes]
) -> tuple[tuple[str, str], str, str, bytes, int, int, str] | None:
    """The parts of a call of SendMessage with one plain message; None for another one.

    Args:
        reserved: the names of properties that clients may not use.
    Returns: namespace and name of the topic, the message id, the properties as a broker gets them, the body, the time
        of birth in ms (0 if there is none), and the type of the body's digest with its checksum, which is not compared.
    """
    try:
        call = _Fields().read(In(raw), 0, len(raw))
        if not call.next() or call.number != 1 or call.end != len(raw):
            return None
        sent = _Sent()
        _read_message(sent, call.inner(), reserved)
    except (ValueError, IndexError):
        return None
    if not sent.topic[1] or not sent.message_id or len(sent.message_id) > _MAX_ID_BYTES or not sent.body:
        return None
    out = sent.out
    _property(out, b"UNIQ_KEY", sent.message_id)
    _property(out, b"WAIT", b"true")
    if sent.tag:
        _property(out, b"TAGS", sent.tag)
    if sent.keys:
        _property(out, b"KEYS", b" ".join(sent.keys))
    if sent.trace_context:
        _property(out, b"TRACE_CONTEXT", sent.trace_context)
    if sent.born_host:
        _property(out, b"__BORNHOST", sent.born_host)
    return (
        sent.topic,
        sent.message_id.decode(),
        out.take().decode(),
        sent.body,
        sent.born_ms,
        sent.digest,
        sent.checksum.decode(),
    )


def _property(out: Out, name: bytes, value: bytes) -> None:
    out.raw(name)
    out.u8(1)
    out.raw(value)
    out.u8(2)


def _read_message(sent: _Sent, fields: _Fields, reserved: frozenset[bytes]) -> None:
    """Raises: ValueError, the message is not plain."""
    while fields.next():
        if fields.number == 2:
            _read_property(sent, fields.inner(), reserved)
            continue
        number = fields.once(4)
        if number == 1:
            sent.topic = _resource(fields.inner())
        elif number == 3:
            _read_system_properties(sent, fields.inner())
        elif fields.kind == _BYTES:
            sent.body = fields.source.slice(fields.begin, fields.end)
    if len(sent.names) > _MAX_PROPERTIES or sent.properties_bytes > _MAX_PROPERTIES_BYTES:
        raise ValueError("too many properties")


def _read_property(sent: _Sent, entry: _Fields, reserved: frozenset[bytes]) -> None:
    name = value = _NO_TEXT
    while entry.next():
        if entry.once(2) == 1:
            name = entry.text()
        else:
            value = entry.text()
    if not name or name in reserved or name in sent.names:
        raise ValueError("another name of a property")
    sent.names.add(name)
    sent.properties_bytes += len(name) + len(value)
    _property(sent.out, name, value)


def _read_system_properties(sent: _Sent, fields: _Fields) -> None:
    while fields.next():
        if fields.number == 2:
            sent.keys.append(fields.text())
            if len(sent.keys) > _MAX_KEYS or fields.begin == fields.end:
                raise ValueError("other keys")
            continue
        number = fields.once(18)
        if number == 1:
            sent.tag = fields.text()
            if b"|" in sent.tag:
                raise ValueError("another tag")
        elif number == 3:
            sent.message_id = fields.text()
        elif number == 4:
            _read_digest(sent, fields.inner())
        elif number == 5 or number == 6:
            if fields.small() == (_GZIP if number == 5 else _TRANSACTION):
                raise ValueError("another message")
        elif number == 7:
            sent.born_ms = _ms(fields.inner())
        elif number == 8:
            sent.born_host = fields.text()
        elif number == 13:
            fields.small()  # the queue is ours to choose
        elif number == 18:
            sent.trace_context = fields.text()
        else:
            raise ValueError("another message")


def _read_digest(sent: _Sent, fields: _Fields) -> None:
    while fields.next():
        if fields.once(2) == 1:
            sent.digest = min(fields.small(), _MAX_INT32)
        else:
            sent.checksum = fields.text()


def _ms(fields: _Fields) -> int:
    seconds = nanos = 0
    while fields.next():
        if fields.once(2) == 1:
            seconds = fields.small()
        else:
            nanos = fields.small()
    if seconds > _LAST_SECOND or nanos >= 1_000_000_000:
        raise ValueError("another time")
    return seconds * 1000 + nanos // 1_000_000


def _resource(fields: _Fields) -> tuple[str, str]:
    """The namespace and the name of a topic or a group."""
    namespace = name = _NO_TEXT
    while fields.next():
        if fields.once(2) == 1:
            namespace = fields.text()
        else:
            name = fields.text()
    return namespace.decode(), name.decode()


def acked_message(raw: bytes) -> tuple[tuple[str, str], tuple[str, str], str, str] | None:
    """The group, topic, message id and handle of a call of AckMessage with one entry; None for another call."""
    group = topic = ("", "")
    message_id = handle = _NO_TEXT
    try:
        call = _Fields().read(In(raw), 0, len(raw))
        while call.next():
            number = call.once(3)
            if number == 1:
                group = _resource(call.inner())
            elif number == 2:
                topic = _resource(call.inner())
            else:
                entry = call.inner()
                while entry.next():
                    if entry.once(2) == 1:
                        message_id = entry.text()
                    else:
                        handle = entry.text()
    except (ValueError, IndexError):
        return None
    if not group[1] or not topic[1] or not handle:
        return None
    return group, topic, message_id.decode(), handle.decode()


# Answers ------------------------------------------------------------------------------------------------------------


def field(number: int, raw: bytes) -> bytes:
    """A field with bytes, a text or a message in it."""
    out = Out()
    _put(out, number, raw)
    return out.take()


def number_field(number: int, value: int) -> bytes:
    """A field with a number of at most 64 bits; a negative one is written as its two's complement."""
    out = Out()
    _put_number(out, number, value)
    return out.take()


def time_of(ms: int) -> bytes:
    """Return a `Timestamp` or a `Duration`, in milliseconds; a negative one counts as 0."""
    out, ms = Out(), max(ms, 0)
    seconds, rest_ms = ms // 1000, ms % 1000
    if seconds:
        _put_number(out, 1, seconds)
    if rest_ms:
        _put_number(out, 2, rest_ms * 1_000_000)
    return out.take()


def _put_varint(out: Out, value: int) -> None:
    if value < 0:
        for _ in range(9):  # two's complement: ten bytes, of which the last has one bit
            out.u8(value & 0x7F | 0x80)
            value >>= 7
        out.u8(1)
        return
    while value >= 0x80:
        out.u8(value & 0x7F | 0x80)
        value >>= 7
    out.u8(value)


def _put(out: Out, number: int, raw: bytes) -> None:
    _put_varint(out, number << 3 | _BYTES)
    _put_varint(out, len(raw))
    out.raw(raw)


def _put_text(out: Out, number: int, text: str | None) -> None:
    if text:
        _put(out, number, text.encode())


def _put_number(out: Out, number: int, value: int) -> None:
    _put_varint(out, number << 3)
    _put_varint(out, value)


def _put_time(out: Out, number: int, ms: int) -> None:
    """Write the nearest time that a `Timestamp` may have."""
    _put(out, number, time_of(min(ms, _LAST_MS)))


class PoppedRecords:
    """The records of a pop. It makes answers of ReceiveMessage of the plain ones, which most are.

    Args:
        handle_starts: the receipt handles of each queue, up to the offsets of a message. Records of other queues and
            of other topics are not plain.
        hidden: the names of properties that a client does not see.
        max_attempts: records that were delivered so often before are not plain.
        tags: those that the client wants, or none for all. Records with other tags are not plain.
    Attributes:
        at: the begin of the next record.
        handles: those of the messages that were made last.
    """

    def __init__(
        self,
        records: Buffer,
        topic: str,
        handle_starts: dict[int, str],
        hidden: frozenset[str],
        invisible_ms: int,
        max_attempts: int,
        tags: frozenset[str],
    ) -> None:
        self.at = 0
        self.handles: list[str] = []
        self._record = Record(In(records))
        self._topic, self._raw_topic = topic, topic.encode()
        self._handle_starts = handle_starts
        self._hidden = hidden
        self._invisible_ms = invisible_ms
        self._max_attempts = max_attempts
        self._tags = tags

    @property
    def is_at_end(self) -> bool:
        return self.at == self._record.source.size

    def take_plain(self) -> list[bytes]:
        """The next messages, up to a record that is not plain."""
        record, source = self._record, self._record.source
        answers: list[bytes] = []
        self.handles = []
        while self.at < source.size and record.find(self.at, source.size) == 0 and self._is_plain():
            at, store_at = self.at, record.store_timestamp_at
            properties = parse_properties(str(source.slice(record.properties_at, record.end), "utf-8", "replace"))
            if "POP_CK" in properties or (self._tags and properties.get("TAGS") not in self._tags):
                break
            queue_id, offset, place = source.i32(at + QUEUE_ID_AT), source.i64(at + QUEUE_OFFSET_AT), record.offset()
            handle = f"{self._handle_starts[queue_id]}{offset} {place}"
            born_host, store_host = source.slice(at + BORN_HOST_AT, store_at), source.slice(store_at + 8, store_at + 16)
            message_id = (
                properties.get("UNIQ_KEY")
                or (store_host + source.slice(at + PHYSICAL_OFFSET_AT, at + PHYSICAL_OFFSET_AT + 8)).hex().upper()
            )
            texts = message_id, _host(born_host), _host(store_host), handle
            numbers = (
                source.i32(at + SYS_FLAG_AT),
                source.i64(at + BORN_TIMESTAMP_AT),
                record.store_timestamp_ms(),
                queue_id,
                offset,
                self._invisible_ms,
                record.reconsume_times() + 1,
            )
            body = source.slice(record.body_at, record.body_end)
            out = Out()
            _put(out, 2, message(self._topic, properties, self._hidden, texts, numbers, body))
            answers.append(out.take())
            self.handles.append(handle)
            self.at = record.end
        return answers

    def take_record(self) -> bytes:
        """The next record, plain or not; all that is left if no whole record is there."""
        record, at, end = self._record, self.at, self._record.source.size
        self.at = record.end if record.is_whole(record.find(at, end)) else end
        return record.source.slice(at, self.at)

    def _is_plain(self) -> bool:
        """Whether the record is of the topic and a listed queue, sound, and has IPv4 hosts and a body that clients
        unpack."""
        record, source = self._record, self._record.source
        flag = source.i32(self.at + SYS_FLAG_AT)
        return (
            not flag & _HOST_BITS
            and (not flag & _COMPRESSED or flag & _COMPRESSION in (0, _ZLIB))
            and 0 <= record.reconsume_times() < self._max_attempts
            and source.i32(self.at + QUEUE_ID_AT) in self._handle_starts
            and source.equals(self._raw_topic, record.topic_at, record.properties_at - PROPERTIES_SIZE_FIELD)
            and record.has_sound_body()
        )


def _host(raw: bytes) -> str:
    """An IPv4 address with its port, of a record."""
    source = In(raw)
    return f"{source.u8(0)}.{source.u8(1)}.{source.u8(2)}.{source.u8(3)}:{source.i32(4) & 0xFFFFFFFF}"


def message(
    topic: str,
    properties: dict[str, str],
    hidden: frozenset[str],
    texts: tuple[str, str, str, str],
    numbers: tuple[int, ...],
    body: bytes,
) -> bytes:
    """The bytes of a `Message`.

    Args:
        texts: its id, where it was born and stored, and its receipt handle ("" if it is not popped).
        numbers: its system flag, its times of birth and storage in ms, its queue and place in there, its invisible time
            in ms, and the number of this delivery.
    """
    out = Out()
    _put(out, 1, field(2, topic.encode()))
    for name, value in properties.items():
        if name not in hidden:
            _put(out, 2, field(1, name.encode()) + field(2, value.encode()))
    _put(out, 3, _system_properties(properties, texts, numbers, body))
    _put(out, 4, body)
    return out.take()


def _system_properties(
    properties: dict[str, str], texts: tuple[str, str, str, str], numbers: tuple[int, ...], body: bytes
) -> bytes:
    out = Out()
    tags = properties.get("TAGS")
    _put_text(out, 1, tags)
    keys = properties.get("KEYS")
    if keys is not None:
        for key in keys.split():
            _put_text(out, 2, key)
    _put_text(out, 3, texts[0])
    # Of CRC32 the Node client reads decimal digits, the others hexadecimal ones; all read the same MD5.
    digest = md5(body, usedforsecurity=False).hexdigest().upper()
    _put(out, 4, _MD5_HEAD + digest.encode())
    _put_number(out, 5, _GZIP if numbers[0] & _COMPRESSED else _IDENTITY)
    _put_number(out, 6, _message_type(properties, numbers[0]))
    _put_time(out, 7, numbers[1])
    _put_text(out, 8, properties.get("__BORNHOST") or texts[1])
    _put_time(out, 9, numbers[2])
    _put_text(out, 10, texts[2])
    due_ms = _number(properties, "TIMER_DELIVER_MS")
    if due_ms < 0:
        due_ms = _number(properties, "TIMER_OUT_MS")
    if due_ms >= 0:
        _put_time(out, 11, due_ms)
    _put_text(out, 12, texts[3])
    if numbers[3]:
        _put_number(out, 13, numbers[3])
    _put_number(out, 14, numbers[4])
    if texts[3]:
        _put(out, 15, time_of(numbers[5]))
    _put_number(out, 16, numbers[6])
    _put_text(out, 17, properties.get("__SHARDINGKEY"))
    _put_text(out, 18, properties.get("TRACE_CONTEXT"))
    topic = properties.get("DLQ_ORIGIN_TOPIC")
    if topic:
        message_id = properties.get("DLQ_ORIGIN_MESSAGE_ID")
        _put(out, 20, field(1, topic.encode()) + (field(2, message_id.encode()) if message_id else b""))
    priority = _number(properties, "_SYS_MSG_PRIORITY_")
    if 0 <= priority <= _MAX_INT32:
        _put_number(out, 22, priority)
    return out.take()


def _message_type(properties: dict[str, str], sys_flag: int) -> int:
    """The type of a message: the first one that fits. As in Java, one with a priority is a normal one: clients of Java
    before 5.2.0 do not know its own type."""
    if sys_flag & _TRANSACTION_BITS:
        return _TRANSACTION
    if "TIMER_OUT_MS" in properties:
        return _DELAY
    if properties.get("TRAN_MSG", "").lower() == "true":
        return _TRANSACTION
    for name in _DELAYS:
        if name in properties:
            return _DELAY
    return _FIFO if "__SHARDINGKEY" in properties else _NORMAL


def _number(properties: dict[str, str], name: str) -> int:
    """The number in a property; -1 if there is none."""
    text = properties.get(name)
    number = None if text is None else whole_number(text)
    return -1 if number is None else number
