"""Looks for rot: reads the log over and over, slowly, and compares each record with its checksums.

    begin ─────────────── position ─────────── written     scrubRate MiB a second, from the oldest byte to the newest,
      └── at most once an hour ──┘                         then from the oldest again

What nobody reads may rot for years, and the copy that it could be mended from with it. What is found is told once: file
and place, and how to mend it. From then on each record is checked whenever it is read, so that no damaged one is
served, those that were written since the start not either.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages.soundness import Passed
from sparrowmq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

STEP_BYTES: Final = (
    256 << 10
)  # a tenth of a millisecond compiled, a few from source: the loop has others to serve
ROUND_S: Final = 3600.0


def look(commit_log: CommitLog, begin: int) -> tuple[int, str | None]:
    """Where the records end that lie from `begin` on and are sound; it looks at one at least, and at some hundred KiB.

    With what is wrong with the first, if that is damaged: then it ends at `begin`.
    """
    chunk = commit_log.chunk(begin, min(STEP_BYTES, commit_log.written - begin))
    following = begin + commit_log.count_sound(chunk, begin, Passed())
    if following > begin:
        return following, None
    # A blank, a record larger than a step, or damage.
    try:
        record, following = commit_log.parse(begin)
        problem = commit_log.problem(record, begin) if record is not None else None
    except CorruptRecord as bad:
        following, problem = begin, f"there should be {bad.expected}"
    return (following, None) if problem is None else (begin, problem)


class Scrubber:
    """Goes through a log.

    Attributes:
        position: up to where it came in this round.
        rounds: how often it came to the end.
        checked_bytes: how much it looked at since the start.
        damaged: where damage begins, and where the next sound record does.
        log: what it goes through.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self.position = commit_log.begin
        self.rounds = 0
        self.checked_bytes = 0
        self.damaged: dict[int, int] = {}
        self.log = commit_log

    def step(self) -> bool:
        """Look at the next quarter of a mebibyte; False at the end of the log, after which it is at its begin."""
        begin = max(self.position, self.log.begin)
        if begin >= self.log.written:
            self._end_round()
            return False
        self.position = self._pass(begin)
        self.checked_bytes += self.position - begin
        return True

    def _end_round(self) -> None:
        self.rounds += 1
        self.position = self.log.begin
        self.damaged = {at: end for at, end in self.damaged.items() if at >= self.position}

    def _pass(self, begin: int) -> int:
        """Where to go on."""
        following, problem = look(self.log, begin)
        return following if problem is None else self.tell(begin, problem)

    def tell(self, begin: int, problem: str) -> int:
        """Say that the log is damaged from `begin` on, and check whatever is read from now on.

        Returns: where the next sound record begins.
        """
        commit_log = self.log
        survivor = commit_log.next_sound(begin, commit_log.written)
        end = commit_log.written if survivor is None else survivor
        if begin not in self.damaged:
            self.damaged[begin] = end
            commit_log.distrust()
            file = commit_log.row.find(begin)
            log.error(
                "%s is damaged from offset %d to %d of the log (%s); it is not served. Stop the broker and "
                "take what is missing from a slave, which has it at the same place: "
                "`sparrowmq store repair FOLDER --from HOST:PORT`; without one that fences the damage off",
                *(file.path if file is not None else commit_log.row.folder, begin, end, problem),
            )
        return end
