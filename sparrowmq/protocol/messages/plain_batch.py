"""A batch of plain messages: those that go into the log without an entry for each; see kernel/batches.py."""

from __future__ import annotations

from collections.abc import Iterable

from sparrowmq.kernel import batches
from sparrowmq.kernel.batch_layout import TERM_BYTES
from sparrowmq.kernel.record_layout import MAX_PROPERTIES_BYTES, PROPERTY_CRC_SIZE
from sparrowmq.kernel.records import RecordWriter
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

    def tags_code(self, index: int) -> int:
        """The tags code of one message, as in `Properties`."""
        return batches.tags_code(self._terms, index)

    def unique_key(self, index: int) -> bytes:
        """The unique key of one message in ASCII; empty if there is none."""
        return batches.unique_key(self._content, self._terms, index)

    def keys(self, index: int) -> tuple[str, ...]:
        return tuple(batches.keys(self._content, self._terms, index).decode().split())

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


class PlainScan:
    """Finds out whether the messages of a batch are plain.

    Args:
        not_plain: the beginnings of property names that make a message not plain.
        suffix: a text to append to the properties of each message.
    """

    __slots__ = ("_max_bytes", "_not_plain", "_suffix")

    def __init__(self, not_plain: Iterable[str], suffix: str) -> None:
        self._not_plain = tuple([begin.encode() for begin in not_plain])
        self._suffix = suffix.encode()
        self._max_bytes = MAX_PROPERTIES_BYTES - PROPERTY_CRC_SIZE - len(self._suffix) - 1

    def batch(self, shared: Entry, content: bytes, places: bytes) -> PlainBatch | None:
        """The messages in `content` at `places` (`batch.places`); None if one of them is not plain."""
        if shared.sys_flag & SysFlag.PREPARED:
            return None
        terms = batches.scan(content, places, self._not_plain, self._max_bytes)
        return None if terms is None else PlainBatch(shared, content, places, terms, self._suffix)
