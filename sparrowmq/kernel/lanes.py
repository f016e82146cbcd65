"""Lanes: the short way of plain requests, from the bytes of a frame to records, entries and the bytes of the answer.

    frame ── SendHeader.read ── Lanes.take: lane of the topic, plain properties ── record, entry, keys ── Parked
          └─ anything else: the long way, through codec and handler, which alone knows all rules
    safe as promised ── Parked.replies

A lane is opened by the long way of a message, and takes the later ones that differ in nothing that a rule looks at. Who
knows the rules closes all lanes when one has changed. A request that is not taken has changed nothing.

headers.py says which headers are plain.
"""

from __future__ import annotations

from sparrowmq.kernel.batch_layout import PLACE_BYTES, TERM_BYTES
from sparrowmq.kernel.batches import PlainMessage, Scanner, find_places, scan, write
from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.headers import Header
from sparrowmq.kernel.log_tail import LogTail, NewEntries, QueueTail
from sparrowmq.kernel.pulls import PULL_CODE, PullLanes, PullTaker
from sparrowmq.kernel.records import RecordWriter
from sparrowmq.kernel.signing import Hmac
from sparrowmq.kernel.string_hash import positive

SEND_CODE, SEND_BATCH_CODE = 310, 320
_SEND_CODE, _SEND_BATCH_CODE, _PULL_CODE = SEND_CODE, SEND_BATCH_CODE, PULL_CODE
_MAX_SENDERS = 1 << 16  # accounts by topic
_MAX_BATCH_MESSAGES = 1024  # larger ones are stored in parts
_ONE_WAY = 2
_MAX_INT = 0x7FFFFFFF
_TRANSACTION_BITS = 0x0C
_SENDER_BITS = 0x703  # of a system flag: the form of the body, several tags
_COMMA = 0x2C
# The fields of a SEND_MESSAGE_V2, in the order of their names: four words, then the letters from a to n.
_ACCESS_KEY, _ONS_CHANNEL, _TOKEN = range(3)
_GROUP, _TOPIC, _DEFAULT_TOPIC, _DEFAULT_QUEUES, _QUEUE_ID, _SYS_FLAG, _BORN_MS = range(3, 10)
_MESSAGE_FLAG, _PROPERTIES, _TRIES, _UNIT_MODE, _MAX_TRIES, _BATCH, _BROKER = range(10, 17)
_SIGNATURE = 17  # is not signed
_SIGNED_FIELDS = 17
_FIRST_LETTER = 0x61
_VALUE_END = 2
_NEEDED_FIELDS = 0xFF << 3  # a to h
_REPLY_BEGIN = b'{"code":'
_REPLY_ID = b',"extFields":{"msgId":"'
_REPLY_QUEUE = b'","queueId":"'
_REPLY_OFFSET = b'","queueOffset":"'
_REPLY_FIELDS_END = b'","MSG_REGION":"DefaultRegion","TRACE_ON":"true"},"flag":1,"language":"PYTHON","opaque":'
_REPLY_WITHOUT_FIELDS = b',"extFields":{},"flag":1,"language":"PYTHON","opaque":'
_REPLY_REMARK = b',"remark":'
_REPLY_END = b',"serializeTypeCurrentRPC":"JSON","version":409}'
_NOTHING = In(b"")


