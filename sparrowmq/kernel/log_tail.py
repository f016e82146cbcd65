"""The ends of log and queues: what was added, and is not in the files yet.

    record ── LogTail.append ──────> the burst, for one write                     store/log/commit_log.py
    place ─── NewEntries.add ──────> QueueTail: an entry of 20 bytes              store/queues/consume_queue.py
    keys ──── KeyHashes.add ───────> hash, offset, time: 24 bytes for each key    store/index.py

The classes of the store extend these by files. So a message is added in one place, whether a lane of the kernel takes
it or a handler does.
"""

from __future__ import annotations

from typing import Any

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.index_layout import KEY_BYTES
from sparrowmq.kernel.string_hash import positive

_SPACE = 0x20


class LogTail:
    """The end of the log.

    Attributes:
        end: the offset at which the next record begins.
        limit: the highest offset at which a record may end without a new file; -1 if nothing may be appended.
        burst: the records that are not written yet. They end at `end`.
        now_ms: the store timestamp of the records that lanes take now.
    """

    __slots__ = ("burst", "end", "limit", "now_ms")

    def __init__(self) -> None:
        self.burst = Out()
        self.end = 0
        self.limit = -1
        self.now_ms = 0

    def append(self, record: bytes) -> None:
        """Append a record. It must not end after `limit`."""
        self.burst.raw(record)
        self.end += len(record)


class QueueTail:
    """The end of a queue.

    Attributes:
        next_offset: the queue offset of the next message: those in files plus the unwritten ones.
        added_bytes: the bytes of the messages added since the store was opened.
        unwritten: the entries of messages that are not in a file yet.
    """

    __slots__ = ("added_bytes", "next_offset", "unwritten")

    def __init__(self) -> None:
        self.unwritten = Out()
        self.next_offset = 0
        self.added_bytes = 0

    def add(self, offset: int, size: int, tags_code: int) -> None:
        """Add the entry of the queue's next message, without writing it."""
        unwritten = self.unwritten
        unwritten.i64(offset)
        unwritten.i32(size)
        unwritten.i64(tags_code)
        self.next_offset += 1
        self.added_bytes += size

    @property
    def has_unwritten(self) -> bool:
        return self.unwritten.size > 0


class KeyHashes:
    """Keys on their way into the index, in the order of the log: for each the hash of `topic#key` made positive, its
    record's offset, and the record's store timestamp, as int64.
    """

    __slots__ = ("columns",)

    def __init__(self) -> None:
        self.columns = Out()

    def __len__(self) -> int:
        return self.columns.size // KEY_BYTES

    def add(self, key_hash: int, offset: int, stored_ms: int) -> None:
        columns = self.columns
        columns.i64(key_hash)
        columns.i64(offset)
        columns.i64(stored_ms)

    def add_words(self, topic_hash: int, source: In, begin: int, end: int, offset: int, stored_ms: int) -> None:
        """Add the words in ASCII that spaces separate from `begin` to `end`. `topic_hash` is that of `topic#`."""
        at = begin
        while at < end:
            if is_space(source.u8(at)):
                at += 1
                continue
            word_at = at
            while at < end and not is_space(source.u8(at)):
                at += 1
            self.add(positive(source.hash31(word_at, at, topic_hash)), offset, stored_ms)


class NewEntries:
    """The entries and keys that are not in their files yet.

    Attributes:
        queues_to_write: the queues that have unwritten entries, each a `QueueTail`.
        keys: the keys that are not in the index yet; `has_keys` says whether there is an index.
        added, added_bytes: the messages since the store was opened, and their bytes.
    """

    __slots__ = ("added", "added_bytes", "has_keys", "keys", "queues_to_write")

    def __init__(self, has_keys: bool = True) -> None:
        self.has_keys = has_keys
        self.queues_to_write: list[Any] = []
        self.keys = KeyHashes()
        self.added = 0
        self.added_bytes = 0

    def add(self, queue: QueueTail, offset: int, size: int, tags_code: int) -> None:
        """Add the entry of a queue's next message."""
        if queue.unwritten.size == 0:
            self.queues_to_write.append(queue)
        queue.add(offset, size, tags_code)
        self.added += 1
        self.added_bytes += size


def is_space(byte: int) -> bool:
    """Whether `str.split` splits at this ASCII byte."""
    return byte == _SPACE or 9 <= byte <= 13 or 0x1C <= byte <= 0x1F
