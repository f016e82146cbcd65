"""Batches: many messages of one topic, end to end in one body, and what becomes of them in the log.

    body     | head | body | size | WAIT true UNIQ_KEY id TAGS a |        places: where the parts of each message are
    record   | head | body | topic | size | UNIQ_KEY id TAGS a CLUSTER c __CRC32# ... |      scan, encode: in one pass

A message of a body:

    0   total size   int32
    4   magic        int32, 0
    8   body CRC     int32, 0
    12  flag         int32
    16  body         int32 + n
        properties   int16 + n

It is the body of SEND_BATCH_MESSAGE, and of SEND_MESSAGE with `batch` set (C++ sends that one). A broker stores each
message as a record of its own, at consecutive queue offsets. Source: MessageDecoder.encodeMessage, Java 4.9.8.

A message is plain if its properties are ASCII, and none of them leads it elsewhere, as a delay does. Most batches have
only plain messages, hundreds of thousands of them. So each byte of the properties is read once, which also finds the
terms for queue and index. If one message is not plain, the caller makes an entry of each, with the same result.

Places and terms are `bytes` without a meaning for callers, PLACE_BYTES and TERM_BYTES for each message, which can be
cut and put together.
"""

from __future__ import annotations

from sparrowmq.kernel.batch_layout import HEAD_BYTES, MAX_COUNT, PLACE_BYTES, TERM_BYTES
from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.log_tail import KeyHashes, NewEntries, QueueTail
from sparrowmq.kernel.records import RecordWriter
from sparrowmq.kernel.string_hash import positive

# A place: the begin and the end of the body, the end of the properties, which begin two bytes after it, and the flag.
_BODY_END_AT, _END_AT, _FLAG_AT = 8, 16, 24
# A term: the hash of the tags, the begin and the end of the keys and of the unique key, and where the wish to wait
# begins, which is not stored; 0 for what is absent.
_KEYS_AT, _KEYS_END, _UNIQUE_AT, _UNIQUE_END, _WAIT_AT = 8, 16, 24, 32, 40
_FLAG_IN_HEAD, _BODY_SIZE_IN_HEAD = 12, 16
_NAME_END, _VALUE_END = 1, 2
_TAGS, _KEYS, _UNIQUE_KEY, _WAIT, _TRUE = b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"true"
_HALF_MARK, _GROUP = b"TRAN_MSG", b"PGROUP"
_WAIT_PAIR_BYTES = 10  # WAIT true, with what separates them


def find_places(content: bytes) -> bytes:
    """The places of a batch's messages.

    Raises: ValueError, sizes contradict each other, or there are no messages or too many.
    """
    source, out = In(content), Out()
    at, end, count = 0, len(content), 0
    while at < end and count <= MAX_COUNT:
        if end - at < HEAD_BYTES:
            raise ValueError(f"message {count} of the batch is cut off")
        body_size = source.i32(at + _BODY_SIZE_IN_HEAD)
        if body_size < 0:
            raise ValueError(f"message {count} of the batch has a body of {body_size} bytes")
        body_end = at + HEAD_BYTES + body_size
        if body_end + 2 > end:
            raise ValueError(f"message {count} of the batch is cut off")
        properties_size = source.i16(body_end)
        following = body_end + 2 + properties_size
        if properties_size < 0 or following != at + source.i32(at) or following > end:
            raise ValueError(f"message {count} of the batch has sizes that contradict each other")
        out.i64(at + HEAD_BYTES)
        out.i64(body_end)
        out.i64(following)
        out.i64(source.i32(at + _FLAG_IN_HEAD))
        at = following
        count += 1
    if not 0 < count <= MAX_COUNT:
        raise ValueError(f"a batch holds 1 to {MAX_COUNT} messages; this one has {count or 'none'}")
    return out.take()


def scan(content: bytes, places: bytes, not_plain: tuple[bytes, ...], max_bytes: int) -> bytes | None:
    """The terms of the messages in `content` at `places`; None if one of them is not plain.

    Args:
        not_plain: the beginnings of property names that make a message not plain.
        max_bytes: the most bytes that the properties of a plain message have.
    """
    source, spots, scanner, out = In(content), In(places), Scanner(not_plain), Out()
    at = 0
    while at < spots.size:
        begin, end = spots.i64(at + _BODY_END_AT) + 2, spots.i64(at + _END_AT)
        if end - begin > max_bytes or not scanner.is_plain(source, begin, end):
            return None
        scanner.write(out)
        at += PLACE_BYTES
    return out.take()


