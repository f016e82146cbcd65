"""Lanes: the short way of plain requests, from the bytes of a frame to records, entries and the bytes of the answer.

    frame ── SendHeader.read ── Lanes.take: lane of the topic, plain properties ── record, entry, keys ── Parked
          └─ anything else: the long way, through codec and handler, which alone knows all rules
    safe as promised ── Parked.replies

A lane is opened by the long way of a message, and takes the later ones that differ in nothing that a rule looks at. Who
knows the rules closes all lanes when one has changed. A request that is not taken has changed nothing.

A half message, which begins a transaction, takes the lane of its topic into the half topic. Its record is kept here,
so that the transaction's end, a commit or a rollback, takes a lane, too:

    end ── EndHeader.read ── Lanes.take_end: its half, of this group and id ── commit, record of the end ── Parked

The broker learns of what lanes began and ended before it looks at its open transactions.

headers.py says which headers are plain.
"""

from __future__ import annotations

from sparrowmq.kernel.batches import PlainMessage, Scanner, add_entries, find_places, scan, write
from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.headers import Header
from sparrowmq.kernel.log_tail import LogTail, NewEntries, QueueTail
from sparrowmq.kernel.pulls import PULL_CODE, PullLanes, PullTaker
from sparrowmq.kernel.record_layout import BORN_HOST_AT, BORN_TIMESTAMP_AT, FLAG_AT, PROPERTY_CRC_SIZE, SYS_FLAG_AT
from sparrowmq.kernel.records import Record, RecordWriter
from sparrowmq.kernel.signing import Hmac

SEND_CODE, SEND_BATCH_CODE, END_CODE = 310, 320, 37
_SEND_CODE, _SEND_BATCH_CODE, _END_CODE, _PULL_CODE = SEND_CODE, SEND_BATCH_CODE, END_CODE, PULL_CODE
_ONE_WAY = 2
_MAX_SENDERS = 1 << 16  # accounts by topic
_MAX_INT = 0x7FFFFFFF
_TRANSACTION_BITS, _PREPARED, _COMMIT = 0x0C, 0x04, 0x08  # of a system flag
_SENDER_BITS = 0x703  # the form of the body, several tags
_VALUE_END, _COMMA = 2, 0x2C
# The fields of a SEND_MESSAGE_V2, in the order of their names: four words, then the letters from a to n.
_ACCESS_KEY, _ONS_CHANNEL, _TOKEN = range(3)
_GROUP, _TOPIC, _DEFAULT_TOPIC, _DEFAULT_QUEUES, _QUEUE_ID, _SYS_FLAG, _BORN_MS = range(3, 10)
_MESSAGE_FLAG, _PROPERTIES, _TRIES, _UNIT_MODE, _MAX_TRIES, _BATCH, _BROKER = range(10, 17)
_SIGNATURE = 17  # is not signed
_SIGNED_FIELDS = 17
_FIRST_LETTER = 0x61
_NEEDED_FIELDS = 0xFF << 3  # a to h
# The fields of an END_TRANSACTION that are looked at, as bits.
_ENDING_GROUP, _HALF_QUEUE_OFFSET, _HALF_OFFSET, _END, _MESSAGE_ID = 1, 2, 4, 8, 16
_TRANSACTION_ID, _FROM_CHECK = 32, 64
_NEEDED_BY_END = 31
_ROLLBACK = 12
_HALF_MARK = b"TRAN_MSG"
_HALF_PROPERTIES_ROOM = 256  # more than a broker adds to a half message later
_MAX_KEPT_BYTES, _KEPT_BYTES = 4 << 20, 2048  # of half messages; of each of them, besides its record
_END_PROPERTIES, _END_TAGS_CODE = b"TAGS\1d\2", 0x64  # of the record of an end
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
        "flag",
        "is_batch",
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
        self.born_ms = self.flag = self.queue_id = self.sys_flag = 0
        self.properties_at = self.properties_end = self.topic_at = self.topic_end = 0
        self.access_key_at = self.access_key_end = self.signature_at = self.signature_end = 0
        self._places = Out()  # of the values, in the order of their names, in which they are signed
        self._places.zeros(_SIGNED_FIELDS * 8)
        self.is_batch = False

    def read(self, header: Header, source: In) -> bool:
        """Read a plain header. Returns False if it is not that of a plain send."""
        if header.flag != 0 and header.flag != _ONE_WAY:
            return False
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
            is_true = source.equals(b"true", at, end)
            self.is_batch = self.is_batch or (is_true and field == _BATCH)
            return is_true or source.equals(b"false", at, end)
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


