"""`./run fuzz --access [--cases N] [--seed S]`, and `--replay denied:17,other:3` to repeat what a run found."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.protocol.codes import RequestCode
from tests.fuzz.access.attacks import Case
from tests.fuzz.access.play import ATTACKERS, Played, Stage, least, live, rounds_of

HONEST: Final = ("owner", "admin", "white")


def attack_all(
    seed: int, cases: int, replays: bool, stage: Stage, progress: Callable[[str, int, int], None]
) -> list[str]:
    """Play cases until there are none left, or a fault. Returns the faults, with the fewest cases that repeat them."""
    logging.disable(logging.CRITICAL)  # brokers log each denial
    began, done, answers = time.monotonic(), 0, Counter[tuple[str, Any, int]]()
    identities, most = ATTACKERS, stage.cases_of_a_life
    if replays:
        identities = (*identities, "replayer")
    for life in range(-(-cases // most)):
        rounds = rounds_of(seed, life, identities, min(most, cases - done), stage.cases_of_a_round)
        played = asyncio.run(live(rounds, stage=stage))
        done += played.cases
        answers += played.answers
        progress("access", done, cases)
        if played.faults:
            print(
                f"a fault after {done:,} cases, of seed {seed}; now the search for the fewest cases",
                flush=True,
            )
            for fault in played.faults:
                print(f"  {fault}", flush=True)
            return _told(played.faults, asyncio.run(least(played.guilty, stage)), stage)
    report(answers)
    print(f"{done:,} cases in {time.monotonic() - began:.0f} s", flush=True)
    return []


def replay(text: str, stage: Stage) -> list[str]:
    """Play cases again, one after the other."""
    logging.disable(logging.CRITICAL)
    cases = [Case(name, int(seed)) for name, _, seed in (each.partition(":") for each in text.split(","))]
    return _told(asyncio.run(live([cases], together=False, stage=stage)).faults, cases, stage)


def _told(faults: Sequence[str], cases: Sequence[Case], stage: Stage) -> list[str]:
    played: Played = asyncio.run(live([cases], together=False, stage=stage))
    for case, attack in played.attacks:
        print(f"  {case.identity:9} {attack}")
    again = f"--replay {','.join(str(case) for case in cases)}{stage.options}"
    return [*(played.faults or faults), f"repeat it: ./run fuzz --access {again}"] if faults else []


def report(answers: Counter[tuple[str, Any, int]]) -> None:
    """How each code answered attackers: success, denied, or refused for another reason."""
    for code in sorted({code for _, code, _ in answers}, key=str):
        counts = Counter[str]()
        for (identity, asked, reply), count in answers.items():
            if asked == code:
                counts[f"{identity} {'ok' if reply in (0, 20000) else reply}"] += count
        name = code if isinstance(code, str) else f"{code:>6} {RequestCode(code).name}"
        told = ", ".join(f"{who}: {count}" for who, count in sorted(counts.items()))
        print(f"  {name:43} {told}")
