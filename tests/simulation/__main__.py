"""`./run simulate`: run the simulation, one seed after the other, and replay a seed."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.simulate import Outcome, Run


def main() -> int:
    """Run; the exit status is 1 if a promise was broken."""
    arguments = _arguments()
    began, seed = time.monotonic(), arguments.seed
    simulated_s = cpu_s = 0.0
    elections = broken = count = 0
    while _goes_on(arguments, count, time.monotonic() - began, simulated_s):
        kinds = tuple(arguments.faults.split(",")) if arguments.faults else None
        found = Run(seed, arguments.length, fault_s=arguments.every, kinds=kinds).outcome()
        simulated_s, cpu_s = simulated_s + found.simulated_s, cpu_s + found.cpu_s
        elections, broken, count = elections + found.elections, broken + bool(found.violations), count + 1
        _show(found, arguments.trace)
        seed += 1
    sys.stdout.write(
        f"{count} runs, {simulated_s / 3600:.2f} simulated hours in {cpu_s / 60:.2f} CPU minutes, "
        f"{elections} elections, {broken} runs with violations\n"
    )
    return min(broken, 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next ones count on")
    parser.add_argument("--runs", type=int, help="how many runs")
    parser.add_argument("--minutes", type=float, help="go on for so many minutes of this machine")
    parser.add_argument("--hours", type=float, help="go on for so many simulated hours")
    parser.add_argument("--length", type=float, default=5.0, help="minutes with faults in a run")
    parser.add_argument("--every", type=float, default=6.0, help="mean seconds between two faults")
    parser.add_argument("--faults", help="only these faults, with commas between")
    parser.add_argument(
        "--trace", type=int, default=60, help="events that are shown of a run with violations"
    )
    return parser.parse_args()


def _goes_on(arguments: argparse.Namespace, count: int, passed_s: float, simulated_s: float) -> bool:
    if arguments.runs is not None:
        return count < int(arguments.runs)
    if arguments.minutes is not None:
        return passed_s < 60 * float(arguments.minutes)
    if arguments.hours is not None:
        return simulated_s < 3600 * float(arguments.hours)
    return count < 1


def _show(found: Outcome, most: int) -> None:
    faults = sum(found.faults.values())
    sys.stdout.write(
        f"seed {found.seed}: {found.simulated_s:.0f} s in {found.cpu_s:.1f} s, {found.elections} elections, "
        f"{faults} faults, {found.acknowledged} acknowledged, {found.shown} shown, {found.failed} failed, "
        f"trace {found.trace_hash}\n"
    )
    if found.violations:
        sys.stdout.write("".join(f"{each}\n" for each in found.recent[len(found.recent) - most :]))
        sys.stdout.write("".join(f"VIOLATION of seed {found.seed}: {each}\n" for each in found.violations))
        sys.stdout.write(f"BROKEN by seed {found.seed}: {found.broken}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
