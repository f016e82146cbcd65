"""Is a change of topics, groups or offsets forgotten, or a delayed message doubled, when masters die again and again?

Three members elect their master (tests/crash/deaths.py). Changes are made until the moment of the kill; the next master
must know each one that was acknowledged. Offsets are committed by requests that wait for their answer.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.chaos.failover import SAFEST
from bench.chaos.outcome import Outcome
from tests.crash.deaths import die_beside_changes
from tests.crash.failover import FailoverRig
from tests.crash.not_here import NotHere
from tests.crash.state_history import StateHistory
from tests.interop.etcd import PROGRAM

ROUNDS_OF_A_CLUSTER: Final = 20
MEMBERS: Final = 3


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Kill the master so often."""
    if PROGRAM is None:
        raise NotHere("there is no etcd (Debian: apt install etcd-server)")
    outcome = Outcome("state", seed)
    rng, delayed = random.Random(seed), 0
    while outcome.rounds < rounds and not outcome.problems:
        own = folder / f"{outcome.rounds:05}"
        own.mkdir()
        with ExitStack() as stack:
            rig = FailoverRig(own, rng.randrange(1 << 32), stack, MEMBERS, settings=SAFEST)
            history = StateHistory(rig.master, rng.randrange(1 << 32))
            deaths = min(ROUNDS_OF_A_CLUSTER, rounds - outcome.rounds)
            asyncio.run(die_beside_changes(rig, history, deaths, _say))
        outcome.rounds += rig.tally.rounds
        outcome.acked += history.acknowledged
        delayed += history.delayed
        outcome.note(rig.tally.violations)
    outcome.more = {"delayed": delayed}
    return outcome


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
