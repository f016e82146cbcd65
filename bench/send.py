"""How many messages a second does a broker take, at what latency, and for how much CPU?

    ./run bench send [--quick] [--peers ours,apache-4.9.7] [--flush ASYNC_FLUSH] [--bodies 128] [--windows 1,64]

One connection, SEND_MESSAGE_V2, 4 queues. All brokers run at once, warmed with 600,000 messages each (a young JVM is
two to three times slower); then each measurement takes its turn with every broker, three rounds.

Bound, by hand: 64 in flight and 128 bytes are some 0.6 KB of frame in, 0.25 KB out, 0.3 KB to the log: 150 MB/s at
130,000 messages/s, which neither loopback nor memory feels. The generator takes 2 to 3 us of a core a message, system
calls included. So it is the broker's own CPU: 4 us a message are at most 250,000/s on one core. With SYNC_FLUSH and
one in flight a message costs one fdatasync (0.1 ms or more); with more in flight a sync carries them all, so the rate
is window / (sync + work). `--peers ours,ours-source` shows what compiling is worth,
`--peers ours,before:PATH` what a change does to another checkout, `--peers ours,ours+acl,apache-4.9.7+acl` what access
control costs: the generator signs then, in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from bench.load import run_load
from bench.results import Measure
from bench.rounds import Run, arguments, names, numbers
from bench.servers import QUEUES, TOPIC, Peer, serving, serving_all

MEASURES: Final = (
    Measure("messages/s", lambda f: f["rate"]),
    Measure("CPU us/message", lambda f: f["broker_cpu_s"] / f["messages"] * 1e6),
    Measure("p50 us", lambda f: f["p50_us"], compared=False),
    Measure("p99 us", lambda f: f["p99_us"], compared=False),
    Measure("refused", lambda f: f["errors"], compared=False),
)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--flush", type=names, default=("ASYNC_FLUSH", "SYNC_FLUSH"))
    parser.add_argument("--bodies", type=numbers, default=(128, 1024), help="body sizes in bytes")
    parser.add_argument("--windows", type=numbers, default=(1, 16, 64, 256), help="requests in flight")
    run = Run("send", __doc__, parser)
    for flush in run.options.flush:
        measure_sends(run, flush, "window", run.options.windows)
    options = run.options
    note = f"{options.rounds} rounds of {options.seconds} s after {options.warm_up:,} messages of warm-up."
    run.keep(("flush", "bytes", "in flight"), MEASURES, note)


def measure_sends(
    run: Run,
    flush: str,
    option: str,
    values: Sequence[int],
    serve: Callable[[str, str], AbstractContextManager[Peer]] = serving,
) -> None:
    """Every broker with each body and each value of one of the load's options, `window` or `connections`."""
    cases = {
        (str(body), str(value)): {"window": 1, option: value, "body": body}
        for body in run.options.bodies
        for value in values
    }
    measure_cases(run, flush, cases, {"window": 256}, serve)


def measure_cases(
    run: Run,
    flush: str,
    cases: Mapping[tuple[str, str], dict[str, Any]],
    warm_up: dict[str, Any],
    serve: Callable[[str, str], AbstractContextManager[Peer]] = serving,
) -> None:
    """Every broker with the load of each case, after a warm-up with a load of its own."""
    with serving_all(run.options.peers, flush, serve) as peers:
        for peer in peers:
            options = warm_up | {"count": run.options.warm_up}
            run_load("send", peer.port, topic=TOPIC, queues=QUEUES, **options, **peer.asked)
        for case, load in cases.items():
            send = partial(run.load, "send", topic=TOPIC, queues=QUEUES, **load)
            run.alternate((flush.removesuffix("_FLUSH"), *case), peers, send)


if __name__ == "__main__":
    main()