class Scanner:
    """Reads the properties of messages, one after the other, and finds their terms: the places of keys and unique key,
    and where the wish to wait begins; 0 for what is absent. So is the place of the producer group.

    `waits_otherwise`: the last one has a value of WAIT that is not `true`. `is_half`: it begins a transaction.
    """

    __slots__ = (
        "_letters",
        "_not_plain",
        "group_at",
        "group_end",
        "is_half",
        "keys_at",
        "keys_end",
        "tags_code",
        "unique_at",
        "unique_end",
        "wait_at",
        "waits_otherwise",
    )

    def __init__(self, not_plain: tuple[bytes, ...]) -> None:
        self._not_plain = not_plain
        self._letters = b"".join([name[:1] for name in not_plain])
        self.tags_code = self.keys_at = self.keys_end = self.unique_at = self.unique_end = self.wait_at = 0
        self.group_at = self.group_end = 0
        self.waits_otherwise = self.is_half = False

    def is_plain(self, source: In, begin: int, end: int) -> bool:
        """Find the terms of the message with these properties. Returns whether it is plain."""
        self.tags_code = self.keys_at = self.keys_end = self.unique_at = self.unique_end = self.wait_at = 0
        self.group_at = self.group_end = 0
        self.waits_otherwise = self.is_half = False
        if not source.is_ascii(begin, end):
            return False
        at = begin
        while at < end:
            pair_end = source.find(_VALUE_END, at, end)
            name_end = source.find(_NAME_END, at, pair_end)
            if name_end < pair_end:  # others have no value
                if self._leads_elsewhere(source, at, name_end):
                    return False
                if name_end + 1 < pair_end:
                    self._keep(source, at, name_end, name_end + 1, pair_end)
            at = pair_end + 1
        return True

    def write(self, out: Out) -> None:
        """Write a term."""
        out.i64(self.tags_code)
        out.i64(self.keys_at)
        out.i64(self.keys_end)
        out.i64(self.unique_at)
        out.i64(self.unique_end)
        out.i64(self.wait_at)

    def read(self, terms: In, at: int) -> None:
        """Read the term at `at`."""
        self.tags_code = terms.i64(at)
        self.keys_at, self.keys_end = terms.i64(at + _KEYS_AT), terms.i64(at + _KEYS_END)
        self.unique_at, self.unique_end = terms.i64(at + _UNIQUE_AT), terms.i64(at + _UNIQUE_END)
        self.wait_at = terms.i64(at + _WAIT_AT)

    def add_keys(self, keys: KeyHashes, topic_hash: int, source: In, offset: int, stored_ms: int) -> None:
        """Add the keys of the message whose properties are in `source`, the unique one first. `topic_hash` is that of
        `topic#`.
        """
        if self.unique_at:
            key_hash = positive(source.hash31(self.unique_at, self.unique_end, topic_hash))
            keys.add(key_hash, offset, stored_ms)
        keys.add_words(topic_hash, source, self.keys_at, self.keys_end, offset, stored_ms)

    def _leads_elsewhere(self, source: In, begin: int, end: int) -> bool:
        """Whether the name at `begin` begins as one of those that are not plain."""
        if source.u8(begin) not in self._letters:
            return False
        return source.slice(begin, end).startswith(self._not_plain)

    def _keep(self, source: In, name_at: int, name_end: int, begin: int, end: int) -> None:
        """Keep the term of a property with the value from `begin` to `end`. The last one of a name counts."""
        if name_end - name_at == len(_UNIQUE_KEY):
            if source.is_at(_UNIQUE_KEY, name_at):
                self.unique_at, self.unique_end = begin, end
            elif source.is_at(_HALF_MARK, name_at):
                self.is_half = source.equals(_TRUE, begin, end)
        elif name_end - name_at == len(_GROUP):
            if source.is_at(_GROUP, name_at):
                self.group_at, self.group_end = begin, end
        elif name_end - name_at == len(_TAGS):
            if source.is_at(_TAGS, name_at):
                self.tags_code = source.hash31(begin, end, 0)
            elif source.is_at(_KEYS, name_at):
                self.keys_at, self.keys_end = begin, end
            elif source.is_at(_WAIT, name_at):
                if not source.equals(_TRUE, begin, end):
                    self.waits_otherwise = True
                elif self.wait_at == 0:
                    self.wait_at = name_at


