"""How long does a broker take until it listens, and how much memory does it hold?

    ./run bench start [--quick] [--peers ours,apache-4.9.7] [--messages 2000000]

Brokers start one at a time on an empty store, three rounds. Memory is what /proc/<pid>/smaps_rollup says: of a broker
that has been idle for two seconds, and after messages of 128 bytes with 64 in flight. `resident` counts the mapped
pages of the log too, which the system takes back when it likes; `anonymous` is what the process really keeps.

Bound, by hand: Python with msgspec and numpy imported is 30 MB and 0.2 s.
"""

from __future__ import annotations

import time
from typing import Any

from bench.load import run_load
from bench.peers import QUEUES, TOPIC, memory, serving
from bench.results import Measure
from bench.rounds import Run, arguments
from tests.interop.kits import PeerMissing

SETTLED_S = 2


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
        Measure("after messages: resident MiB", lambda f: f["full"].resident),
        Measure("after messages: anonymous MiB", lambda f: f["full"].anonymous),
    ]
    run.keep(
        (), measures, f"{run.options.rounds} rounds; memory again after {messages:,} messages of 128 bytes."
    )


def measure(name: str, messages: int) -> dict[str, Any]:
    with serving(name) as peer:
        time.sleep(SETTLED_S)
        idle = memory(peer.pid)
        run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=64, count=messages)
        return {"listening_s": peer.listening_s, "idle": idle, "full": memory(peer.pid)}


if __name__ == "__main__":
    main()
