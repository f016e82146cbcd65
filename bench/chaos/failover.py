"""Is anything lost that a master and its slaves in sync had acknowledged, when the master dies, again and again?

Two brokers of one name elect their master in an etcd of their own (tests/crash/failover.py). A gap is the longest time
of a round in which no send is answered.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from tests.crash.failover import FailoverRig, die_and_check
from tests.crash.not_here import NotHere
from tests.interop.etcd import PROGRAM

ROUNDS_OF_A_CLUSTER: Final = 25
# What SEND_OK says is on two disks.
SAFEST: Final = {"flushDiskType": "SYNC_FLUSH", "slaveAck": "flushed"}


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Take the master away so often."""
    if PROGRAM is None:
        raise NotHere("there is no etcd (Debian: apt install etcd-server)")
    outcome = Outcome("failover", seed)
    rng, gaps, ways = random.Random(seed), list[float](), dict[str, int]()
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with ExitStack() as stack:
            rig = FailoverRig(own, rng.randrange(1 << 32), stack, settings=SAFEST)
            asyncio.run(die_and_check(rig, [None] * min(ROUNDS_OF_A_CLUSTER, rounds - outcome.rounds), _say))
        outcome.rounds += rig.tally.rounds
        outcome.acked += rig.ledger.acked
        outcome.maybe += len(rig.ledger.sent) - rig.ledger.acked
        outcome.note(rig.tally.violations)
        gaps += rig.tally.gaps_s
        ways = {way: ways.get(way, 0) + rig.tally.ways.get(way, 0) for way in {*ways, *rig.tally.ways}}
    outcome.more = {"ways": dict(sorted(ways.items())), **percentiles(gaps)}
    return outcome


def percentiles(gaps: list[float]) -> dict[str, float]:
    """How long nothing was answered."""
    ordered = sorted(gaps) or [0.0]
    places = {"p50": len(ordered) // 2, "p99": min(len(ordered) - 1, int(len(ordered) * 0.99)), "max": -1}
    return {f"gap_{name}_s": round(ordered[place], 2) for name, place in places.items()}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
