"""How long does a broker take until it listens, and how much memory does it hold?

    ./run bench start [--quick] [--peers ours,apache-4.9.7] [--messages 2000000]

Brokers start one at a time on an empty store, three rounds. Memory is what /proc/<pid>/smaps_rollup says: of a broker
that has been idle for two seconds, right after messages of 128 bytes with 64 in flight, and 12 s later, when two
checkpoints have freed what only a busy broker needs. `resident` counts the pages of programs and mapped files too;
`anonymous` is what the process keeps for itself. A table below says which packages our broker loads for its start.

Bound, by hand: Python with asyncio, click, msgspec and uvloop is 24 MiB and 0.1 s; with numpy, 34 MiB.
"""

from __future__ import annotations

import time
from typing import Any

from bench.imports import by_package, loaded
from bench.load import run_load
from bench.results import Measure
from bench.rounds import Run, arguments
from bench.servers import QUEUES, TOPIC, serving
from bench.usage import memory
from tests.interop.kits import PeerMissing

SETTLED_S = 2
QUIET_S = 12
SHOWN_PACKAGES = 16


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000_000, help="sent before memory is read again")
    run = Run("start", __doc__, parser)
    messages = 100_000 if run.options.quick else run.options.messages
    for _round in range(run.options.rounds):
        for name in run.options.peers:
            try:
                run.figures[()][name].append(measure(name, messages))
                print(f"start {name} {run.figures[()][name][-1]}", flush=True)
            except PeerMissing as missing:
                print(f"{name} is left out: {missing}")
    measures = [
        Measure("listening after s", lambda f: f["listening_s"]),
        Measure("idle: resident MiB", lambda f: f["idle"].resident),
        Measure("idle: anonymous MiB", lambda f: f["idle"].anonymous),
        Measure("right after messages: anonymous MiB", lambda f: f["busy"].anonymous),
        Measure("after messages: resident MiB", lambda f: f["full"].resident),
        Measure("after messages: anonymous MiB", lambda f: f["full"].anonymous),
    ]
    when = f"right after {messages:,} messages of 128 bytes, and {QUIET_S} s later"
    circumstances = f"{run.options.rounds} rounds; memory again {when}."
    run.keep((), measures, f"{circumstances}\n\n{import_table(loaded())}")


def import_table(modules: dict[str, int]) -> str:
    """What our broker loads until it listens, as a table of packages."""
    packages = by_package(modules)
    lines = [
        f"Our broker loads {len(modules)} modules until it listens.",
        f"Python needed {sum(modules.values()) / 1000:.0f} ms for them while it wrote down each one.\n",
        "| package | modules | ms |",
        "| --- | --- | --- |",
    ]
    shown = list(packages.items())[:SHOWN_PACKAGES]
    lines += [f"| {name} | {count} | {time_us / 1000:.1f} |" for name, (count, time_us) in shown]
    rest = list(packages.values())[SHOWN_PACKAGES:]
    lines.append(f"| {len(rest)} more | {sum(row[0] for row in rest)} | {sum(row[1] for row in rest) / 1000:.1f} |")
    return "\n".join(lines)


def measure(name: str, messages: int) -> dict[str, Any]:
    with serving(name) as peer:
        time.sleep(SETTLED_S)
        idle = memory(peer.pid)
        run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=64, count=messages)
        busy = memory(peer.pid)
        time.sleep(QUIET_S)
        return {"listening_s": peer.listening_s, "idle": idle, "busy": busy, "full": memory(peer.pid)}


if __name__ == "__main__":
    main()
