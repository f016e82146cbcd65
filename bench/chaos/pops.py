"""Is a popped message lost, or seen again too soon, when the broker is killed?

64 members pop a topic of 4 queues, and acknowledge each pop in one request (tests/crash/pop_fire.py). A round is a
kill. SPARROWMQ_LIFE_S is how long a broker lives on average, by default 4 s.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from tests.crash.pop_fire import PopFire

MEMBERS: Final = 64
BATCH: Final = 100


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill so often."""
    outcome = Outcome("pops", seed)
    fire = PopFire(folder, "ASYNC_FLUSH", seed, MEMBERS, batch=BATCH)
    asyncio.run(fire.play(rounds, float(os.environ.get("SPARROWMQ_LIFE_S", "4")), shown=True))
    pops = fire.pops
    outcome.rounds, outcome.acked = rounds, pops.sent
    outcome.maybe = len(pops.states) - pops.sent
    outcome.note(pops.wrong)
    outcome.more = {"acknowledged": pops.acknowledged, "again_after_a_kill_or_in_time": pops.again}
    return outcome
