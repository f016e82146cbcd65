"""How many messages a second does a broker take in batches?

    ./run bench batches [--quick] [--peers ours,apache-4.9.7] [--flush ASYNC_FLUSH] [--sizes 32] [--windows 8]

One connection, SEND_BATCH_MESSAGE, each with messages of 128 bytes for one of 4 queues. All brokers run at once, warmed
with 600,000 messages each; then each measurement takes its turn with every broker, three rounds.

Bound, by hand: a message is some 0.25 KB of frame in and 0.3 KB to the log, and the system's calls are shared by 32 of
them. So it is what the broker itself does for a message: 0.5 us are at most 2,000,000/s on one core.
"""

from __future__ import annotations

from functools import partial

from bench.load import run_load
from bench.rounds import Run, arguments, names, numbers
from bench.send import MEASURES
from bench.servers import QUEUES, TOPIC, serving_all

BODY_BYTES = 128


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH",))
    parser.add_argument("--sizes", type=numbers, default=(32,), help="messages in a batch")
    parser.add_argument("--windows", type=numbers, default=(8,), help="batches in flight")
    run = Run("batches", __doc__, parser)
    options = run.options
    for flush in options.flush:
        with serving_all(options.peers, flush) as peers:
            for size in options.sizes:
                for peer in peers:
                    load = {"body": BODY_BYTES, "window": 8, "batch": size, "count": options.warm_up}
                    run_load("send", peer.port, topic=TOPIC, queues=QUEUES, **load, **peer.asked)
                for window in options.windows:
                    load = {"body": BODY_BYTES, "window": window, "batch": size}
                    send = partial(run.load, "send", topic=TOPIC, queues=QUEUES, **load)
                    run.alternate((flush.removesuffix("_FLUSH"), str(size), str(window)), peers, send)
    note = f"{options.rounds} rounds of {options.seconds} s after {options.warm_up:,} messages of warm-up."
    run.keep(("flush", "messages a batch", "in flight"), MEASURES, note)


if __name__ == "__main__":
    main()
