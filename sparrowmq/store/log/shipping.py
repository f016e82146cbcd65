"""The log on its way to a slave: in pieces of any size, with nothing damaged in them.

    left ■■■■■■|····················|              |············
               ^ what leaves next   ^ sound        ^ proved_from

What was written since the start, or proved by it, leaves as it is. Of what is older whole records are compared with
their checksums, a quarter of a mebibyte ahead of what leaves. Unlike Java, which ships what rotted, and its slaves keep
it.

A slave may begin anywhere, and a piece may end anywhere. So where a record begins is looked for before the place at
which a slave begins, as far as the largest of them reaches.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import CorruptRecord
from sparrowmq.store.log.scrub import Scrubber, look

_REACHES: Final = (
    64 << 10,
    8 << 20,
)  # bytes before a place in which a record begins: mostly, and nearly always


class Shipping:
    """What may leave to one slave.

    Args:
        scrubber: of the store; it tells of damage.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        self._scrubber = scrubber
        self._log = scrubber.log
        self._sound = -1  # a record begins there, and those before it were looked at; -1 if none was

    def reach(self, offset: int, size: int) -> int:
        """How many of `size` bytes from `offset` on may leave, one at least.

        Raises:
            CorruptRecord: what lies there is damaged.
        """
        if not self._log.begin <= offset < self._log.proved_from:
            return size
        if self._sound < offset:
            self._sound = self._record_from(offset)
        if self._sound == offset:
            self._sound = self._behind(offset)
        return min(size, self._sound - offset)

    def _behind(self, offset: int) -> int:
        """Where sound records end, of which the first begins at `offset`. Raises: CorruptRecord."""
        following, problem = look(self._log, offset)
        if problem is None:
            return following
        self._scrubber.tell(offset, problem)
        file = self._log.row.find(offset)
        raise CorruptRecord(file.path if file is not None else self._log.row.folder, offset, "a sound record")

    def _record_from(self, offset: int) -> int:
        """Where the first record begins that does so at `offset` or behind it. Raises: CorruptRecord."""
        at = self._record_before(offset)
        while at < offset:
            following, problem = look(self._log, at)
            if problem is not None:  # what leaves matters alone, so damage does that reaches into it
                sound = self._sound_record(at, offset)
                following = self._behind(at) if sound is None else sound
            at = following
        return at

    def _record_before(self, offset: int) -> int:
        """Where a record begins, at `offset` or not too far before it."""
        file = self._log.row.find(offset)
        begin = file.begin if file is not None else self._log.begin
        for reach in _REACHES:
            if offset - reach <= begin:
                break
            sound = self._sound_record(offset - reach, offset)
            if sound is not None:
                return sound
        return begin  # with a record begins each file

    def _sound_record(self, after: int, last: int) -> int | None:
        """Where the first sound record lies behind one offset and not behind the other."""
        found = self._log.next_sound(after, last + 1)  # which looks a little further
        return found if found is not None and found <= last else None
