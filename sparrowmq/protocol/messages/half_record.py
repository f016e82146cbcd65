"""The record of a half message, and the record that a commit makes of it.

    half     body CRC | flag | system flag     | born | reconsume times | 0            | body | half topic | properties
    commit   the same | same | the same COMMIT | same | the same        | half's place | same | REAL_TOPIC | the same

A commit copies most bytes of the record. New are only the address, the place, the time of storing, and the property CRC
at the end. The property TRAN_OWNER is left out: consumers need not know the producer's account.
Source: EndTransactionProcessor.endMessageTransaction, Java 4.9.7.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)

from sparrowmq.compiled import mypyc_attr
from sparrowmq.errors import CorruptRecord, RemoteProtocolError
from sparrowmq.protocol.messages.entry import Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties, Terms
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record import (
    CRC_NAME,
    PROPERTY_CRC_SIZE,
    has_sound_body,
    misfit,
    properties_at,
    put_property_crc,
    shape_problem,
)
from sparrowmq.protocol.messages.record_layout import (
    BODY_CRC_AT,
    BODY_SIZE_BEHIND_RECONSUME_TIMES,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    HOST_BITS_AT,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC_BYTES_V1,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    STORE_TIMESTAMP_BY_HOSTS,
    SYS_FLAG_AT,
)

_PROPERTY_END: Final = 0x02
_OWNER: Final = f"\x02{Property.TRAN_OWNER}\x01".encode()
_V6_HOST_BYTES: Final = 20


@mypyc_attr(acyclic=True, free_list_len=1)
class Destination:
    """The destination of a half message, and its terms for queue and index there.

    Attributes:
        group: the producer group, which may end the transaction.
        owner: the account that sent the half message.
    """

    __slots__ = ("group", "owner", "queue_id", "terms", "topic")

    def __init__(self, topic: str, queue_id: int, group: str | None, terms: Terms, owner: str | None = None) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.group = group
        self.owner = owner
        self.terms = terms


@mypyc_attr(acyclic=True, free_list_len=1)
class Half:
    """The checked record of a half message.

    Attributes:
        queue_offset, offset: its offset in the half topic, and in the log.
        owner: the account that sent it, if access control was on.
    Raises:
        RemoteProtocolError: the bytes are not a record.
        CorruptRecord: the body does not fit its CRC.
    """

    __slots__ = ("_properties", "_raw", "_size_at", "_topic_at", "offset", "owner", "queue_offset")

    def __init__(self, raw: bytes) -> None:
        problem = shape_problem(raw)
        if problem is not None:
            raise RemoteProtocolError(f"not a record: {problem}")
        self._raw = raw
        self.queue_offset: int = read_i64_be(raw, QUEUE_OFFSET_AT)
        self.offset: int = read_i64_be(raw, PHYSICAL_OFFSET_AT)
        if not has_sound_body(raw):
            remedy = "a body that fits its CRC; fetch it from another broker"
            raise CorruptRecord("a record", self.offset, remedy)
        self._size_at: int = BODY_SIZE_BY_HOSTS[raw[HOST_BITS_AT] >> 4 & 3]
        body_size: int = read_i32_be(raw, self._size_at)
        self._topic_at: int = self._size_at + BODY_SIZE_FIELD + body_size
        begin, crc_at = properties_at(raw, 0), len(raw) - PROPERTY_CRC_SIZE
        has_crc = begin <= crc_at and raw[crc_at : crc_at + len(CRC_NAME)] == CRC_NAME
        self._properties = raw[begin:crc_at] if has_crc else raw[begin:]
        if not has_crc and CRC_NAME in self._properties:  # not the store's last property, if it is one at all
            properties = self.properties
            properties.remove(Property.CRC32)
            self._properties = properties.encode()
        self.owner: str | None = None
        owner_at = self._properties.rfind(_OWNER)
        if owner_at >= 0:
            self._take_owner(owner_at)

    def _take_owner(self, at: int) -> None:
        """Take the owner's name out of the properties. They may contain bytes that are not UTF-8."""
        properties = self._properties
        end: int = properties.find(b"\x02", at + 1)
        if end < 0:
            end = len(properties)
        self.owner = properties[at + len(_OWNER) : end].decode("utf-8", "replace") or None
        self._properties = properties[:at] + properties[end:]

    @property
    def properties(self) -> Properties:
        """The properties without the store's own CRC and the owner. The committed message has the same."""
        return Properties(self._properties.decode("utf-8", "replace"))

    def commit(self, to: Destination, placed: Placed, crc: bool) -> bytes:
        """Make the record for consumers.

        Args:
            placed: the place of the new record.
            crc: whether the record ends with a property CRC.
        Raises:
            InvalidMessage: a number, or the properties with their CRC, do not fit.
        """
        raw, size_at, properties, store_host = self._raw, self._size_at, self._properties, placed.store_host
        name = to.topic.encode()
        if crc and properties and properties[-1] != _PROPERTY_END:
            properties += b"\x02"
        properties_size = len(properties) + (PROPERTY_CRC_SIZE if crc else 0)
        long_topic = len(name) > MAX_TOPIC_BYTES_V1
        born_v6 = raw[HOST_BITS_AT] >> 4 & 1
        store_v6 = len(store_host) == _V6_HOST_BYTES
        times_at = size_at - BODY_SIZE_BEHIND_RECONSUME_TIMES
        size = self._topic_at - size_at + BODY_SIZE_BY_HOSTS[born_v6 + 2 * store_v6] + 3 + long_topic
        size += len(name) + properties_size
        sys_flag: int = read_i32_be(raw, SYS_FLAG_AT)
        kept = ~(SysFlag.TRANSACTION_MASK | SysFlag.STORE_V6)
        out = BytesWriter()
        try:
            write_i32_be(out, size)
            write_i32_be(out, MAGIC_V2 if long_topic else MAGIC_V1)
            write_i32_be(out, read_i32_be(raw, BODY_CRC_AT))
            write_i32_be(out, to.queue_id)
            write_i32_be(out, read_i32_be(raw, FLAG_AT))
            write_i64_be(out, placed.queue_offset)
            write_i64_be(out, placed.offset)
            write_i32_be(out, sys_flag & kept | SysFlag.COMMIT | store_v6 << 5)
            out.write(raw[BORN_TIMESTAMP_AT : STORE_TIMESTAMP_BY_HOSTS[born_v6]])
            write_i64_be(out, placed.store_timestamp_ms)
            out.write(store_host)
            write_i32_be(out, read_i32_be(raw, times_at))
            write_i64_be(out, self.offset)
            out.write(raw[size_at : self._topic_at])
            if long_topic:
                write_i16_be(out, len(name))
            else:
                out.append(len(name))
            out.write(name)
            write_i16_be(out, properties_size)
            out.write(properties)
        except (OverflowError, ValueError) as error:
            raise misfit(size, properties_size, error) from error
        if crc:
            put_property_crc(out, out.getvalue())
        return out.getvalue()


@mypyc_attr(acyclic=True, free_list_len=1)
class Commit:
    """A committed half message on its way to its own queue. Other messages are an `Entry`."""

    __slots__ = ("_half", "_to", "queue_id", "terms", "topic")

    def __init__(self, half: Half, to: Destination) -> None:
        self._half = half
        self._to = to
        self.topic = to.topic
        self.queue_id = to.queue_id
        self.terms = to.terms

    @property
    def tags_code(self) -> int:
        """The third field of its queue entry, after its place."""
        return self.terms.tags_code

    def encode(self, placed: Placed, crc: bool) -> bytes:
        """Encode its record at `placed`. Raises: as `Half.commit`."""
        return self._half.commit(self._to, placed, crc)
