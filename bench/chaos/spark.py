"""Does a query with exactly_once lose or double a row when its driver, executors, workers or brokers are killed?

The query copies a topic from two brokers to two brokers, one of which decides; 10,000 rows come with each kill.
`met` says how many kills found a batch half done, `again` how many rows came to brokers more than once because of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from sparrowmq.spark.options import EXACTLY_ONCE
from tests.interop.servers import OURS
from tests.spark.kills.rig import Rig

ROWS: Final = 10_000


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill so often."""
    return kill("spark", Rig(folder, seed, EXACTLY_ONCE, OURS, 2, tell), rounds, seed)


def kill(name: str, rig: Rig, rounds: int, seed: int) -> Outcome:
    """Kill so often what a rig has, and compare what is there with what was sent."""
    outcome = Outcome(name, seed)
    result = rig.run(rounds * ROWS, rounds)
    outcome.rounds, outcome.acked = rounds, result.rows
    outcome.note(f"lost: row {row}" for row in result.lost)
    outcome.note(f"doubled: row {row}" for row in result.doubled)
    outcome.more = {
        "kills": result.kills,
        "met": result.met,
        "repeated": result.repeated,
        "again": result.again,
    }
    return outcome


def tell(line: str) -> None:
    """How far it is."""
    print(line, file=sys.stderr, flush=True)
