"""The record of a half message, and the record that a commit makes of it.

    half     body CRC | flag | system flag     | born | reconsume times | 0            | body | half topic | properties
    commit   the same | same | the same COMMIT | same | the same        | half's place | same | REAL_TOPIC | the same

A commit copies most bytes of the record. New are only the address, the place, the time of storing, and the property CRC
at the end. The property TRAN_OWNER is left out: consumers need not know the producer's account.
Source: EndTransactionProcessor.endMessageTransaction, Java 4.9.7.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.kernel import records
from sparrowmq.kernel.record_layout import CRC_NAME, PROPERTY_CRC_SIZE
from sparrowmq.protocol.messages.entry import Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties, Terms
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.record import body_damage, find, misfit

_OWNER: Final = f"\x02{Property.TRAN_OWNER}\x01".encode()


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


class Half:
    """The checked record of a half message.

    Attributes:
        queue_offset, offset: its offset in the half topic, and in the log.
        owner: the account that sent it, if access control was on.
    Raises:
        RemoteProtocolError: the bytes are not a record.
        CorruptRecord: the body does not fit its CRC.
    """

    __slots__ = (
        "_body",
        "_born_host",
        "_born_timestamp_ms",
        "_flag",
        "_properties",
        "_reconsume_times",
        "_sys_flag",
        "offset",
        "owner",
        "queue_offset",
    )

    def __init__(self, raw: bytes) -> None:
        record = find(raw)
        self.offset = record.offset()
        if not record.has_sound_body():
            raise body_damage(self.offset)
        fields = record.fields()
        self.queue_offset, self._flag, self._sys_flag = fields[2], fields[6], fields[7]
        self._born_timestamp_ms, self._born_host = fields[8:10]
        self._reconsume_times, self._body, self._properties = fields[12], fields[14], fields[15]
        has_crc = self._properties[-PROPERTY_CRC_SIZE:].startswith(CRC_NAME)
        if has_crc and len(self._properties) >= PROPERTY_CRC_SIZE:
            self._properties = self._properties[:-PROPERTY_CRC_SIZE]
        elif CRC_NAME in self._properties:  # not the store's last property, if it is one at all
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
        shared = (
            to.topic.encode(),
            to.queue_id,
            self._sys_flag & ~SysFlag.TRANSACTION_MASK | SysFlag.COMMIT,
            self._born_timestamp_ms,
            self._born_host,
            placed.store_timestamp_ms,
            placed.store_host,
            self._reconsume_times,
            self.offset,
        )
        try:
            return records.encode(
                shared, placed.queue_offset, placed.offset, self._flag, self._body, self._properties, crc
            )
        except OverflowError as error:
            raise misfit(len(self._body), len(self._properties), error, crc) from error


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
