"""`./run simulate`: run the simulation, one seed after the other, and replay a seed."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from typing import Final

from tests.simulation.pace import CALM, DENSE
from tests.simulation.simulate import Outcome, outcome_of

_NUMBERS: Final = (
    *("elections", "failovers", "acknowledged", "shown", "popped", "changes", "later"),
    *("backups", "failed_backups"),
)
_RUNS_OF_A_WORKER = 40  # then another process goes on: what a run leaves in memory is gone


def main() -> int:
    """Run; the exit status is 1 if a promise was broken."""
    arguments = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of each run
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    began, total = time.monotonic(), _Total()
    outcomes = _outcomes(arguments)
    while _goes_on(arguments, total, time.monotonic() - began):
        found = next(outcomes)
        total.add(found)
        _show(found, arguments.trace)
    outcomes.close()
    sys.stdout.write(total.text())
    return min(total.broken, 1)


class _Total:
    """The sums of all runs."""

    def __init__(self) -> None:
        self.count = self.broken = 0
        self.simulated_s = self._cpu_s = 0.0
        self._numbers = Counter[str]()
        self._faults = Counter[str]()

    def add(self, found: Outcome) -> None:
        """Count one run."""
        self.count += 1
        self.broken += bool(found.violations)
        self.simulated_s += found.simulated_s
        self._cpu_s += found.cpu_s
        self._faults.update(found.faults)
        for name in _NUMBERS:
            self._numbers[name] += getattr(found, name)

    def text(self) -> str:
        """What is shown at the end."""
        numbers, hours = self._numbers, self.simulated_s / 3600
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self._faults.items()))
        return (
            f"faults: {faults}\n"
            f"{numbers['acknowledged']} acknowledged, {numbers['shown']} shown, {numbers['popped']} popped, "
            f"{numbers['later']} for later, {numbers['changes']} changes of topics, groups and offsets, "
            f"{numbers['backups']} backups compared, {numbers['failed_backups']} refused\n"
            f"{self.count} runs, {hours:.2f} simulated hours in {self._cpu_s / 60:.2f} CPU minutes, "
            f"{numbers['elections']} elections, {numbers['failovers']} after the death of a master, "
            f"{self.broken} runs with violations\n"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones count on")
    parser.add_argument("--runs", type=int, help="how many runs")
    parser.add_argument("--minutes", type=float, help="go on for so many minutes of this machine")
    parser.add_argument("--hours", type=float, help="go on for so many simulated hours")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each in a process of its own")
    parser.add_argument("--calm", action="store_true", help="days of light traffic, in which messages are deleted")
    parser.add_argument("--length", type=float, help="minutes with faults in a run")
    parser.add_argument("--every", type=float, help="mean seconds between two faults")
    parser.add_argument("--faults", help="only these faults, with commas between")
    parser.add_argument("--trace", type=int, default=60, help="events that are shown of a run with violations")
    return parser.parse_args()


def _goes_on(arguments: argparse.Namespace, total: _Total, passed_s: float) -> bool:
    if arguments.runs is not None:
        return total.count < int(arguments.runs)
    if arguments.minutes is not None:
        return passed_s < 60 * float(arguments.minutes)
    if arguments.hours is not None:
        return total.simulated_s < 3600 * float(arguments.hours)
    return total.count < 1


def _outcomes(arguments: argparse.Namespace) -> Generator[Outcome, None, None]:
    """Yield the outcomes of all seeds, in their order."""
    kinds = tuple(arguments.faults.split(",")) if arguments.faults else None
    pace = CALM if arguments.calm else DENSE
    run = partial(outcome_of, minutes=arguments.length, fault_s=arguments.every, kinds=kinds, pace=pace)
    seeds: Iterator[int] = itertools.count(arguments.seed)
    if arguments.runs is not None:
        seeds = itertools.islice(seeds, arguments.runs)
    if arguments.jobs == 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context, max_tasks_per_child=_RUNS_OF_A_WORKER) as pool:
        under_way = deque[Future[Outcome]]()
        try:
            while True:
                for seed in itertools.islice(seeds, 2 * arguments.jobs - len(under_way)):
                    under_way.append(pool.submit(run, seed))
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()


def _show(found: Outcome, most: int) -> None:
    faults = sum(found.faults.values())
    sys.stdout.write(
        f"seed {found.seed}: {found.simulated_s:.0f} s in {found.cpu_s:.1f} s, {found.elections} elections "
        f"({found.failovers} after a death), {faults} faults, {found.acknowledged} acknowledged, "
        f"{found.changes} changes, {found.later} for later, {found.shown} shown, {found.popped} popped, "
        f"{found.failed} failed, {found.backups} backups, trace {found.trace_hash}\n"
    )
    if found.violations:
        sys.stdout.write("".join(f"{each}\n" for each in found.recent[len(found.recent) - most :]))
        sys.stdout.write("".join(f"VIOLATION of seed {found.seed}: {each}\n" for each in found.violations))
        sys.stdout.write(f"BROKEN by seed {found.seed}: {found.broken}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