def have_unique_keys(terms: bytes) -> bool:
    """Whether each of the messages has a unique key."""
    source = In(terms)
    at = 0
    while at < source.size:
        if source.i64(at + _UNIQUE_AT) == 0:
            return False
        at += TERM_BYTES
    return True


class PlainMessage:
    """The places of a plain message: its body in `content`, its `properties` from `begin` to `end`, and in them its
    wish to wait at `wait_at`, which is not stored; 0 if there is none.
    """

    __slots__ = ("begin", "body_at", "body_end", "content", "end", "flag", "properties", "wait_at")

    def __init__(self, content: In) -> None:
        self.content = self.properties = content
        self.body_at = self.body_end = self.begin = self.end = self.wait_at = self.flag = 0

    def write(self, writer: RecordWriter, queue_offset: int, offset: int, suffix: bytes) -> None:
        """Write its record, with `suffix` behind the properties."""
        properties, out = self.properties, writer.out
        # Without the wish to wait, the properties are two pieces; at their end the last byte of it may be missing.
        behind = min(self.wait_at + _WAIT_PAIR_BYTES, self.end) if self.wait_at else self.begin
        before_size = self.wait_at - self.begin if self.wait_at else 0
        size = before_size + self.end - behind
        is_cut = False
        if self.end > behind:
            is_cut = properties.u8(self.end - 1) != _VALUE_END
        elif before_size > 0:
            is_cut = properties.u8(self.wait_at - 1) != _VALUE_END
        record_at = out.size
        size += is_cut + len(suffix)
        writer.begin(queue_offset, offset, self.flag, self.content, self.body_at, self.body_end, size)
        out.copy(properties, self.begin, self.begin + before_size)
        out.copy(properties, behind, self.end)
        if is_cut:
            out.u8(_VALUE_END)
        out.raw(suffix)
        writer.end(record_at)


def encode(
    writer: RecordWriter, content: bytes, places: bytes, terms: bytes, suffix: bytes, queue_offset: int, offset: int
) -> tuple[bytes, list[int]]:
    """Encode a record of each message, the first one at `queue_offset` of its queue and `offset` of the log.

    Args:
        suffix: is appended to the properties of each message.
    Returns: the records, and the log offset of each.
    Raises:
        OverflowError: a number does not fit its field.
    """
    offsets = write(writer, content, places, terms, suffix, queue_offset, offset)
    return writer.out.take(), offsets


def write(
    writer: RecordWriter, content: bytes, places: bytes, terms: bytes, suffix: bytes, queue_offset: int, offset: int
) -> list[int]:
    """`encode` behind what `writer.out` has. Returns the log offset of each record."""
    source, spots, found, out = In(content), In(places), In(terms), writer.out
    offset -= out.size
    message = PlainMessage(source)
    offsets: list[int] = []
    index, count = 0, spots.size // PLACE_BYTES
    while index < count:
        at = index * PLACE_BYTES
        message.body_at, message.body_end = spots.i64(at), spots.i64(at + _BODY_END_AT)
        message.begin, message.end = message.body_end + 2, spots.i64(at + _END_AT)
        message.flag = spots.i64(at + _FLAG_AT)
        message.wait_at = found.i64(index * TERM_BYTES + _WAIT_AT)
        offsets.append(offset + out.size)
        message.write(writer, queue_offset + index, offset + out.size, suffix)
        index += 1
    return offsets


def add_entries(
    entries: NewEntries,
    queue: QueueTail,
    content: bytes,
    terms: bytes,
    offsets: list[int],
    end: int,
    topic_hash: int,
    stored_ms: int,
) -> None:
    """Add an entry of each message, and its keys if there is an index.

    Args:
        offsets: the log offsets of the records, the last of which ends at `end`.
        topic_hash: the hash of `topic#`.
    """
    source, found, scanner = In(content), In(terms), Scanner(())
    index, count = 0, len(offsets)
    while index < count:
        offset = offsets[index]
        scanner.read(found, index * TERM_BYTES)
        index += 1
        size = (offsets[index] if index < count else end) - offset
        entries.add(queue, offset, size, scanner.tags_code)
        if entries.has_keys:
            scanner.add_keys(entries.keys, topic_hash, source, offset, stored_ms)
