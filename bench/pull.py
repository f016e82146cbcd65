"""How many messages a second does a broker give to consumers, and for how much CPU?

    ./run bench pull [--quick] [--peers ours,apache-4.9.7] [--bodies 128] [--windows 1,4,16]

One connection, PULL_MESSAGE for 32 messages each, over 4 queues from offset 0 to their ends and over again, all in the
file cache. Every body is walked record by record. All brokers run at once and take turns, three rounds.

Bound, by hand: 32 records of 128 bytes are 8.5 KB: at 2 GB/s over loopback 4 us a request, so 7 million messages/s;
with 1 KiB bodies 36 KB and 1.7 million/s. A request is one frame in, one look into a consume queue and one write of
views: 20 us of Python would be 1.6 million messages/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.load import run_load
from bench.results import Measure
from bench.rounds import Run, arguments, numbers
from bench.servers import QUEUES, Peer, create_topic, serving_all


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=numbers, default=(128, 1024), help="body sizes in bytes")
    parser.add_argument("--windows", type=numbers, default=(1, 4, 16), help="requests in flight")
    run = Run("pull", __doc__, parser)
    with serving_all(run.options.peers) as peers:
        for body in run.options.bodies:
            fill(run, peers, body)
            for window in run.options.windows:
                pull = partial(run.load, "pull", topic=topic(body), queues=QUEUES, window=window)
                run.alternate((str(body), str(window)), peers, pull)
    measures = [
        Measure("messages/s", lambda f: f["rate"]),
        Measure("CPU us/message", lambda f: f["broker_cpu_s"] / f["messages"] * 1e6),
        Measure("p50 us/request", lambda f: f["p50_us"], compared=False),
        Measure("p99 us/request", lambda f: f["p99_us"], compared=False),
        Measure("refused", lambda f: f["errors"], compared=False),
    ]
    note = (
        f"{run.options.rounds} rounds of {run.options.seconds} s over {run.options.warm_up:,} messages, "
        "each pulled five times before."
    )
    run.keep(("bytes", "in flight"), measures, note)


def topic(body: int) -> str:
    return f"bench-{body}"


def fill(run: Run, peers: Sequence[Peer], body: int) -> None:
    """Write what is pulled, and pull it until a JVM has seen enough."""
    messages = run.options.warm_up
    for peer in peers:
        create_topic(peer.port, topic(body))
        run_load("send", peer.port, topic=topic(body), queues=QUEUES, body=body, window=256, count=messages)
        run_load("pull", peer.port, topic=topic(body), queues=QUEUES, window=4, count=5 * messages)


if __name__ == "__main__":
    main()
