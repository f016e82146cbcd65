"""The progress of the delay levels, found in the log: no delayed message is doubled or skipped after a crash.

    delayOffset.json     the offset of each level, by the log before an offset X; the same for a few earlier X
    the log from X on    each delivered record names its place in SCHEDULE_TOPIC_XXXX, in its prepared offset
                         ── the progress: the highest place of each level, or the offset in the file

A level delivers in order, so one record says that everything before its place is delivered too. A start takes the last
point that is in the log. The file can be newer than the log: after a failover that cut the log, and after a power cut
on a disk that lost synced bytes. Points after the log's end are dropped before the log grows again. The earlier points
are 16 MiB, 32 MiB, 64 MiB and so on back. So a start that drops points reads at most four times what the log has lost.

A point is saved in each save period in which messages were delivered, or in which the log grew by `MOST_LOG_BYTES`
while messages wait. So a start reads the log of one period and 16 MiB. It reads in slices, while the broker serves. If
no message waits, it reads nothing. A slave takes a point of its master once its own log is on disk up to there.

A file of Java's has no X. Its offsets count, and so do the delivered records after the first message that waits by
them. Records that Java delivered have no mark. So after Java ran, a crash of its process may double messages, as with
Java alone. Without any file, a start reads the log from the oldest message that was ever delayed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from sparrowmq.broker.saved_state import saved_content
from sparrowmq.core import snapshot
from sparrowmq.protocol.delay_levels import delivered, level_of
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.requests.offset_bodies import DelayOffsets, DelayPoint
from sparrowmq.protocol.wire import json
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

MOST_LOG_BYTES: Final = 16 << 20


class DelayProgress:
    """The saved points of delayOffset.json, and the search for later progress in the log.

    Attributes:
        is_found: whether the log was read to the end that it had at the start.
    Raises:
        BadStore: neither the file nor its copies can be read.
    """

    def __init__(self, store: MessageStore, path: Path) -> None:
        self.is_found = False
        self._store = store
        saved = saved_content(path, DelayOffsets, json.decode) or DelayOffsets()
        newest = DelayPoint(saved.log_offset or 0, saved.offset_table)
        points: list[DelayPoint] = [newest, *(saved.earlier or ())]
        in_log = [point for point in points if point.log_offset <= store.end]
        self._points = in_log or [DelayPoint()]
        self._at: int | None = None  # the offset from which the log is not read yet; None before the search
        self._end = store.end
        self._marks: set[int] = set()
        self._awaited: DelayPoint | None = None  # the master's, until our log is on disk up to there
        if len(in_log) < len(points):
            log.warning("the progress of delay levels is newer than the log; it is found in the log")
            self._save_at_once(path)

    @property
    def saved(self) -> DelayPoint:
        newest: DelayPoint = self._points[0]
        return newest

    def content(self) -> DelayOffsets:
        """Return the content of delayOffset.json, which is also the answer to GET_ALL_DELAY_OFFSET."""
        newest, *earlier = self._points
        return DelayOffsets(dict(newest.offset_table), log_offset=newest.log_offset or None, earlier=earlier or None)

    def find_some(self) -> bool:
        """Read some of the log; return whether the search is complete. Raises: BadStore, the next call tries again."""
        if self._at is None:
            self._at = self._search_from()
        if self._at < self._end:
            self._at = self._store.collect_prepared(self._at, self._end, self._marks)
        self.is_found = self._at >= self._end
        return self.is_found

    def exact_offsets(self) -> dict[int, int]:
        """Return the exact offset of each level, once `is_found`."""
        offsets = dict(self.saved.offset_table)
        for queue_id, queue_offset in filter(None, map(delivered, self._marks)):
            level = level_of(queue_id)
            offsets[level] = max(offsets.get(level, 0), queue_offset + 1)
        self._marks.clear()
        return offsets

    def add(self, point: DelayPoint) -> None:
        """Add a point, which is exact: all that was delivered before its log offset, and the log is on disk there."""
        if point.log_offset < self.saved.log_offset:
            return
        by_distance: dict[int, DelayPoint] = {}
        for each in self._points:  # of each distance, from 16 MiB to 32, to 64 ..., the oldest stays
            by_distance[((point.log_offset - each.log_offset) // MOST_LOG_BYTES).bit_length()] = each
        self._points = [point, *(each for each in by_distance.values() if each.log_offset)]

    def follow(self, progress: DelayOffsets) -> bool:
        """Take over the master's progress; return whether the file has to be saved."""
        if progress.log_offset is None:  # Java's
            is_new = progress.offset_table != self.saved.offset_table or self.saved.log_offset != 0
            self._points = [DelayPoint(0, dict(progress.offset_table))]
            return is_new
        is_new = self.reach()
        if self._awaited is None and progress.log_offset > self.saved.log_offset:
            self._awaited = DelayPoint(progress.log_offset, dict(progress.offset_table))
        return self.reach() or is_new

    def reach(self) -> bool:
        """Take the awaited point if our log is on disk up to there; return whether that was so."""
        point = self._awaited
        if point is None or self._store.flushed.value < point.log_offset:
            return False
        self._awaited = None
        is_new = point.offset_table != self.saved.offset_table
        if is_new or point.log_offset - self.saved.log_offset >= MOST_LOG_BYTES:
            self.add(point)
            return True
        return False

    def _search_from(self) -> int:
        """Return the offset from which the log is read: of a record, or the log's end if nothing waits."""
        begin = self.first_waiting(self.saved.offset_table)
        return self._end if begin is None else max(self.saved.log_offset, begin, self._store.begin)

    def first_waiting(self, offsets: dict[int, int]) -> int | None:
        """Return the log offset of the first message that waits; None if none does. Raises: BadStore.

        Args:
            offsets: how far each level is delivered.
        """
        begins = []
        for queue in self._store.queues.of_topic(SCHEDULE_TOPIC):
            offset = max(offsets.get(level_of(queue.queue_id), 0), queue.min_offset)
            if offset < queue.max_offset:
                entry = queue.entry(offset)
                begins.append(entry.offset if entry is not None else 0)
        return min(begins, default=None)

    def _save_at_once(self, path: Path) -> None:
        """Drop the points from the file before the log grows: later they would look as if they fitted it."""
        try:
            snapshot.save(path, self.content(), encode=json.dumps)
        except OSError as error:
            log.warning("%s cannot be written: %s", path, error)
