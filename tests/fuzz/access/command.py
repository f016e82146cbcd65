"""`./run fuzz --access [--cases N] [--seed S]`, and `--replay denied:17,other:3` to repeat what a run found."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from sparrowmq.protocol.codes import RequestCode
from tests.fuzz.access.attacks import Case
from tests.fuzz.access.play import ATTACKERS, CASES_OF_A_ROUND, ROUNDS, Played, least, live, rounds_of

CASES_OF_A_LIFE: Final = ROUNDS * CASES_OF_A_ROUND
HONEST: Final = ("owner", "admin", "white")


def attack_all(
    seed: int, cases: int, replays: bool, users: bool, progress: Callable[[str, int, int], None]
) -> list[str]:
    """Play cases until there are none left, or a fault. Returns the faults, with the fewest cases that repeat them."""
    logging.disable(logging.CRITICAL)  # brokers log each denial
    began, done, answers = time.monotonic(), 0, Counter[tuple[str, int, int]]()
    identities = (*ATTACKERS, "replayer") if replays else ATTACKERS
    for life in range(-(-cases // CASES_OF_A_LIFE)):
        rounds = rounds_of(seed, life, identities, min(CASES_OF_A_LIFE, cases - done))
        played = asyncio.run(live(rounds, users=users))
        done += played.cases
        answers += played.answers
        progress("access", done, cases)
        if played.faults:
            print(
                f"a fault after {done:,} cases, of seed {seed}; now the search for the fewest cases",
                flush=True,
            )
            return _told(played.faults, asyncio.run(least(played.guilty, users=users)), users)
    report(answers)
    print(f"{done:,} cases in {time.monotonic() - began:.0f} s", flush=True)
    return []


def replay(text: str, users: bool) -> list[str]:
    """Play cases again, one after the other."""
    logging.disable(logging.CRITICAL)
    cases = [Case(name, int(seed)) for name, _, seed in (each.partition(":") for each in text.split(","))]
    return _told(asyncio.run(live([cases], together=False, users=users)).faults, cases, users)


def _told(faults: Sequence[str], cases: Sequence[Case], users: bool) -> list[str]:
    played: Played = asyncio.run(live([cases], together=False, users=users))
    for case, attack in played.attacks:
        print(f"  {case.identity:9} {attack}")
    again = f"--replay {','.join(str(case) for case in cases)}{' --users' if users else ''}"
    return [*(played.faults or faults), f"repeat it: ./run fuzz --access {again}"] if faults else []


def report(answers: Counter[tuple[str, int, int]]) -> None:
    """How each code answered attackers: success, denied, or refused for another reason."""
    for code in sorted({code for _, code, _ in answers}):
        counts = Counter[str]()
        for (identity, asked, reply), count in answers.items():
            if asked == code:
                counts[f"{identity} {'ok' if reply == 0 else reply}"] += count
        told = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        print(f"  {code:>6} {RequestCode(code).name:36} {told}")
