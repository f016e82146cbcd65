"""Does a broker live through a full disk, serve what it has, and take messages again once there is room?"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

from bench.chaos.kill import FLUSHES, spread, take
from bench.chaos.outcome import Outcome
from tests.crash.full_disk import FullDisk
from tests.crash.small_disk import SmallDisk

CYCLES_OF_A_DISK: Final = 5
SIZE_BYTES: Final = 192 << 20


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Fill it so often; every fifth time the broker is killed while it is full. Raises: NotHere."""
    outcome = Outcome("full", seed)
    rng = random.Random(seed)
    resumed: list[float] = []
    refused = 0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with SmallDisk(own, SIZE_BYTES) as disk:
            flush = FLUSHES[outcome.rounds // CYCLES_OF_A_DISK % 2]
            rig = FullDisk(own, flush, rng.randrange(1 << 32), disk)
            asyncio.run(_live(rig, min(CYCLES_OF_A_DISK, rounds - outcome.rounds)))
        take(outcome, rig)
        resumed += rig.resumed_s
        refused += rig.refused
    outcome.more = {"refused": refused, **spread("resumed_s", resumed)}
    return outcome


async def _live(rig: FullDisk, cycles: int) -> None:
    for number in range(cycles):
        await rig.cycle(kills=number == CYCLES_OF_A_DISK - 1)
        if rig.tally.violations:
            return
    await rig.finish()