class EndHeader:
    """The header of a plain END_TRANSACTION that commits or rolls back the half message at `queue_offset` of its queue
    and `offset` of the log. `read` sets the attributes. Without a transaction id, the place of it is empty.
    """

    __slots__ = ("group_at", "group_end", "id_at", "id_end", "is_commit", "offset", "queue_offset")

    def __init__(self) -> None:
        self.offset = self.queue_offset = self.group_at = self.group_end = self.id_at = self.id_end = 0
        self.is_commit = False

    def read(self, header: Header, source: In) -> bool:
        """Read a plain header. Returns False if it is not that of a plain end."""
        self.id_at = self.id_end = fields = 0
        if header.escaped >= 0 or (header.flag != 0 and header.flag != _ONE_WAY):
            return False
        for number in range(header.count):
            header.find_field(number)
            field = _end_field(source, header.name_at, header.name_end)
            if fields & field or not self._is_field_plain(source, field, header.value_at, header.value_end):
                return False
            fields |= field
        return fields & _NEEDED_BY_END == _NEEDED_BY_END

    def _is_field_plain(self, source: In, field: int, at: int, end: int) -> bool:
        if field == _ENDING_GROUP:
            self.group_at, self.group_end = at, end
        elif field == _TRANSACTION_ID:
            self.id_at, self.id_end = at, end
        elif field == _FROM_CHECK:
            return source.equals(b"true", at, end) or source.equals(b"false", at, end)
        elif field in (_END, _HALF_OFFSET, _HALF_QUEUE_OFFSET):
            number = source.number(at, end)
            if field == _END:
                self.is_commit = number == _COMMIT
                return number in (_COMMIT, _ROLLBACK)
            if field == _HALF_OFFSET:
                self.offset = number
            else:
                self.queue_offset = number
            return number >= 0
        return True


def _end_field(source: In, at: int, end: int) -> int:
    """The field of an END_TRANSACTION with the name from `at` to `end`; 0 for others, of which nothing depends."""
    if source.equals(b"producerGroup", at, end):
        return _ENDING_GROUP
    if source.equals(b"transactionId", at, end):
        return _TRANSACTION_ID
    if source.equals(b"tranStateTableOffset", at, end):
        return _HALF_QUEUE_OFFSET
    if source.equals(b"commitLogOffset", at, end):
        return _HALF_OFFSET
    if source.equals(b"commitOrRollback", at, end):
        return _END
    if source.equals(b"fromTransactionCheck", at, end):
        return _FROM_CHECK
    return _MESSAGE_ID if source.equals(b"msgId", at, end) else 0


class SendLane:
    """The lane of the plain messages of one topic. `queues` has the end of each queue that a message came to.
    `addresses` has the properties that lead a half message there.
    """

    __slots__ = ("addresses", "queues", "topic", "topic_hash")

    def __init__(self, topic: bytes, queue_count: int) -> None:
        self.topic = topic
        name = In(topic + b"#")
        self.topic_hash = name.hash31(0, name.size, 0)  # of the keys in the index
        self.queues: list[QueueTail | None] = [None] * queue_count
        self.addresses = [b"REAL_TOPIC\1%s\2REAL_QID\1%d\2" % (topic, number) for number in range(queue_count)]


