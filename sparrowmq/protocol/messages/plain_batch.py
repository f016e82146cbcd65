"""Encode a batch of plain messages in one pass, with no objects per message but its record, body and keys.

    batch    | head | body | size | WAIT true UNIQ_KEY id TAGS a |                              (batch.py)
    record   | head | body | topic | size | UNIQ_KEY id TAGS a CLUSTER c __CRC32# ... |         (record_layout.py)

A message is plain if its properties are ASCII, and none of them leads it elsewhere, as a delay does. Most batches have
only plain messages, hundreds of thousands of them. So each byte of the properties is read once, which also finds the
terms for queue and index. If one message is not plain, the caller decodes the whole batch into entries, with the same
result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    read_i64_le,
    write_i64_le,
)

from sparrowmq.kernel import records
from sparrowmq.kernel.record_layout import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_CRC_SIZE,
)
from sparrowmq.protocol.messages.batch import BODY_END_AT, END_AT, FLAG_AT, PLACE_BYTES
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import misfit
from sparrowmq.protocol.subscription import tag_hash

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

_PREPARED: Final[int] = SysFlag.PREPARED
_NAME_END: Final = 1
_VALUE_END: Final = 2
_ASCII_END: Final = 0x80
# Names and a value as numbers, to compare them in one step.
_TAGS: Final = 0x54414753
_KEYS: Final = 0x4B455953
_WAIT: Final = 0x57414954
_TRUE: Final = 0x74727565
_UNIQ_KEY: Final = 0x554E49515F4B4559
_WAIT_PAIR_BYTES: Final = 10  # WAIT true, with what separates them
_NO_KEYS: Final[tuple[str, ...]] = ()
# The terms of a message, int64 each, little endian: the hash of its tags, and the places in the batch of its keys, its
# unique key, and the wish to wait, which is not stored.
_TERMS_BYTES: Final = 48
_KEYS_AT: Final = 8
_KEYS_END: Final = 16
_UNIQUE_AT: Final = 24
_UNIQUE_END: Final = 32
_WAIT_AT: Final = 40
# Of a record, without the bytes between its own place and the body's size, and without the topic and its size.
_FIXED_BYTES: Final = 42


class PlainBatch:
    """The plain messages of a batch.

    Attributes:
        shared: the fields that all of them share. Its body and properties are not used.
        topic, queue_id: of `shared`.
        offsets: the log offsets of their records, after encoding.
    """

    __slots__ = ("_content", "_places", "_suffix", "_terms", "offsets", "queue_id", "shared", "topic")

    def __init__(self, shared: Entry, content: bytes, places: bytes, terms: bytes, suffix: bytes) -> None:
        self.shared = shared
        self.topic = shared.topic
        self.queue_id = shared.queue_id
        self.offsets: list[int] = []
        self._content = content
        self._places = places
        self._terms = terms
        self._suffix = suffix

    def __len__(self) -> int:
        return len(self._terms) // _TERMS_BYTES

    @property
    def have_unique_keys(self) -> bool:
        at: i64 = _UNIQUE_AT
        end: i64 = len(self._terms)
        while at < end and read_i64_le(self._terms, at):
            at += _TERMS_BYTES
        return at >= end

    def tags_code(self, index: i64) -> int:
        """The tags code of one message, as in `Properties`."""
        code: int = read_i64_le(self._terms, index * _TERMS_BYTES)
        return code

    def unique_key(self, index: i64) -> bytes:
        """The unique key of one message in ASCII; empty if there is none."""
        at: i64 = index * _TERMS_BYTES
        begin: i64 = read_i64_le(self._terms, at + _UNIQUE_AT)
        return self._content[begin : read_i64_le(self._terms, at + _UNIQUE_END)] if begin else b""

    def keys(self, index: i64) -> tuple[str, ...]:
        at: i64 = index * _TERMS_BYTES
        begin: i64 = read_i64_le(self._terms, at + _KEYS_AT)
        if begin == 0:
            return _NO_KEYS
        return tuple(self._content[begin : read_i64_le(self._terms, at + _KEYS_END)].decode().split())

    def encode(self, first: Placed, crc: bool) -> bytes:
        """Encode the records, the first one at `first`. Sets `offsets`.

        Args:
            crc: as in `record.encode`.
        Raises:
            InvalidMessage: a number does not fit its field.
        """
        encoded: list[bytes] = []
        self.offsets = offsets = []
        offset = first.offset
        shared, content, places = self.shared, self._content, self._places
        topic = shared.topic.encode()
        try:
            for index in range(len(self)):
                offsets.append(offset)
                at: i64 = index * PLACE_BYTES
                body_end: int = read_i64_le(places, at + BODY_END_AT)
                record = records.encode(
                    topic,
                    shared.queue_id,
                    first.queue_offset + index,
                    offset,
                    read_i64_le(places, at + FLAG_AT),
                    shared.sys_flag,
                    shared.born_timestamp_ms,
                    shared.born_host,
                    first.store_timestamp_ms,
                    first.store_host,
                    shared.reconsume_times,
                    shared.prepared_offset,
                    content[read_i64_le(places, at) : body_end],
                    self._properties(index, body_end + 2, read_i64_le(places, at + END_AT)),
                    crc,
                )
                encoded.append(record)
                offset += len(record)
        except OverflowError as error:
            raise misfit(offset - first.offset, 0, error, crc) from error
        return b"".join(encoded)

    def _properties(self, index: i64, begin: i64, end: i64) -> bytes:
        """The properties to store of the message that has `content[begin:end]`: without the wish to wait."""
        wait_at: i64 = read_i64_le(self._terms, index * _TERMS_BYTES + _WAIT_AT)
        if wait_at:
            behind: i64 = min(wait_at + _WAIT_PAIR_BYTES, end)  # at the end its last byte may be missing
            properties = self._content[begin:wait_at] + self._content[behind:end]
        else:
            properties = self._content[begin:end]
        if properties and properties[-1] != _VALUE_END:
            properties += b"\x02"
        return properties + self._suffix


class PlainScan:
    """Finds out whether the messages of a batch are plain.

    Args:
        not_plain: the beginnings of property names that make a message not plain.
        suffix: a text to append to the properties of each message.
    """

    __slots__ = (
        "_keys_at",
        "_keys_end",
        "_letters",
        "_longest",
        "_not_plain",
        "_suffix",
        "_tags_code",
        "_unique_at",
        "_unique_end",
        "_wait_at",
    )

    def __init__(self, not_plain: Iterable[str], suffix: str) -> None:
        self._not_plain = tuple([begin.encode() for begin in not_plain])
        self._letters = bytes([letter in [begin[0] for begin in self._not_plain] for letter in range(256)])
        self._suffix = suffix.encode()
        self._longest: i64 = MAX_PROPERTIES_BYTES - PROPERTY_CRC_SIZE - len(self._suffix) - 1
        self._tags_code: i64 = 0
        self._keys_at: i64 = 0
        self._keys_end: i64 = 0
        self._unique_at: i64 = 0
        self._unique_end: i64 = 0
        self._wait_at: i64 = 0

    def batch(self, shared: Entry, content: bytes, places: bytes) -> PlainBatch | None:
        """The messages in `content` at `places` (`batch.places`); None if one of them is not plain."""
        if shared.sys_flag & _PREPARED:
            return None
        terms = BytesWriter()
        for at in range(0, len(places), PLACE_BYTES):
            begin: i64 = read_i64_le(places, at + BODY_END_AT) + 2
            end: i64 = read_i64_le(places, at + END_AT)
            if end - begin > self._longest or not self._is_plain(content, begin, end):
                return None
            write_i64_le(terms, self._tags_code)
            write_i64_le(terms, self._keys_at)
            write_i64_le(terms, self._keys_end)
            write_i64_le(terms, self._unique_at)
            write_i64_le(terms, self._unique_end)
            write_i64_le(terms, self._wait_at)
        return PlainBatch(shared, content, places, terms.getvalue(), self._suffix)

    def _is_plain(self, content: bytes, begin: i64, end: i64) -> bool:
        """Read the properties `content[begin:end]` of a message, and keep its terms."""
        self._tags_code = self._keys_at = self._unique_at = self._wait_at = 0
        at: i64 = begin
        while at < end:
            name_at: i64 = at
            letter: i64 = content[at]
            while letter != _NAME_END and letter != _VALUE_END:
                if letter >= _ASCII_END:
                    return False
                at += 1
                if at == end:
                    return True  # a pair without a value
                letter = content[at]
            name_end: i64 = at
            at += 1
            if letter == _VALUE_END:
                continue  # likewise
            value_at: i64 = at
            while at < end and content[at] != _VALUE_END:
                if content[at] >= _ASCII_END:
                    return False
                at += 1
            if self._letters[content[name_at]] and content[name_at:name_end].startswith(self._not_plain):
                return False
            if at > value_at:
                self._keep(content, name_at, name_end - name_at, value_at, at)
            at += 1
        return True

    def _keep(self, content: bytes, name_at: i64, name_size: i64, begin: i64, end: i64) -> None:
        """Keep the term of a property with the value `content[begin:end]`. The last one of a name counts."""
        if name_size == 8 and read_i64_be(content, name_at) == _UNIQ_KEY:
            self._unique_at = begin
            self._unique_end = end
        elif name_size == 4:
            name: int = read_i32_be(content, name_at)
            if name == _TAGS:
                self._tags_code = tag_hash(content[begin:end].decode())
            elif name == _KEYS:
                self._keys_at = begin
                self._keys_end = end
            elif name == _WAIT and self._wait_at == 0 and end - begin == 4 and read_i32_be(content, begin) == _TRUE:
                self._wait_at = name_at
