"""Is anything acknowledged after a sync failed, or lost that was before, when the operator then frees some room?

The sync is a real one that fails: ext4 on a disk which is full, though the file has its room in ext4. Linux tells of it
once, and says "all well" at the next sync; sometimes at the one before, too, which is counted apart
(tests/crash/full_disk.py).
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

from bench.chaos.kill import take
from bench.chaos.outcome import Outcome
from tests.crash.full_disk import FailedSync
from tests.crash.loop_disk import LoopDisk
from tests.crash.small_disk import SmallDisk

SIZE_BYTES: Final = 96 << 20


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Let one fail so often. Raises: NotHere."""
    outcome = Outcome("failed_sync", seed)
    rng = random.Random(seed)
    false_syncs = taken = 0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with (
            SmallDisk(own, SIZE_BYTES) as under,
            LoopDisk(own, "ext4", under.folder / "image") as disk,
        ):
            rig = FailedSync(own, rng.randrange(1 << 32), under, disk)
            asyncio.run(_live(rig))
        take(outcome, rig)
        false_syncs += rig.tally.forgotten > 0
        taken += rig.tally.forgotten
    outcome.more = {"rounds_with_a_false_sync": false_syncs, "taken_by_false_syncs": taken}
    return outcome


async def _live(rig: FailedSync) -> None:
    await rig.cycle()
    await rig.finish()