class SendHeader:
    """The header of a plain SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE. `read` sets the attributes: places in its bytes, and
    numbers.
    """

    __slots__ = (
        "_places",
        "access_key_at",
        "access_key_end",
        "born_ms",
        "code",
        "flag",
        "is_batch",
        "is_one_way",
        "opaque",
        "properties_at",
        "properties_end",
        "queue_id",
        "signature_at",
        "signature_end",
        "sys_flag",
        "topic_at",
        "topic_end",
    )

    def __init__(self) -> None:
        self.born_ms = self.code = self.flag = self.opaque = self.queue_id = self.sys_flag = 0
        self.properties_at = self.properties_end = self.topic_at = self.topic_end = 0
        self.access_key_at = self.access_key_end = self.signature_at = self.signature_end = 0
        self._places = Out()  # of the values, in the order of their names, in which they are signed
        self._places.zeros(_SIGNED_FIELDS * 8)
        self.is_batch = self.is_one_way = False

    def read(self, header: Header, source: In) -> bool:
        """Read a plain header. Returns False if it is not that of a plain send."""
        if header.flag != 0 and header.flag != _ONE_WAY:
            return False
        self.code, self.opaque, self.is_one_way = header.code, header.opaque, header.flag == _ONE_WAY
        self.is_batch = header.code == _SEND_BATCH_CODE
        self.properties_at = self.properties_end = self.access_key_end = self.signature_end = 0
        fields = 0
        for number in range(header.count):
            header.find_field(number)
            field = _field(source, header.name_at, header.name_end)
            if field < 0 or fields >> field & 1 or (field != _PROPERTIES and number == header.escaped):
                return False
            fields |= 1 << field
            if not self._is_field_plain(source, field, header.value_at, header.value_end):
                return False
        return fields & _NEEDED_FIELDS == _NEEDED_FIELDS

    def write_signed(self, out: Out, header: Header, source: In, properties: In) -> None:
        """Write the values of all fields but the signature, in the order of their names."""
        places = self._places
        for field in range(_SIGNED_FIELDS):
            places.put_i32(field * 8 + 4, 0)
        for number in range(header.count):
            header.find_field(number)
            field = _field(source, header.name_at, header.name_end)
            if field < _SIGNED_FIELDS:
                places.put_i32(field * 8, header.value_at)
                places.put_i32(field * 8 + 4, header.value_end)
        for field in range(_SIGNED_FIELDS):
            end = places.i32_at(field * 8 + 4)
            if field == _PROPERTIES:
                out.copy(properties, 1, properties.size)
            elif end > 0:
                out.copy(source, places.i32_at(field * 8), end)

    def _is_field_plain(self, source: In, field: int, at: int, end: int) -> bool:
        if field in (_GROUP, _DEFAULT_TOPIC, _BROKER, _ONS_CHANNEL, _TOKEN):
            return True
        if field == _ACCESS_KEY:
            self.access_key_at, self.access_key_end = at, end
            return True
        if field == _SIGNATURE:
            self.signature_at, self.signature_end = at, end
            return True
        if field == _TOPIC:
            self.topic_at, self.topic_end = at, end
            return True
        if field == _PROPERTIES:
            self.properties_at, self.properties_end = at, end
            return True
        if field in (_UNIT_MODE, _BATCH):
            is_true = end - at == 4 and source.is_at(b"true", at)
            self.is_batch = self.is_batch or (is_true and field == _BATCH)
            return is_true or (end - at == 5 and source.is_at(b"false", at))
        number = source.number(at, end)
        if field == _QUEUE_ID:
            self.queue_id = number
        elif field == _SYS_FLAG:
            self.sys_flag = number
        elif field == _BORN_MS:
            self.born_ms = number
        elif field == _MESSAGE_FLAG:
            self.flag = number
        elif field == _TRIES:
            return number == 0  # a new message
        return number >= 0


def _field(source: In, at: int, end: int) -> int:
    """The field with the name from `at` to `end`; -1 for others."""
    size = end - at
    if size == 1:
        letter = source.u8(at) - _FIRST_LETTER
        return _GROUP + letter if 0 <= letter <= _BROKER - _GROUP else -1
    if size == 9:
        if source.is_at(b"AccessKey", at):
            return _ACCESS_KEY
        return _SIGNATURE if source.is_at(b"Signature", at) else -1
    if size == 10:
        return _ONS_CHANNEL if source.is_at(b"OnsChannel", at) else -1
    if size == 13:
        return _TOKEN if source.is_at(b"SecurityToken", at) else -1
    return -1


class SendLane:
    """The lane of the plain messages of one topic. `queues` has the end of each queue that a message came to."""

    __slots__ = ("queues", "topic", "topic_hash")

    def __init__(self, topic: bytes, queue_count: int) -> None:
        self.topic = topic
        name = In(topic + b"#")
        self.topic_hash = name.hash31(0, name.size, 0)  # of the keys in the index
        self.queues: list[QueueTail | None] = [None] * queue_count


