"""Add the keys to the index that it lacks because the disk had no room for its next file. They come from the log.

    put ── no room ── `short`: later keys are dropped ── each second: `fill_some`
                         room again: the log from `lacks_from` on, 256 KiB at a time ── its end ── `put` goes on

A store that is closed or killed before that builds the whole index again at its next start, as far as there is room.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import DiskFull
from sparrowmq.protocol.messages.record import physical_offset
from sparrowmq.store.keys.index import Index
from sparrowmq.store.keys.key_columns import Keys
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.queue_builder import QueueBuilder

_CHUNK: Final = 1 << 18  # bytes of the log: some milliseconds


class Filling:
    """The filling of one store's index.

    Args:
        index: None without one.
    """

    def __init__(self, index: Index | None, log: CommitLog, dispatch: QueueBuilder) -> None:
        self._index = index
        self._log = log
        self._dispatch = dispatch

    @property
    def lacks_from_ms(self) -> int:
        """The time from which on the index lacks keys; 0 if it lacks none."""
        return (self._index.lacks_from_ms or 0) if self._index is not None else 0

    @property
    def short(self) -> DiskFull | None:
        """Why keys are missing that `fill_some` can add; None if there are none."""
        return self._index.short if self._index is not None and not self._index.is_damaged else None

    def fill_some(self) -> bool:
        """Add some of the missing keys; return whether more can be added now."""
        index, log = self._index, self._log
        if index is None or self.short is None or log.written < log.end:
            return False
        begin, end, keys = max(index.lacks_from, log.begin), log.end, Keys()
        following = begin + self._dispatch.keys_of(log.chunk(begin, min(_CHUNK, end - begin)), keys)
        if following == begin < end:  # a blank, a record larger than that, or damage
            record = next(log.sound_records(begin, end), None)
            following = end
            if record is not None:
                following = physical_offset(record) + len(record)
                self._dispatch.keys_of(bytes(record), keys)
        is_last = following >= end
        had_room = index.fill(keys, following, is_last)
        if had_room and is_last:
            self._dispatch.keys = Keys()  # they are in the index now
        return had_room and not is_last