class Half:
    """A half message on its way to a queue of a lane. `record` has its bytes."""

    __slots__ = ("lane", "queue_id", "record")

    def __init__(self, lane: SendLane, queue_id: int, record: Record) -> None:
        self.lane = lane
        self.queue_id = queue_id
        self.record = record


class Parked:
    """The requests of one connection that lanes took, while their messages are not as safe as promised.

    Attributes:
        count: their number, one-way ones included.
        batch_count, end_count: those of them that are SEND_BATCH_MESSAGE, or END_TRANSACTION.
        message_count: the messages that were sent with them.
        end: the end of their last record in the log.
    """

    __slots__ = ("_answers", "_store_host", "batch_count", "count", "end", "end_count", "message_count")

    def __init__(self, store_host: bytes) -> None:
        self._store_host = store_host.hex().upper().encode()
        self._answers = Out()
        self.batch_count = self.count = self.end_count = self.message_count = 0
        self.end = 0

    def add(self, header: Header, queue_id: int, queue_offset: int, offsets: list[int], end: int) -> None:
        """Add a request whose first message is at `queue_offset` of its queue. `offsets` are those of the log."""
        self.count += 1
        self.batch_count += header.code == _SEND_BATCH_CODE
        self.end_count += header.code == _END_CODE
        self.message_count += len(offsets)
        self.end = end
        if header.flag != _ONE_WAY:
            answers = self._answers
            answers.i64(header.opaque)
            answers.i64(queue_id)
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
            if has_fields and id_at < ids_end:
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
        header, pulls, lanes = self._lanes.header, self.pulls, self._lanes
        if not header.read(source, at, body_at):
            return False
        if header.code == _PULL_CODE:
            return body_at == end and pulls.take(header, source, at, end)
        if len(pulls.taken_pulls) > 0:  # they are answered before a later send is taken
            return False
        if header.code == _END_CODE:
            return body_at == end and lanes.take_end(header, source, self.parked)
        return lanes.take(header, source, body_at, end, self._born_host, self.parked)

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
        max_properties: the most bytes of properties.

    Attributes:
        header: that of the request which is taken now.
        needs_signature: whether only what an account signed may take a lane.
        taken_count: the requests that lanes took.
        begun_count, ended: what lanes did to transactions since the broker learned of it: how many half messages they
            stored, and the queue offset of each half message that has ended, with whether by a commit.
    """

    __slots__ = (
        "_end_header",
        "_end_lane",
        "_entries",
        "_half_lane",
        "_half_scanner",
        "_halves",
        "_halves_bytes",
        "_lanes",
        "_log",
        "_max_properties",
        "_message",
        "_new_halves",
        "_not_plain",
        "_properties",
        "_scanner",
        "_send_header",
        "_senders",
        "_signed",
        "_suffix",
        "_terms",
        "_writer",
        "begun_count",
        "ended",
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
        max_properties: int,
    ) -> None:
        self.store_host = store_host
        self.max_body_bytes = 0
        self._log = log
        self._entries = entries
        self._suffix = suffix
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
        self._end_header = EndHeader()
        self._half_lane: SendLane | None = None  # of the topic of half messages, and that of their ends
        self._end_lane: SendLane | None = None
        self._half_scanner: Scanner | None = None
        self._terms = Scanner(())  # of a half message that ends
        self._halves: dict[int, Half] = {}  # those whose ends may take a lane, by queue offset
        self._halves_bytes = 0
        self._new_halves: dict[
            int, Half
        ] = {}  # those of which the broker has not learned, in the order of queue offsets
        self.begun_count = 0
        self.ended: list[tuple[int, bool]] = []

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

    def open_transactions(
        self,
        half_topic: bytes,
        end_topic: bytes,
        half_queue: QueueTail,
        end_queue: QueueTail,
        not_plain: tuple[bytes, ...],
    ) -> None:
        """Let half messages take the lanes of their topics, unless a property begins as one of `not_plain`, too."""
        if self.needs_signature or self._half_scanner is not None:
            return
        self._half_lane, self._end_lane = SendLane(half_topic, 1), SendLane(end_topic, 1)
        self._half_lane.queues[0], self._end_lane.queues[0] = half_queue, end_queue
        self._half_scanner = Scanner(tuple([name for name in self._not_plain if name != _HALF_MARK]) + not_plain)

    def keep_half(self, topic: bytes, queue_id: int, queue_offset: int, offset: int) -> None:
        """Let the end of a half message to a queue of a topic take a lane. Its record is at `offset` of the log, in the
        burst.
        """
        lane, begin = self._lanes.get(topic), self._log.burst.size - (self._log.end - offset)
        if self._half_scanner is None or lane is None or queue_id >= len(lane.queues):
            return
        if self._halves_bytes > _MAX_KEPT_BYTES:
            self._forget_halves()
        self._keep(lane, queue_id, queue_offset, begin)

    def forget_half(self, queue_offset: int) -> None:
        """Let the end of this half message take the long way."""
        half = self._halves.pop(queue_offset, None)
        if half is not None:
            self._halves_bytes -= half.record.size + _KEPT_BYTES

    def take_begun(self) -> list[tuple[int, int, int, int, int, bytes]]:
        """The half messages that lanes stored since the last call, and that have not ended: of each its queue offset,
        offset and size, its times of birth and storing, and its properties.
        """
        begun = []
        for queue_offset, half in self._new_halves.items():
            record = half.record
            born_ms, stored_ms = record.source.i64(BORN_TIMESTAMP_AT), record.store_timestamp_ms()
            properties = record.source.slice(record.properties_at, self._properties_end(record))
            begun.append((queue_offset, record.offset(), record.size, born_ms, stored_ms, properties))
        self._new_halves.clear()
        return begun

    def close(self) -> None:
        """Close all lanes, as a rule has changed. The next message of each topic takes the long way."""
        self._lanes.clear()
        self._senders.clear()
        self._half_scanner = None
        self._forget_halves()

    def _forget_halves(self) -> None:
        self._halves.clear()
        self._halves_bytes = 0

    @property
    def open_count(self) -> int:
        return len(self._lanes)

    def take(self, header: Header, source: In, body_at: int, end: int, born_host: bytes, parked: Parked) -> bool:
        """Store the message of a frame with a plain header, whose body begins at `body_at`. Returns False, and nothing
        has changed, if it needs the long way. Otherwise `parked` has its answer.
        """
        send, log = self._send_header, self._log
        if header.code != _SEND_CODE and header.code != _SEND_BATCH_CODE:
            return False
        if len(self._lanes) == 0 or end - body_at > self.max_body_bytes or not send.read(header, source):
            return False
        lane = self._lanes.get(source.slice(send.topic_at, send.topic_end))
        if lane is None or send.queue_id >= len(lane.queues):
            return False
        queue = lane.queues[send.queue_id]
        if queue is None or send.flag > _MAX_INT or send.sys_flag > _MAX_INT:
            return False
        is_half = send.sys_flag & _TRANSACTION_BITS != 0
        scanner = self._half_scanner if is_half else self._scanner
        if scanner is None or not self._is_plain(source, scanner):
            return False
        suffix, target = self._suffix, lane
        if is_half:
            suffix = lane.addresses[send.queue_id] + suffix
            if self._half_lane is None or not self._may_begin(scanner, len(suffix)):
                return False
            target, queue = self._half_lane, self._half_lane.queues[0]
            assert queue is not None
        if self.needs_signature and not self._is_signed(source, body_at, end):
            return False
        burst_size = log.burst.size
        self._share(target, 0 if is_half else send.queue_id, born_host)
        try:
            if send.is_batch:
                offsets = self._put_batch(lane, queue, source.slice(body_at, end))
            else:
                self._set_body(source, body_at, end)
                offsets = self._put_message(target, queue, scanner, suffix)
        except BaseException:
            log.burst.cut(burst_size)
            raise
        if offsets is None:
            log.burst.cut(burst_size)
            return False
        self.taken_count += 1
        queue_offset = queue.next_offset - len(offsets)
        if is_half:
            self._new_halves[queue_offset] = self._keep(lane, send.queue_id, queue_offset, burst_size)
            self.begun_count += 1
        parked.add(header, send.queue_id, queue_offset, offsets, log.end)
        return True

    def take_end(self, header: Header, source: In, parked: Parked) -> bool:
        """End the transaction that a plain header of END_TRANSACTION names, as `take`. Its records are side by side."""
        ending, log, lane = self._end_header, self._log, self._end_lane
        if len(self._halves) == 0 or not ending.read(header, source):
            return False
        half = self._halves.get(ending.queue_offset)
        if half is None or lane is None or not self._may_end(half, source):
            return False
        queue, end_queue = half.lane.queues[half.queue_id], lane.queues[0]
        if queue is None or end_queue is None:
            return False
        burst, burst_size, begin = log.burst, log.burst.size, log.end
        try:
            if ending.is_commit:
                self._write_commit(half, queue.next_offset)
            commit_size = burst.size - burst_size
            self._write_end(lane, end_queue.next_offset, begin + commit_size)
        except BaseException:
            burst.cut(burst_size)
            raise
        size = burst.size - burst_size
        if size > log.limit - begin:
            burst.cut(burst_size)
            return False
        log.end = begin + size
        if ending.is_commit:
            self._entries.add(queue, begin, commit_size, self._terms.tags_code)
            if self._entries.has_keys:
                topic_hash = half.lane.topic_hash
                self._terms.add_keys(self._entries.keys, topic_hash, half.record.source, begin, log.now_ms)
        self._entries.add(end_queue, begin + commit_size, size - commit_size, _END_TAGS_CODE)
        self.forget_half(ending.queue_offset)
        self._new_halves.pop(ending.queue_offset, None)
        self.ended.append((ending.queue_offset, ending.is_commit))
        self.taken_count += 1
        parked.add(header, 0, 0, [], log.end)
        return True

    def _may_begin(self, scanner: Scanner, suffix_size: int) -> bool:
        """Whether the message with these terms is a half message that needs no long way."""
        header = self._send_header
        if header.is_batch or header.sys_flag & _TRANSACTION_BITS != _PREPARED:
            return False
        if not scanner.is_half or scanner.group_at == 0 or self._halves_bytes > _MAX_KEPT_BYTES:
            return False
        return self._message.end + suffix_size + _HALF_PROPERTIES_ROOM <= self._max_properties

    def _may_end(self, half: Half, source: In) -> bool:
        """Whether the header names this half message, its group, and its unique key, if any. Finds its terms."""
        header, record, terms = self._end_header, half.record, self._terms
        found = record.source
        if record.offset() != header.offset or record.reconsume_times() != 0:
            return False
        if not terms.is_plain(found, record.properties_at, self._properties_end(record)):
            return False
        group = source.slice(header.group_at, header.group_end)
        if group != found.slice(terms.group_at, terms.group_end):
            return False
        id_of_end = source.slice(header.id_at, header.id_end)
        return len(id_of_end) == 0 or id_of_end == found.slice(terms.unique_at, terms.unique_end)

    def _properties_end(self, record: Record) -> int:
        return record.end - PROPERTY_CRC_SIZE if self._writer.crc else record.end

    def _keep(self, lane: SendLane, queue_id: int, queue_offset: int, begin: int) -> Half:
        """Keep the half message whose record is the last one of the burst, and begins there."""
        record = Record(In(self._log.burst.piece(begin, self._log.burst.size)))
        record.find(0, record.source.size)
        half = self._halves[queue_offset] = Half(lane, queue_id, record)
        self._halves_bytes += record.size + _KEPT_BYTES
        return half

    def _write_commit(self, half: Half, queue_offset: int) -> None:
        """Write what consumers get of a half message. half_record.py draws it."""
        record, log = half.record, self._log
        source = record.source
        message = PlainMessage(source)
        sys_flag = source.i32(SYS_FLAG_AT) & ~_TRANSACTION_BITS | _COMMIT
        born_ms, born_host = source.i64(BORN_TIMESTAMP_AT), source.slice(BORN_HOST_AT, record.store_timestamp_at)
        self._writer.share(half.lane.topic, half.queue_id, sys_flag, born_ms, born_host, log.now_ms, record.offset())
        message.body_at, message.body_end = record.body_at, record.body_end
        message.begin, message.end = record.properties_at, self._properties_end(record)
        message.flag = source.i32(FLAG_AT)
        message.write(self._writer, queue_offset, log.end, b"")

    def _write_end(self, lane: SendLane, queue_offset: int, offset: int) -> None:
        """Write the record that a transaction has ended. broker/transactions/half_message.py draws it."""
        writer, now_ms = self._writer, self._log.now_ms
        body, begin = In(b"%d" % self._end_header.queue_offset), writer.out.size
        writer.share(lane.topic, 0, 0, now_ms, self.store_host, now_ms)
        writer.begin(queue_offset, offset, 0, body, 0, body.size, len(_END_PROPERTIES))
        writer.out.raw(_END_PROPERTIES)
        writer.end(begin)

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

    def _share(self, lane: SendLane, queue_id: int, born_host: bytes) -> None:
        header = self._send_header
        sys_flag = header.sys_flag & _SENDER_BITS
        self._writer.share(lane.topic, queue_id, sys_flag, header.born_ms, born_host, self._log.now_ms)

    def _set_body(self, source: In, body_at: int, end: int) -> None:
        message = self._message
        message.content, message.body_at, message.body_end, message.flag = source, body_at, end, self._send_header.flag

    def _put_message(self, lane: SendLane, queue: QueueTail, scanner: Scanner, suffix: bytes) -> list[int] | None:
        """Add the message with these terms, and a `suffix` behind its properties. Returns its offset in the log; None
        for no room.
        """
        message, log = self._message, self._log
        burst_size, offset = log.burst.size, log.end
        message.wait_at = scanner.wait_at
        message.write(self._writer, queue.next_offset, offset, suffix)
        message.content = _NOTHING
        size = log.burst.size - burst_size
        if size > log.limit - offset:
            return None
        log.end = offset + size
        self._entries.add(queue, offset, size, scanner.tags_code)
        if self._entries.has_keys:
            scanner.add_keys(self._entries.keys, lane.topic_hash, message.properties, offset, log.now_ms)
        return [offset]

    def _put_batch(self, lane: SendLane, queue: QueueTail, content: bytes) -> list[int] | None:
        """Add the messages of a batch. Returns their offsets in the log; None if it needs the long way."""
        log = self._log
        burst_size, begin = log.burst.size, log.end
        try:
            places = find_places(content)
        except ValueError:
            return None
        terms = scan(content, places, self._not_plain, self._max_properties)
        if terms is None:
            return None
        offsets = write(self._writer, content, places, terms, self._suffix, queue.next_offset, begin)
        if log.burst.size - burst_size > log.limit - begin:
            return None
        log.end = begin + log.burst.size - burst_size
        add_entries(self._entries, queue, content, terms, offsets, log.end, lane.topic_hash, log.now_ms)
        return offsets

    def _is_plain(self, source: In, scanner: Scanner) -> bool:
        """Whether the properties need no long way. They begin behind a separator, so that no place in them is 0."""
        header, out, message = self._send_header, self._properties, self._message
        out.cut(0)
        out.u8(_VALUE_END)
        self.header.copy_unescaped(out, source, header.properties_at, header.properties_end)
        properties = In(out.content())
        message.properties, message.begin, message.end = properties, 1, properties.size
        if properties.size - 1 > self._max_properties or not scanner.is_plain(properties, 1, properties.size):
            return False
        return not scanner.waits_otherwise