class Parked:
    """The requests of one connection that lanes took, while their messages are not as safe as promised.

    Attributes:
        count: their number, one-way ones included.
        batch_count: those of them that are SEND_BATCH_MESSAGE.
        message_count: their messages.
        end: the end of the last message in the log.
    """

    __slots__ = ("_answers", "_store_host", "batch_count", "count", "end", "message_count")

    def __init__(self, store_host: bytes) -> None:
        self._store_host = store_host.hex().upper().encode()
        self._answers = Out()
        self.batch_count = self.count = self.message_count = 0
        self.end = 0

    def add(self, header: SendHeader, queue_offset: int, offsets: list[int], end: int) -> None:
        """Add a request whose first message is at `queue_offset` of its queue. `offsets` are those of the log."""
        self.count += 1
        self.batch_count += header.code == _SEND_BATCH_CODE
        self.message_count += len(offsets)
        self.end = end
        if not header.is_one_way:
            answers = self._answers
            answers.i64(header.opaque)
            answers.i64(header.queue_id)
            answers.i64(queue_offset)
            answers.i64(len(offsets))
            for offset in offsets:
                answers.i64(offset)

    def replies(self, code: int = 0, remark: bytes = b"", has_fields: bool = True) -> bytes:
        """The frames of the answers with a code, a remark, which is JSON, and where each message is, if it has fields.
        Source: SendMessageProcessor, Java 4.9.8.
        """
        answers, out = In(self._answers.content()), Out()
        at = 0
        while at < answers.size:
            begin, id_at = out.size, at + 32
            ids_end = id_at + 8 * answers.i64(at + 24)
            out.i64(0)
            out.raw(_REPLY_BEGIN)
            out.decimal(code)
            if has_fields:
                out.raw(_REPLY_ID)
                while id_at < ids_end:
                    out.raw(self._store_host)
                    out.hexadecimal(answers.i64(id_at))
                    id_at += 8
                    if id_at < ids_end:
                        out.u8(_COMMA)
                out.raw(_REPLY_QUEUE)
                out.decimal(answers.i64(at + 8))
                out.raw(_REPLY_OFFSET)
                out.decimal(answers.i64(at + 16))
                out.raw(_REPLY_FIELDS_END)
            else:
                out.raw(_REPLY_WITHOUT_FIELDS)
            out.decimal(answers.i64(at))
            if len(remark) > 0:
                out.raw(_REPLY_REMARK)
                out.raw(remark)
            out.raw(_REPLY_END)
            out.put_i32(begin, out.size - begin - 4)
            out.put_i32(begin + 4, out.size - begin - 8)
            at = ids_end
        return out.take()


class Sender:
    """One connection whose requests may take lanes. `parked` has this turn's sends, `pulls` the pulls to answer."""

    __slots__ = ("_born_host", "_lanes", "parked", "pulls")

    def __init__(self, lanes: Lanes, pulls: PullLanes, born_host: bytes) -> None:
        self.pulls = PullTaker(pulls)
        self._lanes = lanes
        self._born_host = born_host
        self.parked = Parked(lanes.store_host)

    def take(self, source: In, at: int, body_at: int, end: int) -> bool:
        header, pulls = self._lanes.header, self.pulls
        if not header.read(source, at, body_at):
            return False
        if header.code == _PULL_CODE:
            return body_at == end and pulls.take(header, source, at, end)
        # Pulls are answered before a later send is taken.
        return len(pulls.taken_pulls) == 0 and self._lanes.take(
            header, source, body_at, end, self._born_host, self.parked
        )

    def take_parked(self) -> Parked:
        """The parked requests, which are not parked any more."""
        parked, self.parked = self.parked, Parked(self._lanes.store_host)
        return parked


