"""Send the log to a slave: in pieces of any size, without damaged records.

    left ■■■■■■|····················|              |············
               ^ next to leave      ^ sound        ^ verified_from

Bytes that were written or checked since the start are sent as they are. Older records are compared with their
checksums, 256 KiB ahead. Unlike Java, which sends damaged records. A slave may begin anywhere, so a search before its
first offset finds the begin of a record.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import CorruptRecord
from sparrowmq.loop.slices import Steps
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.log.scrub import STEP_BYTES, Scrubber, check_records_in_steps

_SEARCH_BACK_BYTES: Final = (
    64 << 10,
    8 << 20,
)  # bytes to search back for the begin of a record: enough mostly, and nearly always


class Shipping:
    """The bytes of the log that may be sent to one slave."""

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._log = scrubber.log
        self._sound_until = -1  # a record begins there, and the records before it were checked; -1 if none was
        self._steps: Steps[int] | None = None  # of the check of the records from `_checked_from` on
        self._checked_from = 0

    def reach(self, offset: int, size: int) -> int:
        """Return how many of `size` bytes from `offset` on may be sent; 0 if it has to be called again to know. A call
        checks about 256 KiB. Raises: CorruptRecord, the record at `offset` is damaged.
        """
        if not self._log.begin <= offset < self._log.verified_from:
            return size
        if self._sound_until <= offset and not self._check_step(offset):
            return 0
        return min(size, self._sound_until - offset)

    def _check_step(self, offset: int) -> bool:
        """Take a step of the check of the records at `offset`. Returns whether it was the last one."""
        steps = self._steps if self._checked_from == offset else None
        steps = steps or self._sound_end(offset)
        self._steps, self._checked_from = None, offset
        try:
            next(steps)
        except StopIteration as done:
            self._sound_until = done.value
            return True
        self._steps = steps
        return False

    def _sound_end(self, offset: int) -> Steps[int]:
        """Return the begin of a record behind `offset`, up to which all is sound."""
        at = offset if self._sound_until == offset else (yield from self._record_from(offset))
        return at if at > offset else (yield from self._end_of_sound(offset))

    def _end_of_sound(self, offset: int) -> Steps[int]:
        following, problem = yield from check_records_in_steps(self._log, offset)
        if problem is None:
            return following
        self._scrubber.report(offset, problem)
        raise CorruptRecord(self._log.row.path_at(offset), offset, "a sound record")

    def _record_from(self, offset: int) -> Steps[int]:
        at = yield from record_before(self._log, offset)
        while at < offset:
            following, problem = yield from check_records_in_steps(self._log, at)
            yield
            if problem is not None:  # only damage that reaches into the bytes to send matters
                sound = yield from _next_sound(self._log, at, offset)
                following = (yield from self._end_of_sound(at)) if sound is None else sound
            at = following
        return at


def record_before(commit_log: LogReader, offset: int) -> Steps[int]:
    """Return the begin of a record at `offset`, or not too far before it."""
    file = commit_log.row.find(offset)
    begin = file.begin if file is not None else commit_log.begin
    for reach in _SEARCH_BACK_BYTES:
        if offset - reach <= begin:
            break
        for after_offset in range(offset - reach, offset, STEP_BYTES):
            sound = yield from _next_sound(commit_log, after_offset, min(after_offset + STEP_BYTES, offset))
            if sound is not None:
                return sound
            yield
    return begin  # each file begins with a record


def _next_sound(commit_log: LogReader, after_offset: int, last: int) -> Steps[int | None]:
    """Return the begin of the first sound record after `after_offset` and at most at `last`."""
    for place in commit_log.places(after_offset, last + 1):
        if place > last:  # it searches a little further than `last`
            break
        _, problem = yield from check_records_in_steps(commit_log, place)
        if problem is None:
            return place
    return None
