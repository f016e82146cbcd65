"""Is every harmful change to the files of a store found, and no good record dropped, or offset given twice, in silence?

Each round changes one file of a small store: a bit, a run of bytes, a sector; or cuts, empties, deletes or exchanges it
(tests/store/mutated.py). The parts take turns: log, queues, their ends, checkpoint, index, and the JSON of `config`; so
do stores that were closed and stores that were killed. Then it is opened: it has all, or says what is wrong.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.chaos.outcome import Outcome
from tests.store.mutated import MESSAGES, PARTS, Mutated, MutatedConfig, make, verifying_little


def play(rounds: int, seed: int, folder: Path) -> Outcome:
    """Change so many."""
    outcome = Outcome("mutated", seed)
    stores = {closed: _stores(folder / str(closed), closed) for closed in (True, False)}
    config = MutatedConfig(folder)
    counts: Counter[str] = Counter()
    for number in range(rounds):
        part = list(PARTS)[number % len(PARTS)]
        if part == "config":
            problem = config.play(seed + number)
        else:
            mutated = stores[number // len(PARTS) % 2 == 0][part == "log"]
            problem = mutated.play(seed + number, part)
            outcome.acked += MESSAGES
        counts[part] += 1
        outcome.rounds += 1
        if problem is not None:
            outcome.note([f"{part}: {problem}"])
    outcome.more = dict(counts)
    return outcome


def _stores(folder: Path, closed: bool) -> tuple[Mutated, Mutated]:
    """One whose last part had been synced, as far as its checkpoint says, and one whose all had."""
    found = []
    for checkpoint_last in (False, True):
        whole = folder / f"{checkpoint_last}" / "whole"
        whole.parent.mkdir(parents=True)
        with verifying_little():
            sent = make(whole, closed, checkpoint_last)
        found.append(Mutated(whole, whole.parent, sent))
    return found[0], found[1]
