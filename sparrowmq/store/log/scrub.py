"""Search for damage: read the log over and over, slowly, and compare each record with its checksums.

    begin ─────────────── position ─────────── written     scrubRate MiB per second, from the oldest byte to the newest,
      └── at most twice a minute ──┘                       then from the oldest again

Records that no client reads may be damaged for years, and so may the copy that could repair them. Damage is reported
once: the file, the place, and the way to repair it. From then on each record is checked at every read, even if it was
written since the start. So no damaged record is served.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.kernel.crc import crc32
from sparrowmq.kernel.record_layout import LONGEST_HEAD, PREFIX, PROPERTY_CRC_SIZE
from sparrowmq.kernel.records import Passed, property_crc
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.messages.record import physical_offset
from sparrowmq.store.layout import BLANK_SIZE
from sparrowmq.store.log.log_reader import LogReader

log = logging.getLogger(__name__)

STEP_BYTES: Final = 256 << 10  # the event loop has other work
ROUND_S: Final = 30.0


def check_records(commit_log: LogReader, begin: int) -> tuple[int, str | None]:
    """Return the end of the sound records that begin at `begin`. It checks at least one, and up to 256 KiB. The second
    value describes the damage of the first record, and the first value is `begin` then.
    """
    return at_once(check_records_in_steps(commit_log, begin))


def check_records_in_steps(commit_log: LogReader, begin: int) -> Steps[tuple[int, str | None]]:
    """As `check_records`; a record larger than 256 KiB takes several steps."""
    chunk = commit_log.chunk(begin, STEP_BYTES)
    following = begin + commit_log.count_sound(chunk, begin, Passed())
    if following == begin:
        following = yield from _end_of_large(commit_log, begin)
    if following > begin:
        return following, None
    # A blank, a large record of Java, or damage.
    _, following, problem = commit_log.examine(begin)
    return (following, None) if problem is None else (begin, problem)


def _end_of_large(commit_log: LogReader, begin: int) -> Steps[int]:
    """Return the end of a record that is larger than a step and whose property CRC fits; `begin` if it is none."""
    file, head = commit_log.row.find(begin), commit_log.chunk(begin, LONGEST_HEAD)
    size, _ = PREFIX.unpack_from(head) if len(head) == LONGEST_HEAD else (0, 0)
    if file is None or not STEP_BYTES < size <= file.end - BLANK_SIZE - begin:
        return begin
    crc_at, crc, at = begin + size - PROPERTY_CRC_SIZE, 0, begin
    while at < crc_at:
        piece = commit_log.chunk(at, min(STEP_BYTES, crc_at - at))
        if not piece:  # its file was deleted
            return begin
        crc, at = crc32(piece, crc), at + len(piece)
        yield
    fits = commit_log.chunk(crc_at, PROPERTY_CRC_SIZE) == property_crc(crc)
    return begin + size if fits and physical_offset(head) == begin else begin


class Scrubber:
    """Reads through a log and checks it."""

    def __init__(self, commit_log: LogReader) -> None:
        self.position = commit_log.begin  # the offset that this round has reached
        self.rounds = 0  # the number of completed rounds
        self.checked_bytes = 0  # the number of bytes checked since the start
        self.damaged: dict[int, int] = {}  # the begin of each damage, and the next sound record after it
        # Likewise, of damage that starts have fenced off, and that no other broker has replaced yet.
        self.fenced: dict[int, int] = {}
        self.log = commit_log  # the log that it checks
        self._steps: Steps[tuple[int, str | None]] | None = None  # of the check of the records at `_checked_at`
        self._checked_at = 0

    def step(self) -> bool:
        """Check the next 256 KiB. Returns False at the end of the log, and continues at its begin."""
        begin = max(self.position, self.log.begin)
        if begin >= self.log.written:
            self.rounds += 1
            self.position = self.log.begin
            self._forget_deleted()
            return False
        if self._steps is None or self._checked_at != begin:
            self._steps, self._checked_at = check_records_in_steps(self.log, begin), begin
        try:
            next(self._steps)
        except StopIteration as done:
            self._steps = None
            following, problem = done.value
            self.position = following if problem is None else self.report(begin, problem)
            self.checked_bytes += self.position - begin
        return True

    def review(self) -> None:
        """Report the damage that readers have found, and forget what was deleted."""
        for offset in sorted(self.log.suspects):
            if self.log.begin <= offset < self.log.written:
                _, problem = check_records(self.log, offset)
                if problem is not None:
                    self.report(offset, problem)
        self.log.suspects.clear()
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        for places in (self.damaged, self.fenced):
            for at in [at for at in places if at < self.log.begin]:
                del places[at]

    def report(self, begin: int, problem: str) -> int:
        """Report that the log is damaged from `begin` on, and check every record at each read from now on. Returns: the
        begin of the next sound record.
        """
        commit_log = self.log
        survivor = commit_log.next_sound(begin, commit_log.written)
        end = commit_log.written if survivor is None else survivor
        if begin not in self.damaged:
            self.damaged[begin] = end
            commit_log.distrust()
            log.error(
                "%s is damaged from offset %d to %d of the log (%s); it is not served. Stop the broker and "
                "take what is missing from a slave, which has it at the same place: "
                "`sparrowmq store repair FOLDER -c FILE --from HOST:PORT`; without one that fences the damage off",
                *(commit_log.row.path_at(begin), begin, end, problem),
            )
        return end
