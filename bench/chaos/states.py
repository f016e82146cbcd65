"""Is anything lost in one of the states in which a power cut could leave the files, of all that the model can make?

A random workload runs on a model of a disk that writes down each effect. Cut anywhere, what no sync covers may be there
or not, sector by sector; each such state is opened, compared, and cut again (tests/store/crash_model.py). A round is a
state that is unlike all before.
"""

from __future__ import annotations

from pathlib import Path

from bench.chaos.outcome import Outcome
from tests.store.crash_model import WORKLOADS, Exploration, Tally


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Look at so many states."""
    outcome, tally = Outcome("states", seed), Tally()
    while len(tally.states) < rounds and not tally.violations:
        for steps, per_cut, weights in WORKLOADS:
            Exploration(seed, steps, per_cut, tally, weights=weights).run()
        seed += 1
    outcome.rounds = len(tally.states)
    outcome.more = {"recoveries": tally.examined, "kills": tally.kills}
    outcome.note(tally.violations)
    return outcome
