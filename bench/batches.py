"""How many messages a second does a broker take in batches?

    ./run bench batches [--quick] [--peers ours,apache-4.9.7] [--flush ASYNC_FLUSH] [--sizes 32] [--windows 8]

One connection, SEND_BATCH_MESSAGE, each with messages of 128 bytes for one of 4 queues. All brokers run at once, warmed
with 600,000 messages each; then each measurement takes its turn with every broker, three rounds.

Bound, by hand: a message is some 0.25 KB of frame in and 0.3 KB to the log, and the system's calls are shared by 32 of
them. So it is what the broker itself does for a message: 0.5 us are at most 2,000,000/s on one core.
"""

from __future__ import annotations

from bench.rounds import Run, arguments, names, numbers
from bench.send import MEASURES, measure_cases

BODY_BYTES = 128


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH",))
    parser.add_argument("--sizes", type=numbers, default=(32,), help="messages in a batch")
    parser.add_argument("--windows", type=numbers, default=(8,), help="batches in flight")
    run = Run("batches", __doc__, parser)
    options = run.options
    cases = {
        (str(size), str(window)): {"body": BODY_BYTES, "window": window, "batch": size}
        for size in options.sizes
        for window in options.windows
    }
    for flush in options.flush:
        measure_cases(run, flush, cases, {"body": BODY_BYTES, "window": 8, "batch": options.sizes[0]})
    note = f"{options.rounds} rounds of {options.seconds} s after {options.warm_up:,} messages of warm-up."
    run.keep(("flush", "messages a batch", "in flight"), MEASURES, note)


if __name__ == "__main__":
    main()
