"""How many messages a second does a broker take from many producers that each wait for their answer?

    ./run bench many [--quick] [--peers ours,apache-4.9.7] [--flush ASYNC_FLUSH] [--bodies 128] [--connections 16,64]

The usual way to produce: programs with a connection each, and one send in flight on it. SEND_MESSAGE_V2, 4 queues. All
brokers run at once, warmed with 600,000 messages each; then each measurement takes its turn with every broker, three
rounds.

Bound, by hand: nothing is shared between two sends but a turn of the loop and, with SYNC_FLUSH, the sync. Each costs a
recv and a send of a socket (2 to 3 us each in the kernel), a callback of the loop and the send's own work (4 us): some
12 us, so 80,000/s on one core, however many connections there are; the generator pays as much for its side. With
SYNC_FLUSH a sync (0.1 ms or more) carries what has come during the one before it, so with c connections the rate is at
most c / (2 syncs): 16 are bound by the disk, 256 by the CPU.
"""

from __future__ import annotations

from functools import partial

from bench.load import run_load
from bench.peers import QUEUES, TOPIC, serving_all
from bench.results import Measure
from bench.rounds import Run, arguments, names, numbers


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH", "SYNC_FLUSH"))
    parser.add_argument("--bodies", type=numbers, default=(128,), help="body sizes in bytes")
    parser.add_argument("--connections", type=numbers, default=(16, 64, 256))
    run = Run("many", __doc__, parser)
    for flush in run.options.flush:
        measure_all(run, flush)
    measures = [
        Measure("messages/s", lambda f: f["rate"]),
        Measure("CPU us/message", lambda f: f["broker_cpu_s"] / f["messages"] * 1e6),
        Measure("p50 us", lambda f: f["p50_us"], compared=False),
        Measure("p99 us", lambda f: f["p99_us"], compared=False),
        Measure("refused", lambda f: f["errors"], compared=False),
    ]
    options = run.options
    note = (
        f"One send in flight on each connection; {options.rounds} rounds of {options.seconds} s after "
        f"{options.warm_up:,} messages of warm-up."
    )
    run.keep(("flush", "bytes", "connections"), measures, note)


def measure_all(run: Run, flush: str) -> None:
    with serving_all(run.options.peers, flush) as peers:
        for peer in peers:
            run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=256, count=run.options.warm_up)
        for body in run.options.bodies:
            for connections in run.options.connections:
                send = partial(
                    run.load, "send", topic=TOPIC, queues=QUEUES, body=body, window=1, connections=connections
                )
                run.alternate((flush.removesuffix("_FLUSH"), str(body), str(connections)), peers, send)


if __name__ == "__main__":
    main()
