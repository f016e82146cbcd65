"""How soon is there a master when the master of three members dies, and its successor right after its election?

Nothing is sent, so the successor took nothing in its epoch, and the third has everything (tests/crash/deaths.py).
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.failover import SAFEST, percentiles
from bench.chaos.outcome import Outcome
from tests.crash.deaths import die_twice
from tests.crash.failover import FailoverRig
from tests.crash.not_here import NotHere
from tests.interop.etcd import PROGRAM

ROUNDS_OF_A_CLUSTER: Final = 20
LONGEST_S: Final = 10.0


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill two masters in a row so often."""
    if PROGRAM is None:
        raise NotHere("there is no etcd (Debian: apt install etcd-server)")
    outcome = Outcome("double_deaths", seed)
    rng, gaps = random.Random(seed), list[float]()
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with ExitStack() as stack:
            rig = FailoverRig(own, rng.randrange(1 << 32), stack, 3, settings=SAFEST)
            try:
                asyncio.run(die_twice(rig, min(ROUNDS_OF_A_CLUSTER, rounds - outcome.rounds), _say))
            except TimeoutError as error:
                outcome.note([f"slow: {error}"])
        outcome.rounds += rig.tally.rounds
        outcome.note(f"slow: no master for {gap:.1f} s" for gap in rig.tally.gaps_s if gap > LONGEST_S)
        gaps += rig.tally.gaps_s
    outcome.more = dict(percentiles(gaps))
    return outcome


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
