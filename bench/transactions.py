"""How many transactions a second does a broker commit, and for how much CPU?

    ./run bench transactions [--rounds 3] [--seconds 3] [--quick] [--peers ours,apache-4.9.7] [--windows 1,64,256]

Each of so many slots of one connection sends a half message of 128 bytes, commits it when that is answered, and begins
again when the commit is; Java's producers do not wait for that, but then nothing would tell when it is done.
ASYNC_FLUSH, 4 queues. Both brokers are warmed with 60,000 transactions (a young JVM is two to three times slower), and
take turns.

Bound, by hand: a transaction is two requests and three records of some 300 bytes, and the half message is read once:
three sends' work, 15 us of one core, and some 5 us for reading the half message and remembering that it is open. Ours
has that core busy from 64 in flight on, and no more of them, so its rate is what the CPU of a transaction makes it;
Apache's has more than one core. The generator is in C and takes 1 us of another core, so neither waits for it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.load import run_load
from bench.results import Measure
from bench.rounds import Run, arguments, numbers
from bench.servers import OURS, QUEUES, REFERENCE, TOPIC, serving_all

MEASURES: Final = (
    Measure("transactions/s", lambda f: f["rate"]),
    Measure("CPU us/transaction", lambda f: f["broker_cpu_s"] / f["messages"] * 1e6),
    Measure("p50 us", lambda f: f["p50_us"], compared=False),
    Measure("p99 us", lambda f: f["p99_us"], compared=False),
    Measure("refused", lambda f: f["errors"], compared=False),
)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(peers=(OURS, REFERENCE))
    parser.add_argument("--windows", type=numbers, default=(1, 64, 256), help="transactions in flight")
    run = Run("transactions", __doc__, parser)
    options = run.options
    with serving_all(options.peers) as peers:
        for peer in peers:
            run_load("transact", peer.port, topic=TOPIC, queues=QUEUES, window=256, count=options.warm_up // 10)
        for window in options.windows:
            transact = partial(run.load, "transact", topic=TOPIC, queues=QUEUES, body=128, window=window)
            run.alternate((str(window),), peers, transact)
    note = (
        f"{options.rounds} rounds of {options.seconds} s after {options.warm_up // 10:,} transactions of warm-up; "
        "each end is answered."
    )
    run.keep(("in flight",), MEASURES, note)


if __name__ == "__main__":
    main()
