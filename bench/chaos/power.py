"""Is anything lost that SYNC_FLUSH acknowledged when the power is cut, on ext4 and xfs?"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

from bench.chaos.kill import spread, take
from bench.chaos.outcome import Outcome
from tests.crash.loop_disk import KINDS, LoopDisk
from tests.crash.rounds import CrashRig

ROUNDS_OF_A_DISK: Final = 25
LOAD_S: Final = 0.6


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Cut it so often; the file systems take turns."""
    return cut("power", "SYNC_FLUSH", rounds, seed, folder)


def cut(name: str, flush: str, rounds: int, seed: int, folder: Path) -> Outcome:
    """Cut the power so often. Raises: NotHere."""
    outcome = Outcome(name, seed)
    rng = random.Random(seed)
    restarts: list[float] = []
    taken, tail_ms = 0, 0.0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        kind = KINDS[outcome.rounds // ROUNDS_OF_A_DISK % 2]
        with LoopDisk(own, kind) as disk:
            rig = CrashRig(own, flush, rng.randrange(1 << 32), load_s=LOAD_S, disk=disk)
            asyncio.run(rig.play(min(ROUNDS_OF_A_DISK, rounds - outcome.rounds)))
        take(outcome, rig)
        restarts += rig.tally.restart_s
        taken += rig.tally.forgotten
        tail_ms = max(tail_ms, rig.tally.tail_ms)
        if not outcome.problems:
            (own / f"{kind}.image").unlink()
    outcome.more = {
        "flush": flush,
        "taken": taken,
        "tail_ms": round(tail_ms),
        **spread("restart_s", restarts),
    }
    return outcome
