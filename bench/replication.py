"""How many messages a second does a master take that waits for its slave, and for how much CPU?

    ./run bench replication [--quick] [--peers ours,apache-4.9.7] [--flush ASYNC_FLUSH] [--windows 1,64,256]

As `./run bench send`, where each broker is a SYNC_MASTER with a slave of its own kind on this machine: an answer waits
until the slave says that it has the message. An answer that says that no slave has it is counted as refused.

Bound, by hand: the log is shipped in whole pieces, so with many in flight a piece carries them all, and a message costs
the master a copy of its 0.3 KB more. A lone message waits for two more hops between processes, 0.1 ms or so. With two
cores the master, the slave and the generator share them, so what the slave takes, some 2 us a message to check, write
and show it, costs rate.
"""

from __future__ import annotations

from typing import Final

from bench.results import Measure
from bench.rounds import Run, arguments, names, numbers
from bench.send import MEASURES as OF_SENDS
from bench.send import measure_sends
from bench.servers import OURS, REFERENCE, followed

MEASURES: Final = (
    *OF_SENDS,
    Measure("slave's CPU us/message", lambda f: f["slave_cpu_s"] / f["messages"] * 1e6),
)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(peers=(OURS, REFERENCE))
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH",))
    parser.add_argument("--bodies", type=numbers, default=(128,), help="body sizes in bytes")
    parser.add_argument("--windows", type=numbers, default=(1, 64, 256), help="requests in flight")
    run = Run("replication", __doc__, parser)
    for flush in run.options.flush:
        measure_sends(run, flush, "window", run.options.windows, followed)
    options = run.options
    note = f"{options.rounds} rounds of {options.seconds} s after {options.warm_up:,} messages of warm-up."
    run.keep(("flush", "bytes", "in flight"), MEASURES, note)


if __name__ == "__main__":
    main()
