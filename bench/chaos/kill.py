"""Is anything lost when the broker is killed, at any moment or at one of its effects on files?

A life ends at a named crash point (tests/crash/deadly.py), each in its turn; where the point does not come in time, at
a random moment; and one in six in recovery. Stores of both kinds of flush take turns: 25 rounds each, then all of it
is read.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from tests.crash.rounds import CrashRig, Points

ROUNDS_OF_A_STORE: Final = 25
FLUSHES: Final = ("SYNC_FLUSH", "ASYNC_FLUSH")
LOAD_S: Final = 1.2


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill so often."""
    outcome = Outcome("kill", seed)
    rng = random.Random(seed)
    points = Points(folder, rng)
    restarts: list[float] = []
    in_recovery = at_points = 0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        flush = FLUSHES[outcome.rounds // ROUNDS_OF_A_STORE % 2]
        rig = CrashRig(own, flush, rng.randrange(1 << 32), load_s=LOAD_S, points=points)
        asyncio.run(rig.play(min(ROUNDS_OF_A_STORE, rounds - outcome.rounds)))
        take(outcome, rig)
        restarts += rig.tally.restart_s
        in_recovery += rig.tally.kills_in_recovery
        at_points += rig.tally.kills_at_points
    outcome.more = {
        "kills_in_recovery": in_recovery,
        "kills_at_points": at_points,
        "points_hit": sum(hits > 0 for hits in points.hits.values()),
        "points_met": len(set((folder / "points").read_text().splitlines())),
        **spread("restart_s", restarts),
    }
    (folder / "hits").write_text("".join(f"{n} {name}\n" for name, n in Counter(points.hits).most_common()))
    return outcome


def take(outcome: Outcome, rig: CrashRig) -> None:
    """Add what a rig came to."""
    outcome.rounds += rig.tally.rounds
    outcome.acked += rig.ledger.acked + rig.tally.forgotten
    outcome.maybe += len(rig.ledger.sent) - rig.ledger.acked - rig.tally.forgotten
    outcome.note(rig.tally.violations)


def spread(name: str, values: list[float]) -> dict[str, object]:
    """The middle and the largest of some figures."""
    ordered = sorted(values) or [0.0]
    return {name: [round(ordered[len(ordered) // 2], 2), round(ordered[-1], 2)]}
