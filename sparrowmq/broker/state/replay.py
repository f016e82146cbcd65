"""Read the journal at a start, from its newest whole snapshot on.

    entries of the queue, backwards ── the newest `begin` that has an `end` ── all records from there on

Each file in `config` names the record of the journal up to which it has the state (`JournalMark`). Which one counts:

    the log has no whole snapshot             the file: Apache's store, or one of ours from before the journal
    the file is newer by its version, and     the file: Apache's broker or an operator has changed it (that of offsets
    has no mark or no checksum                has no version: without a checksum it is newer)
    the file has what the log could not take  the file, at a single broker; a member's log decides for all
    otherwise                                 the log
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparrowmq.broker.queue_records import records_from
from sparrowmq.broker.state.change import BEGIN_CODE, Change, Tables
from sparrowmq.errors import BadStore, CorruptRecord, RemoteProtocolError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger(__name__)

_READ: Final = 512


class ReplayedState:
    """The state that the log has at a start.

    Attributes:
        begin: the log offset of the newest whole snapshot; None if the log has none.
        snapshot_position: the queue offset of its first record.
        snapshot_bytes: the size of the records from its begin to its end.
        changed_bytes: the size of the records after it.
        position: the queue offset to read on at.
    """

    def __init__(self, position: int) -> None:
        self.tables = Tables()
        self.begin: int | None = None
        self.snapshot_position = position
        self.snapshot_bytes = self.changed_bytes = 0
        self.position = position

    def take(self, position: int, at: int, size: int, change: Change) -> None:
        """Take the next record from a snapshot's begin on."""
        if self.tables.is_whole:
            self.changed_bytes += size
        else:
            self.snapshot_bytes += size
        if self.begin is None:
            self.begin, self.snapshot_position = at, position
        self.tables.apply(change, at)
        self.position = position + 1

    def counts(self, saved: Saved, version: DataVersion, trusts_files: bool) -> bool:
        """Whether the log counts for a table, and not its file.

        Args:
            saved: the content of the file.
            version: of the table in the log.
            trusts_files: whether the file may have what the log lacks. A member's log decides for all members.
        """
        if self.begin is None:
            return False
        if saved.is_foreign and saved.version is None:
            return False
        mark = saved.mark
        if saved.is_foreign or mark is None:
            return saved.version is None or not _is_newer(saved.version, version)
        if not trusts_files:
            return True
        return mark.next <= (self.snapshot_position if mark.is_ahead else self.position)


class Saved(NamedTuple):
    """A file of `config`.

    Attributes:
        is_foreign: whether another program has written it, or an operator: it has no checksum.
        version: of its table; None if it has none, or there is no readable file.
        mark: the part of the journal that it has; None if it was written without a journal.
    """

    is_foreign: bool = False
    version: DataVersion | None = None
    mark: JournalMark | None = None


def recover(store: MessageStore) -> ReplayedState:
    """Read the state that the log has. If that fails, the log has none, and the files count."""
    queue = store.queues.get(STATE_TOPIC, 0)
    if queue is None:
        return ReplayedState(0)
    try:
        for start in _begins(queue):
            found = ReplayedState(start)
            for position, at, size, change in changes(store, start):
                found.take(position, at, size, change)
            if found.tables.is_whole:
                return found
    except (CorruptRecord, BadStore, RemoteProtocolError) as bad:
        log.error(
            "topics, groups and offsets cannot be read from the log: %s; the files in config are read instead",
            bad,
        )
        return ReplayedState(queue.max_offset)
    return ReplayedState(queue.min_offset)


def changes(store: MessageStore, position: int) -> Iterator[tuple[int, int, int, Change]]:
    """Yield the records from a queue offset on: each one's queue offset, log offset, size and content.

    Raises: CorruptRecord, BadStore, RemoteProtocolError, one cannot be read.
    """
    for message in map(record.decode, records_from(store, STATE_TOPIC, 0, position)):
        change = Change.of(message.body)
        yield message.queue_offset, message.physical_offset, message.store_size, change


def _begins(queue: ConsumeQueue) -> Iterator[int]:
    """Yield the queue offsets at which snapshots begin, the newest first."""
    high = queue.max_offset
    while high > queue.min_offset:
        last = high - 1
        start = max(queue.min_offset, high - _READ, last - last % queue.file_entries)
        entries = queue.read(start, high - start)
        for i in range(len(entries) - 1, -1, -1):
            if entries.tags_code(i) == BEGIN_CODE and not entries.is_gap(i):
                yield start + i
        high = start


def _is_newer(version: DataVersion, than: DataVersion) -> bool:
    return (version.counter, version.timestamp) > (than.counter, than.timestamp)
