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

from bench.rounds import Run, arguments, names, numbers
from bench.send import MEASURES, measure_sends


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH", "SYNC_FLUSH"))
    parser.add_argument("--bodies", type=numbers, default=(128,), help="body sizes in bytes")
    parser.add_argument("--connections", type=numbers, default=(16, 64, 256))
    run = Run("many", __doc__, parser)
    for flush in run.options.flush:
        measure_sends(run, flush, "connections", run.options.connections)
    options = run.options
    note = (
        f"One send in flight on each connection; {options.rounds} rounds of {options.seconds} s after "
        f"{options.warm_up:,} messages of warm-up."
    )
    run.keep(("flush", "bytes", "connections"), MEASURES, note)


if __name__ == "__main__":
    main()
