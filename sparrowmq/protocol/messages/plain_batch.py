"""A batch of plain messages: those that go into the log without an entry for each; see kernel/batches.py."""

from __future__ import annotations

from sparrowmq.kernel import batches
from sparrowmq.kernel.batch_layout import TERM_BYTES
from sparrowmq.kernel.log_tail import NewEntries, QueueTail
from sparrowmq.kernel.record_layout import MAX_PROPERTIES_BYTES, PROPERTY_CRC_SIZE
from sparrowmq.kernel.records import RecordWriter
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import misfit, shared_fields


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
        return len(self._terms) // TERM_BYTES

    @property
    def have_unique_keys(self) -> bool:
        return batches.have_unique_keys(self._terms)

    def encode(self, first: Placed, crc: bool) -> bytes:
        """Encode the records, the first one at `first`. Sets `offsets`.

        Args:
            crc: as in `record.encode`.
        Raises:
            InvalidMessage: a number does not fit its field.
        """
        try:
            writer = RecordWriter(shared_fields(self.shared, first), crc)
            records, self.offsets = batches.encode(
                writer, self._content, self._places, self._terms, self._suffix, first.queue_offset, first.offset
            )
        except OverflowError as error:
            raise misfit(len(self._content), 0, error, crc) from error
        return records

    def add_entries(self, entries: NewEntries, queue: QueueTail, first: Placed) -> None:
        """Add an entry of each message, and its keys if there is an index, after encoding."""
        topic_hash, stored_ms = string_hash(f"{self.topic}#"), first.store_timestamp_ms
        offsets, end = self.offsets, first.end
        batches.add_entries(entries, queue, self._content, self._terms, offsets, end, topic_hash, stored_ms)


def scan(
    shared: Entry, content: bytes, places: bytes, not_plain: tuple[bytes, ...], suffix: bytes
) -> PlainBatch | None:
    """The messages in `content` at `places` (`batch.places`); None if one of them is not plain.

    Args:
        not_plain: the beginnings of property names that make a message not plain.
        suffix: is appended to the properties of each message.
    """
    if shared.sys_flag & SysFlag.PREPARED:
        return None
    max_bytes = MAX_PROPERTIES_BYTES - PROPERTY_CRC_SIZE - len(suffix) - 1
    terms = batches.scan(content, places, not_plain, max_bytes)
    return None if terms is None else PlainBatch(shared, content, places, terms, suffix)
