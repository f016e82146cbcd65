"""Records that do not come from producers: entries and keys are read from the log, which has them already.

    log of a master, or before a crash ── Follower.take ──> entries of queues, keys of the index
                                      └── add_keys ──────> keys alone, for an index that is behind

Most records are plain: whole, with ASCII in topic and properties, and next in a queue that is known. The caller takes
the first record that is not, and goes on behind it.
"""

from __future__ import annotations

from typing import Any

from sparrowmq.kernel.batches import Scanner
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.log_tail import KeyHashes, NewEntries
from sparrowmq.kernel.record_layout import PROPERTIES_SIZE_FIELD, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
from sparrowmq.kernel.records import Record

# The bits of a system flag, as in message.SysFlag.
_PREPARED, _ROLLBACK = 0x04, 0x0C
_TRANSACTION_BITS = 0x0C
_SEPARATOR = 0x23  # "#" between topic and key, which is its own hash


class Reader:
    """Reads the plain records of `content`, one after the other. `read` sets the attributes.

    Attributes:
        record: the places of its parts.
        scanner: its terms.
        topic: its topic, and `topic_hash` the hash of the topic and the separator behind it.
        transaction: the bits of a transaction in its system flag.
        offset: its place in the log.
    """

    __slots__ = ("offset", "record", "scanner", "source", "topic", "topic_hash", "transaction")

    def __init__(self, content: bytes) -> None:
        self.source = In(content)
        self.record = Record(self.source)
        self.scanner = Scanner(())
        self.topic, self.topic_hash = b"", _SEPARATOR
        self.offset = self.transaction = 0

    def read(self, at: int) -> bool:
        """Read the record at `at`. Returns False if none is there that is plain."""
        record, source = self.record, self.source
        if record.find(at, source.size) != 0:
            return False
        topic_at, topic_end = record.topic_at, record.properties_at - PROPERTIES_SIZE_FIELD
        if not source.equals(self.topic, topic_at, topic_end):
            topic = source.slice(topic_at, topic_end)
            if not topic.isascii():
                return False
            self.topic = topic
            self.topic_hash = source.hash31(topic_at, topic_end, 0) * 31 + _SEPARATOR
        self.transaction = source.i32(at + SYS_FLAG_AT) & _TRANSACTION_BITS
        self.offset = record.offset()
        return self.offset >= 0 and self.scanner.is_plain(source, record.properties_at, record.end)

    def add_keys(self, keys: KeyHashes) -> None:
        """Add the keys of the record, the unique one first, unless it ends a transaction without a message."""
        if self.transaction != _ROLLBACK:
            stored_ms = self.record.store_timestamp_ms()
            self.scanner.add_keys(keys, self.topic_hash, self.source, self.offset, stored_ms)


class Follower(NewEntries):
    """The entries and keys of records that the log has already.

    Args:
        queues: the `QueueTail`s that are known, by topic and queue id.
        other_topics: those whose records are not plain, as the tags code of their entries is a time.

    Attributes:
        deleted: by topic, the log offset before which its records belong to a deleted topic of the same name. The
            records of these topics are not plain.
        followed_ms: the store timestamp of the last record that was taken.
    """

    __slots__ = ("_known_queues", "_other_topics", "deleted", "followed_ms")

    def __init__(self, queues: dict[str, dict[int, Any]], other_topics: tuple[str, ...]) -> None:
        super().__init__()
        self.deleted: dict[str, int] = {}
        self.followed_ms = 0
        self._known_queues = queues
        self._other_topics = other_topics

    def take(
        self, content: bytes, at: int, indexed: int, last_offsets: dict[Any, int] | None = None, dispatched: int = 0
    ) -> int:
        """Add the entries and keys of the plain records from `at` on.

        Args:
            indexed: the log offset up to which the index knows the keys.
            last_offsets: the log offset of the last message of queues, if they may know some of the records. Then the
                next record of a queue that is not in it is not plain.
            dispatched: the log offset before which only records are plain that their queues know.
        Returns: the end of the last one.
        """
        reader = Reader(content)
        record, topic = reader.record, reader.topic
        queues = self._queues_of(topic)
        while reader.read(at):
            if not reader.transaction & _PREPARED:
                if topic is not reader.topic:
                    topic = reader.topic
                    queues = self._queues_of(topic)
                if not self._add_plain(reader, queues, last_offsets, dispatched):
                    break
            if reader.offset > indexed:
                reader.add_keys(self.keys)
            self.followed_ms = record.store_timestamp_ms()
            at = record.end
        return at

    def _queues_of(self, topic: bytes) -> dict[int, Any]:
        """The queues of a topic that plain records may belong to."""
        name = topic.decode()
        if name in self._other_topics or name in self.deleted:
            return {}
        return self._known_queues.get(name, {})

    def _add_plain(
        self, reader: Reader, queues: dict[int, Any], last_offsets: dict[Any, int] | None, dispatched: int
    ) -> bool:
        """Add the entry of the record, if its queue lacks it. Returns False if it is not plain."""
        source, record = reader.source, reader.record
        queue = queues.get(source.i32(record.at + QUEUE_ID_AT))
        if queue is None:
            return False
        if last_offsets is not None:
            last_offset = last_offsets.get(queue)
            if last_offset is None:
                return False
            if reader.offset <= last_offset:
                return True
            if reader.offset < dispatched:
                return False
        if source.i64(record.at + QUEUE_OFFSET_AT) != queue.next_offset:
            return False
        self.add(queue, reader.offset, record.size, reader.scanner.tags_code)
        if last_offsets is not None:
            last_offsets[queue] = reader.offset
        return True


def add_keys(content: bytes, at: int, keys: KeyHashes) -> int:
    """Add the keys of the plain records from `at` on. Returns the end of the last one."""
    reader = Reader(content)
    while reader.read(at):
        reader.add_keys(keys)
        at = reader.record.end
    return at
