"""Retention: delete the log's oldest files when they are old enough, or when the disk is almost full; delete topics.

    disk used    up to 75 %      delete files whose last message is older than 72 h, in the hour of `deleteWhen`
                 75 % to 85 %    delete these files at any hour
                 from 85 %       delete the oldest files, however young
                 from 90 %       also take no message

The file that is being written is never deleted, nor a file with a record that is still needed (`RetentionHold`): a
delayed message, or a pending timer. A slave also keeps what its master needs. Afterwards queues and index remove the
entries that pointed into deleted files. Old bytes in set-aside go too (log/set_aside.py). Source:
DefaultMessageStore.CleanCommitLogService, Java 4.9.8. Unlike Java, a file is as old as its last message: a copied store
keeps its age.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from enum import Enum
from typing import Final

from sparrowmq.errors import DiskFull
from sparrowmq.loop.slices import Steps
from sparrowmq.store.appender import Appender
from sparrowmq.store.checkpoint import Checkpointer
from sparrowmq.store.index import Index
from sparrowmq.store.log import set_aside
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.flush import Flusher
from sparrowmq.store.queue_builder import QueueBuilder
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import QueueEnds
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_MAX_FILES_PER_RUN: Final = 10  # of one run; the next one is ten seconds away


class Cleaning(Enum):
    """The work that a caller wants done at once."""

    NOTHING = 0
    QUEUES = 1  # remove entries of queues and index whose records are no longer in the log
    FILES = 2  # also delete the files of the log that are old enough


class RetentionHold:
    """Keeps the log from some offset on."""

    __slots__ = ("delete_before", "needed_from")

    def __init__(self) -> None:
        # Each returns the offset of the first record that it needs; None if it needs none.
        self.needed_from: list[Callable[[], int | None]] = []
        self.delete_before = 0  # the files before this offset should be deleted

    def begin(self) -> int | None:
        """Return the offset of the first record that is needed; None if none is. Raises: BadStore."""
        offsets = [needed() for needed in self.needed_from]
        return min((offset for offset in offsets if offset is not None), default=None)


class Retention:
    """Deletes old messages. `full_error` says why the disk has no room for messages."""

    def __init__(
        self,
        current_settings: Callable[[], StoreSettings],
        vfs: Vfs,
        log: CommitLog,
        queues: QueueTable,
        index: Index | None,
        checkpointer: Checkpointer,
        hold: RetentionHold,
    ) -> None:
        self.full_error: DiskFull | None = None
        self.is_requested = asyncio.Event()  # set when a run should not wait for its time
        self._requested = Cleaning.NOTHING
        self._current_settings = current_settings  # an operator may change them
        self._vfs = vfs
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpointer = checkpointer
        self._hold = hold
        # The queues that still have entries of deleted messages. A run lets each of them delete what it can.
        self._unfinished: list[ConsumeQueue] = []
        self._cleaned_ms = 0  # when set-aside was cleaned last

    def request(self, cleaning: Cleaning) -> None:
        """Ask for a run within the next moments."""
        self._requested = max(self._requested, cleaning, key=lambda kind: kind.value)
        self.is_requested.set()

    def take_request(self) -> Cleaning:
        """Return what callers of `request` have asked for since the last call."""
        requested, self._requested = self._requested, Cleaning.NOTHING
        self.is_requested.clear()
        return requested

    def run(self, now_ms: int, cleaning: Cleaning = Cleaning.NOTHING) -> Iterator[None]:
        """Delete old messages, with a pause after each piece of work; `cleaning` is wanted now, at any hour. Raises:
        OutOfResources, the next run continues.
        """
        settings = self._current_settings()
        used_ratio = self._vfs.used_ratio(settings.layout.commit_log)
        self.full_error = None
        if used_ratio >= settings.disk_full_ratio:
            self.full_error = DiskFull(
                f"{used_ratio:.0%} of the disk of {settings.layout.commit_log} is used, "
                f"from {settings.disk_full_ratio:.0%} on no message is taken; free some space, writes go on by "
                "themselves"
            )
        expired_count = self.count_expired(now_ms, used_ratio, cleaning)
        if expired_count or cleaning is not Cleaning.NOTHING:
            self._unfinished = list(self._queues)
        if expired_count:
            self._checkpointer.note_deletion_before(self._log.row.files[expired_count].begin)
        for _ in range(expired_count):
            self._log.row.drop_first()
            yield
        yield from self.clean_queues()
        is_short = used_ratio >= settings.disk_force_ratio
        if is_short or abs(now_ms - self._cleaned_ms) >= _HOUR_MS:
            self._cleaned_ms = now_ms
            set_aside.delete_expired(self._vfs, settings, now_ms, self._log.begin, is_short=is_short)

    def count_expired(self, now_ms: int, used_ratio: float, cleaning: Cleaning = Cleaning.NOTHING) -> int:
        """Return the number of the oldest files to delete."""
        settings = self._current_settings()
        files = self._log.row.files
        hour = datetime.fromtimestamp(now_ms / 1000).hour
        is_time = hour in map(int, settings.delete_when.split(";")) or used_ratio >= settings.disk_clean_ratio
        is_time = is_time or cleaning is Cleaning.FILES
        max_count = len(files) if cleaning is Cleaning.FILES else _MAX_FILES_PER_RUN
        oldest_ms = now_ms - settings.retention_hours * _HOUR_MS
        needed_from = self._hold.begin()
        count = last_ms = 0
        # A file stays while the queue entries of its messages are not on disk: after a crash the queues' ends would be
        # unknown. The file that is being written stays too.
        for number, following in enumerate(files[1:], 1):
            if following.begin > self._checkpointer.written_offset or count == max_count:
                break
            last_ms = self._stored_ms(number, last_ms, now_ms)
            is_old = is_time and last_ms < oldest_ms
            if not is_old and used_ratio < settings.disk_force_ratio:
                break
            if needed_from is not None and following.begin > needed_from:
                self._hold.delete_before = following.begin
                break
            count += 1
        return count

    def clean_queues(self) -> Iterator[None]:
        """Let queues and index remove the entries whose records are no longer in the log."""
        begin, settings = self._log.begin, self._current_settings()
        unfinished = []
        while self._unfinished:
            queue = self._unfinished[-1]
            if self._queues.get(queue.topic, queue.queue_id) is queue:  # else it was deleted meanwhile
                queue.forget_before(begin, self._checkpointer.written_offset)
                next_file = queue.begin + settings.consume_queue_file_entries
                if next_file <= queue.min_offset and len(queue.paths) > 1:
                    unfinished.append(queue)  # its first file has only entries of deleted messages
            self._unfinished.pop()
            yield
        self._unfinished = unfinished
        if self._index is not None:
            self._index.forget_before(begin)

    def _stored_ms(self, number: int, earliest_ms: int, now_ms: int) -> int:
        """Return the store time of the first record of file `number`, close to that of the last record before it. A
        time in the future, or before those of older files, is ignored: the clock was wrong. The next plausible one
        counts.
        """
        for file in self._log.row.files[number:]:
            if file.begin >= self._log.end:
                return now_ms
            stored_ms = self._log.stored_ms(file.begin)
            if stored_ms is not None and earliest_ms <= stored_ms <= now_ms:
                return stored_ms
        return now_ms


class TopicDeletion:
    """Deletes topics of one store: their queues are gone in one step, and the files of the queues go in slices.

        in one step    the deletion is on disk (queue_ends.py) ── the table of queues has none of them any more
        in slices      the files of one queue after another

    So a reader finds no queue of the topic. A new topic of the same name may begin meanwhile, at offset 0: a queue that
    is created first deletes the files of the old queue in its place. After a crash the start deletes the files that are
    left.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        queue_builder: QueueBuilder,
        ends: QueueEnds,
        appender: Appender,
        flusher: Flusher,
        on_deleted: Callable[[], object],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._queue_builder = queue_builder
        self._ends = ends
        self._appender = appender
        self._flusher = flusher
        self._on_deleted = on_deleted

    def begin(self, topic: str) -> Steps[None]:
        """Delete the topic's queues now, for all readers. Returns the steps that delete their files. Raises:
        StoreFailed.
        """
        self._appender.publish()
        return self._detach_queues(topic, self._log.end, ())

    def steps(self, topic: str, before_offset: int) -> Steps[None]:
        """The steps that delete the queues whose last message is before a log offset; others are of a new topic. All go
        in one step; those before it only look for them. Raises: as `begin`.
        """
        self._appender.publish()
        seen_offsets: dict[ConsumeQueue, int] = {}
        new_queues: dict[ConsumeQueue, None] = {}
        for queue in self._queues.of_topic(topic):
            seen_offsets[queue] = queue.next_offset
            if self._queue_builder.last_entry(queue) >= before_offset:
                new_queues[queue] = None
            yield
        self._appender.publish()
        queues = self._queues.of_topic(topic)
        new_queues |= {queue: None for queue in queues if seen_offsets.get(queue) != queue.next_offset}
        yield from self._detach_queues(topic, before_offset, new_queues)

    def _detach_queues(self, topic: str, end: int, new_queues: Collection[ConsumeQueue]) -> Steps[None]:
        self._queue_builder.drop_unwritten(topic, new_queues)
        try:
            self._ends.delete(topic, end)
        except DiskFull as full:
            log.warning("the topic %s may come back after a crash: %s", topic, full)
        except OSError as error:
            raise self._flusher.fail(error) from error
        self._queue_builder.deleted[topic] = end
        self._queues.detach(topic, new_queues)
        return self._remove_files(topic)

    def _remove_files(self, topic: str) -> Steps[None]:
        yield from self._queues.removal_steps(topic)
        self._on_deleted()
