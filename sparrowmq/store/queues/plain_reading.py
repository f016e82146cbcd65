"""Read a queue for pulls that the kernel took (kernel/pulls.py): what nearly every read is, and nothing else.

    entries, kept for some pulls ── PullLane.select ── one read of a part of the log, if it is cached ── PullAnswers

Anything else takes the long way through queue_reading.py and cold_reads.py: no message, one that is gone or damaged,
records far apart, and a part of the log that would be read from the disk.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.kernel.pulls import CHOSEN, LACKS_ENTRIES, Pull, PullAnswers, PullLane
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue

_KEPT_ENTRIES: Final = 256  # read at once, 20 bytes each: enough for eight usual pulls
_MAX_KEEPERS: Final = 1024  # lanes that keep entries
_BUFFER_BYTES: Final = 640 << 10  # the part of the log of nearly every pull


class QueueLane(PullLane):
    """The lane of pulls from one queue. `commits`: they also say which message the group has consumed."""

    __slots__ = ("commits", "group", "queue")

    def __init__(self, *limits: object, queue: ConsumeQueue, group: str, commits: bool) -> None:
        super().__init__(*limits)  # type: ignore[arg-type]
        self.queue = queue
        self.group = group
        self.commits = commits


class PlainReader:
    """Answers plain pulls from one log."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._keepers: list[PullLane] = []

    def answer(self, pull: Pull, lane: QueueLane, answers: PullAnswers) -> bool:
        """Add the answer to a pull. Returns False, and nothing has changed, if it needs the long way."""
        queue, offset, log = lane.queue, pull.queue_offset, self._log
        min_offset, max_offset = queue.min_offset, queue.end.value
        if not min_offset <= offset < max_offset:
            return False
        file_end = offset - offset % queue.file_entries + queue.file_entries
        end = min(offset + lane.max_scanned, max_offset, file_end)
        selected = lane.select(offset, end)
        if selected == LACKS_ENTRIES:
            self._keep_entries(lane, offset)
            selected = lane.select(offset, end)
        if selected != CHOSEN:
            return False
        begin = lane.begin
        size = lane.end - begin
        records = self._buffer[:size] if size <= _BUFFER_BYTES else memoryview(bytearray(size))
        if not log.read_cached(begin, records):
            return False
        if begin < log.verified_from and not lane.are_sound(records, log.verified_from, log.crc_from):
            return False
        answers.add(pull, records, min_offset, max_offset)
        return True

    def _keep_entries(self, lane: QueueLane, offset: int) -> None:
        if len(self._keepers) >= _MAX_KEEPERS:
            for keeper in self._keepers:
                keeper.drop()
            self._keepers.clear()
        self._keepers.append(lane)
        lane.keep(offset, lane.queue.stored_entries(offset, max(_KEPT_ENTRIES, lane.max_scanned)))
