"""Is anything lost, or acknowledged by two masters, when wires, clocks and processes fail in all ways but a crash?

A static pair and a pair that elects its master, in turn, on network namespaces of their own (tests/crash/network.py).
After each episode all is well again within 30 s, and both logs are the same byte by byte, or the rig says so.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.outcome import Outcome
from tests.crash.network import NetworkRig
from tests.crash.not_here import NotHere
from tests.crash.wires import demand
from tests.interop.etcd import PROGRAM

EPISODES_OF_A_CLUSTER: Final = 10


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """So many episodes; those of elected masters are twice as many as those of a static pair."""
    demand()
    if PROGRAM is None:
        raise NotHere("there is no etcd (Debian: apt install etcd-server)")
    outcome = Outcome("network", seed)
    rng, healed, troubles, more = random.Random(seed), list[float](), Counter[str](), Counter[str]()
    clusters = 0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with ExitStack() as stack:
            rig = NetworkRig(own, rng.randrange(1 << 32), stack, is_elected=clusters % 3 != 2)
            asyncio.run(rig.play([None] * min(EPISODES_OF_A_CLUSTER, rounds - outcome.rounds), _say))
        clusters += 1
        outcome.rounds += rig.tally.episodes
        outcome.acked += len(rig.history.acked)
        outcome.maybe += len(rig.history.ledger.sent) - len(rig.history.acked)
        outcome.note(rig.tally.violations)
        healed += rig.tally.healed_s
        troubles += rig.tally.troubles
        more += Counter(epochs=rig.tally.epochs, reads=rig.tally.reads)
    usurped = sum(problem.startswith("usurped") for problem in outcome.problems)
    outcome.more = {
        "double_masters": usurped,
        "troubles": dict(sorted(troubles.items())),
        **more,
        **_longest(healed),
    }
    return outcome


def _longest(healed: list[float]) -> dict[str, float]:
    """How long after the wires were whole all was well."""
    ordered = sorted(healed) or [0.0]
    return {
        "healed_p50_s": round(ordered[len(ordered) // 2], 1),
        "healed_p99_s": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1),
        "healed_max_s": round(ordered[-1], 1),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
