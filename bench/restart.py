"""How long does a broker that was killed take until it serves again?

    ./run bench restart [--quick] [--peers ours,apache-4.9.7] [--messages 2000000] [--sparse-gib 100]

Each broker takes messages of 128 bytes with 64 in flight, files of the usual sizes, and is killed (SIGKILL) while they
come; it serves again when it says so, and is registered with its name server. What it had told of its queues must be
there. Then it is killed at once, and started again: what the first start mended the second one need not. Last, ours is
given a log that is `--sparse-gib` longer, of sparse files, takes a quarter of the messages, and is killed once more.

Bound, by hand: a Python that imports all takes 0.3 s. To read 16 MiB and check 55,000 records takes 0.05 s; up to
32 MiB behind the last checkpoint are 0.3 s of queue and index.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.load import LoadFailed, run_load
from bench.results import Measure
from bench.rounds import Run, arguments
from bench.servers import OURS, QUEUES, TOPIC, Peer, create_topic, serving
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.layout import offset_name
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.interop.kits import PeerMissing
from tests.interop.wire import Wire

GET_MAX_OFFSET = 30
FILE_SIZE = 1 << 30


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=1)
    parser.add_argument("--messages", type=int, default=2_000_000, help="sent before the first kill")
    parser.add_argument("--sparse-gib", type=int, default=100, help="length of the log before the last kill")
    run = Run("restart", __doc__, parser)
    messages = 100_000 if run.options.quick else run.options.messages
    for _round in range(run.options.rounds):
        for name in run.options.peers:
            try:
                run.figures[()][name].append(measure(name, messages, run.options.sparse_gib))
                print(f"restart {name} {run.figures[()][name][-1]}", flush=True)
            except PeerMissing as missing:
                print(f"{name} is left out: {missing}")
    measures = [
        Measure("serves again after s", lambda f: f["killed"]),
        Measure("killed at once again: s", lambda f: f["again"]),
        Measure(f"log of {run.options.sparse_gib} GiB: s", lambda f: f["long"], compared=False),
        Measure("answered and lost", lambda f: f["lost"], compared=False),
    ]
    note = (
        f"{run.options.rounds} rounds; {messages:,} messages of 128 bytes before the first kill, ASYNC_FLUSH; "
        "the long log is ours alone."
    )
    run.keep((), measures, note)


def measure(name: str, messages: int, sparse_gib: int) -> dict[str, Any]:
    with serving(name) as peer:
        answered = send_until_killed(peer, messages)
        first = serves_again(peer)
        stored = messages_in(peer)
        again = serves_again(peer)
        figures = {"killed": first, "again": again, "long": 0.0, "lost": max(0, answered - stored)}
        if name == OURS and sparse_gib:
            peer.kill()
            lengthen(peer.store, sparse_gib)
            peer.start()
            create_topic(peer.port, TOPIC)
            send_until_killed(peer, messages // 4)
            figures["long"] = serves_again(peer)
        return figures


def send_until_killed(peer: Peer, messages: int) -> int:
    """Send, and kill the broker under load once it has so many; how many it had answered at least."""
    more = threading.Thread(target=keep_sending, args=(peer,))
    run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=64, count=messages)
    more.start()
    while messages_in(peer) < messages + 1000:
        time.sleep(0.01)
    answered = messages_in(peer)
    peer.kill()
    more.join()
    return answered


def keep_sending(peer: Peer) -> None:
    """Until the broker is gone."""
    with suppress(LoadFailed):
        run_load("send", peer.port, topic=TOPIC, queues=QUEUES, window=64, count=1 << 30)


def serves_again(peer: Peer) -> float:
    """Start the broker, killed before if it still runs; seconds until it listens and answers."""
    peer.kill()
    begin = time.monotonic()
    peer.start()
    return time.monotonic() - begin


def messages_in(peer: Peer) -> int:
    """How many messages the broker's queues tell."""
    with Wire(peer.port) as wire:
        asked = ({"topic": TOPIC, "queueId": queue_id} for queue_id in range(QUEUES))
        return sum(int(wire.ask(GET_MAX_OFFSET, fields).fields["offset"]) for fields in asked)


def lengthen(store: Path, gib: int) -> None:
    """Make the store anew, with a log that ends there, in files that hold nothing."""
    shutil.rmtree(store)
    with MessageStore.open(StoreSettings(store)) as made:
        made.begin_at(gib * FILE_SIZE)
        made.append(Entry(TOPIC, 0, b"first", Properties(), 0, made.settings.store_host))
    for number in range(gib):
        path = store / "commitlog" / offset_name(number * FILE_SIZE)
        path.touch()
        os.truncate(path, FILE_SIZE)


if __name__ == "__main__":
    main()