class Lanes:
    """The lanes of one broker.

    Args:
        log: the log that gets the records.
        entries: gets the entries and keys.
        store_host: the broker's address, as in records.
        suffix: is appended to the properties of each message.
        not_plain: the beginnings of names of properties that need the long way.
        has_crcs: whether records end with a property CRC.
        has_keys: whether there is an index.
        max_properties: the most bytes of properties.

    Attributes:
        header: that of the request which is taken now.
        needs_signature: whether only what an account signed may take a lane.
        taken_count: the requests that lanes took.
    """

    __slots__ = (
        "_entries",
        "_has_keys",
        "_lanes",
        "_log",
        "_max_properties",
        "_message",
        "_not_plain",
        "_properties",
        "_scanner",
        "_send_header",
        "_senders",
        "_signed",
        "_suffix",
        "_writer",
        "header",
        "max_body_bytes",
        "needs_signature",
        "store_host",
        "taken_count",
    )

    def __init__(
        self,
        log: LogTail,
        entries: NewEntries,
        store_host: bytes,
        suffix: bytes,
        not_plain: tuple[bytes, ...],
        has_crcs: bool,
        has_keys: bool,
        max_properties: int,
    ) -> None:
        self.store_host = store_host
        self.max_body_bytes = 0
        self._log = log
        self._entries = entries
        self._suffix = suffix
        self._has_keys = has_keys
        self._max_properties = max_properties
        self.needs_signature = False
        self.taken_count = 0
        self._lanes: dict[bytes, SendLane] = {}
        self._senders: dict[tuple[bytes, bytes], Hmac] = {}  # by access key and topic
        self._not_plain = not_plain
        self._scanner = Scanner(not_plain)
        self._writer = RecordWriter((b"", 0, 0, 0, bytes(8), 0, store_host, 0, 0), has_crcs, log.burst)
        self._message = PlainMessage(_NOTHING)
        self._send_header = SendHeader()
        self.header = Header()
        self._properties = Out()
        self._signed = Out()

    def open_send(self, topic: bytes, queue_count: int, queue_id: int, queue: QueueTail) -> None:
        """Let plain messages to a queue of a topic take the short way."""
        lane = self._lanes.get(topic)
        if lane is None or len(lane.queues) != queue_count:
            lane = self._lanes[topic] = SendLane(topic, queue_count)
        if queue_id < queue_count:
            lane.queues[queue_id] = queue

    def open_sender(self, access_key: bytes, topic: bytes, key: Hmac) -> None:
        """Let an account send to a topic with its signature alone."""
        if len(self._senders) < _MAX_SENDERS:
            self._senders[access_key, topic] = key

    def close(self) -> None:
        """Close all lanes, as a rule has changed. The next message of each topic takes the long way."""
        self._lanes.clear()
        self._senders.clear()

    @property
    def open_count(self) -> int:
        return len(self._lanes)

    def take(self, plain: Header, source: In, body_at: int, end: int, born_host: bytes, parked: Parked) -> bool:
        """Store the message of a frame with a plain header, whose body begins at `body_at`. Returns False, and nothing
        has changed, if it needs the long way. Otherwise `parked` has its answer.
        """
        header, log = self._send_header, self._log
        if plain.code != _SEND_CODE and plain.code != _SEND_BATCH_CODE:
            return False
        if len(self._lanes) == 0 or end - body_at > self.max_body_bytes or not header.read(plain, source):
            return False
        lane = self._lanes.get(source.slice(header.topic_at, header.topic_end))
        if lane is None or header.queue_id >= len(lane.queues):
            return False
        queue = lane.queues[header.queue_id]
        if queue is None or header.flag > _MAX_INT or header.sys_flag > _MAX_INT:
            return False
        if header.sys_flag & _TRANSACTION_BITS or not self._is_plain(source):
            return False
        if self.needs_signature and not self._is_signed(source, body_at, end):
            return False
        burst_size = log.burst.size
        self._share(lane, born_host)
        try:
            if header.is_batch:
                offsets = self._put_batch(lane, queue, source.slice(body_at, end))
            else:
                offsets = self._put_message(lane, queue, source, body_at, end)
        except BaseException:
            log.burst.cut(burst_size)
            raise
        if offsets is None:
            log.burst.cut(burst_size)
            return False
        self.taken_count += 1
        parked.add(header, queue.next_offset - len(offsets), offsets, log.end)
        return True

    def _is_signed(self, source: In, body_at: int, end: int) -> bool:
        """Whether an account signed the request that may send to its topic."""
        header, out = self._send_header, self._signed
        if header.access_key_end == 0 or header.signature_end == 0:
            return False
        access_key = source.slice(header.access_key_at, header.access_key_end)
        key = self._senders.get((access_key, source.slice(header.topic_at, header.topic_end)))
        if key is None:
            return False
        out.cut(0)
        header.write_signed(out, self.header, source, self._message.properties)
        out.copy(source, body_at, end)
        return key.has_signed(out.content(), source.slice(header.signature_at, header.signature_end))

    def _share(self, lane: SendLane, born_host: bytes) -> None:
        header = self._send_header
        sys_flag = header.sys_flag & _SENDER_BITS
        self._writer.share(lane.topic, header.queue_id, sys_flag, header.born_ms, born_host, self._log.now_ms)

    def _put_message(self, lane: SendLane, queue: QueueTail, source: In, body_at: int, end: int) -> list[int] | None:
        """Add the message whose body is from `body_at` to `end`. Returns its offset in the log; None for no room."""
        message, scanner, log = self._message, self._scanner, self._log
        burst_size, offset = log.burst.size, log.end
        message.content, message.body_at, message.body_end, message.flag = source, body_at, end, self._send_header.flag
        message.wait_at = scanner.wait_at
        message.write(self._writer, queue.next_offset, offset, self._suffix)
        message.content = _NOTHING
        size = log.burst.size - burst_size
        if size > log.limit - offset:
            return None
        log.end = offset + size
        self._entries.add(queue, offset, size, scanner.tags_code)
        if self._has_keys:
            self._add_keys(lane, message.properties, offset)
        return [offset]

    def _put_batch(self, lane: SendLane, queue: QueueTail, content: bytes) -> list[int] | None:
        """Add the messages of a batch. Returns their offsets in the log; None if it needs the long way."""
        log, scanner = self._log, self._scanner
        burst_size, begin = log.burst.size, log.end
        try:
            places = find_places(content)
        except ValueError:
            return None
        if len(places) > _MAX_BATCH_MESSAGES * PLACE_BYTES:
            return None
        terms = scan(content, places, self._not_plain, self._max_properties)
        if terms is None:
            return None
        offsets = write(self._writer, content, places, terms, self._suffix, queue.next_offset, begin)
        if log.burst.size - burst_size > log.limit - begin:
            return None
        log.end = begin + log.burst.size - burst_size
        properties, found = In(content), In(terms)
        index, count = 0, len(offsets)
        while index < count:
            offset = offsets[index]
            following = offsets[index + 1] if index + 1 < count else log.end
            scanner.read(found, index * TERM_BYTES)
            self._entries.add(queue, offset, following - offset, scanner.tags_code)
            if self._has_keys:
                self._add_keys(lane, properties, offset)
            index += 1
        return offsets

    def _is_plain(self, source: In) -> bool:
        """Whether the properties need no long way. They begin behind a separator, so that no place in them is 0."""
        header, out, message, scanner = self._send_header, self._properties, self._message, self._scanner
        out.cut(0)
        out.u8(_VALUE_END)
        self.header.copy_unescaped(out, source, header.properties_at, header.properties_end)
        properties = In(out.content())
        message.properties, message.begin, message.end = properties, 1, properties.size
        if properties.size - 1 > self._max_properties or not scanner.is_plain(properties, 1, properties.size):
            return False
        return not scanner.waits_otherwise

    def _add_keys(self, lane: SendLane, properties: In, offset: int) -> None:
        scanner, keys, now_ms = self._scanner, self._entries.keys, self._log.now_ms
        if scanner.unique_at:
            key_hash = properties.hash31(scanner.unique_at, scanner.unique_end, lane.topic_hash)
            keys.add(positive(key_hash), offset, now_ms)
        if scanner.keys_at:
            keys.add_words(lane.topic_hash, properties, scanner.keys_at, scanner.keys_end, offset, now_ms)
