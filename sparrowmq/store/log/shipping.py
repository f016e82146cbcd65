"""Send the log to a slave: in pieces of any size, without damaged records.

    left ■■■■■■|····················|              |············
               ^ next to leave      ^ sound        ^ proved_from

Bytes that were written or checked since the start are sent as they are. Older records are compared with their
checksums, 256 KiB ahead of the bytes that leave. Unlike Java, which sends damaged records, so that its slaves store
them.

A slave may begin anywhere, and a piece may end anywhere. So a search before the slave's first offset finds the begin of
a record. It reaches as far back as the largest record.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import CorruptRecord
from sparrowmq.store.log.scrub import Scrubber, look

_REACHES: Final = (
    64 << 10,
    8 << 20,
)  # bytes to search back for the begin of a record: enough mostly, and nearly always


class Shipping:
    """The bytes of the log that may be sent to one slave.

    Args:
        scrubber: of the store; it reports damage.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._log = scrubber.log
        self._sound = -1  # a record begins there, and the records before it were checked; -1 if none was

    def reach(self, offset: int, size: int) -> int:
        """Return how many of `size` bytes from `offset` on may be sent, at least one.

        Raises: CorruptRecord, the record at `offset` is damaged.
        """
        if not self._log.begin <= offset < self._log.proved_from:
            return size
        if self._sound < offset:
            self._sound = self._record_from(offset)
        if self._sound == offset:
            self._sound = self._behind(offset)
        return min(size, self._sound - offset)

    def _behind(self, offset: int) -> int:
        """Return the end of the sound records of which the first begins at `offset`. Raises: CorruptRecord."""
        following, problem = look(self._log, offset)
        if problem is None:
            return following
        self._scrubber.tell(offset, problem)
        file = self._log.row.find(offset)
        raise CorruptRecord(file.path if file is not None else self._log.row.folder, offset, "a sound record")

    def _record_from(self, offset: int) -> int:
        """Return the begin of the first record at or after `offset`. Raises: CorruptRecord."""
        at = self.record_before(offset)
        while at < offset:
            following, problem = look(self._log, at)
            if problem is not None:  # only damage that reaches into the bytes to send matters
                sound = self._sound_record(at, offset)
                following = self._behind(at) if sound is None else sound
            at = following
        return at

    def record_before(self, offset: int) -> int:
        """Return the begin of a record at `offset`, or not too far before it."""
        file = self._log.row.find(offset)
        begin = file.begin if file is not None else self._log.begin
        for reach in _REACHES:
            if offset - reach <= begin:
                break
            sound = self._sound_record(offset - reach, offset)
            if sound is not None:
                return sound
        return begin  # each file begins with a record

    def _sound_record(self, after: int, last: int) -> int | None:
        """Return the begin of the first sound record after `after` and at most at `last`."""
        found = self._log.next_sound(after, last + 1)  # it searches a little further than `last`
        return found if found is not None and found <= last else None
