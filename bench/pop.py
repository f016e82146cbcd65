"""How many messages a second does a consumer that pops get, beside one that has queues of its own?

    ./run bench pop [--quick] [--messages 200000] [--rounds 5]

The same messages of 128 bytes are in a topic of 4 queues. Each way is a new group that consumes all of them from the
beginning, in a process of its own; ways alternate, and a first round warms up and does not count. The
clock runs from a fifth of the messages on.

queues             `subscribe` with an `async` handler for each message: members have queues of their own
pop                the same with mode="pop"
queues, batches    `subscribe` with batch=256
pop, batches       the same with mode="pop"
simple consumer    `receive(256)` and one `ack` of all that came

CPU of the client is that of its process, CPU of the broker that of its threads meanwhile. The ratio of CPU is what a
machine with other work shows: it adds client and broker, and compares with the same way over queues.

Bound, by hand: beside a pull, each message of a pop is stored as taken and as acknowledged, in memory by runs of
offsets and in the log by one record for each turn of the loop. A pop of 512 messages and its acknowledgement cost a
broker some 100 us more than two pulls of 256: 0.2 us/message. The client holds each message until it is settled, and
makes the acknowledgement: 0.3 us/message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any, Final

import uvloop

import sparrowmq
from bench.results import keep_section, row, spread
from bench.servers import OURS, TOPIC, Peer, serving
from bench.usage import threads_cpu_us

BODY: Final = b"x" * 128
BATCH: Final = 256
LIMIT_S: Final = 300
QUEUES: Final = "queues"
QUEUES_BATCHES: Final = "queues, batches"
AGAINST: Final = {
    QUEUES: QUEUES,
    "pop": QUEUES,
    QUEUES_BATCHES: QUEUES_BATCHES,
    "pop, batches": QUEUES_BATCHES,
    "simple consumer": QUEUES_BATCHES,
}

Figures = dict[str, float]
Rounds = Mapping[str, Sequence[Figures]]  # by way


class Count:
    """Counts the messages of one consumer; its clock runs from a fifth of them on."""

    def __init__(self, messages: int, broker: int) -> None:
        self.done = asyncio.Event()
        self._messages, self._broker = messages, broker
        self._seen = self._before = 0
        self._begin = (0.0, 0.0, 0.0)

    def take(self, count: int) -> None:
        """So many messages more were handled."""
        self._seen += count
        if not self._before and self._seen >= self._messages // 5:
            self._before, self._begin = self._seen, self._now()
        if self._seen >= self._messages:
            self.done.set()

    def figures(self) -> Figures:
        """The figures of the messages that were counted."""
        count = max(1, self._seen - self._before)
        wall_us, own_us, broker_us = (
            (end - begin) / count for end, begin in zip(self._now(), self._begin, strict=True)
        )
        return {"rate": 1e6 / wall_us, "client_us": own_us, "broker_us": broker_us}

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter() * 1e6, time.process_time() * 1e6, threads_cpu_us(self._broker)


async def _subscribed(mq: Any, count: Count, **options: Any) -> None:
    group = f"bench-{time.time_ns()}"

    async def handle(_message: object) -> None:
        count.take(1)

    async def handle_all(messages: list[object]) -> None:
        count.take(len(messages))

    handler = handle_all if "batch" in options else handle
    async with mq.subscribe(TOPIC, handler, group=group, start="earliest", **options):
        await count.done.wait()


async def _received(mq: Any, count: Count) -> None:
    async with mq.simple_consumer(TOPIC, group=f"bench-{time.time_ns()}", start="earliest") as consumer:
        while not count.done.is_set():
            messages = await consumer.receive(BATCH, wait_s=5)
            await consumer.ack(messages)
            count.take(len(messages))


def _way(**options: Any) -> Callable[[Any, Count], Awaitable[None]]:
    return lambda mq, count: _subscribed(mq, count, **options)


WAYS: Final[Mapping[str, Callable[[Any, Count], Awaitable[None]]]] = {
    QUEUES: _way(),
    "pop": _way(mode="pop"),
    QUEUES_BATCHES: _way(batch=BATCH),
    "pop, batches": _way(mode="pop", batch=BATCH),
    "simple consumer": _received,
}


async def consume(way: str, namesrv: str, messages: int, broker: int) -> Figures:
    """Consume so many messages in one way. Raises: TimeoutError."""
    count = Count(messages, broker)
    async with sparrowmq.connect(namesrv) as mq:
        await asyncio.wait_for(WAYS[way](mq, count), LIMIT_S)
        return count.figures()


async def fill(namesrv: str, messages: int) -> None:
    """Send the messages."""
    async with sparrowmq.connect(namesrv) as mq:
        for number in range(messages):
            mq.send_soon(TOPIC, BODY).add_done_callback(lambda future: future.result())
            if number % 64 == 0:
                await mq.drain()
        await mq.flush()


def measure(peer: Peer, way: str, messages: int) -> Figures:
    """One way, in a process of its own. Raises: RuntimeError with what that wrote."""
    asked = ["--run", way, "--namesrv", peer.namesrv, "--messages", str(messages), "--pid", str(peer.pid)]
    command = [sys.executable, "-m", "bench.pop", *asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S)
    with suppress(IndexError, json.JSONDecodeError):
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        return found
    raise RuntimeError(f"{way} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def page(rounds: Rounds) -> str:
    """The table."""
    heads = ["way", "messages/s", "ratio", "client us/message", "broker us/message", "CPU ratio"]
    lines = [row(heads), row(["---"] * len(heads))]
    for way, found in rounds.items():
        against = rounds[AGAINST[way]]
        cells = [[each[key] for each in found] for key in ("rate", "client_us", "broker_us")]
        ratios = [_middle(found, of) / _middle(against, of) for of in (lambda each: each["rate"], _cpu_us)]
        rates, *used = (spread(values) for values in cells)
        lines.append(row([way, rates, f"{ratios[0]:.2f}", *used, f"{ratios[1]:.2f}"]))
    return "\n".join(lines)


def _cpu_us(figures: Figures) -> float:
    return figures["client_us"] + figures["broker_us"]


def _middle(found: Sequence[Figures], of: Callable[[Figures], float]) -> float:
    return median(map(of, found))


def main() -> None:
    options = _options()
    if options.run:
        found = uvloop.run(consume(options.run, options.namesrv, options.messages, options.pid))
        print(json.dumps(found), flush=True)
        return
    rounds: dict[str, list[Figures]] = defaultdict(list)
    with serving(OURS) as broker:
        uvloop.run(fill(broker.namesrv, options.messages))
        for number in range(0 if options.quick else -1, options.rounds):
            for way in WAYS:
                found = measure(broker, way, options.messages)
                print(f"{way:16} {json.dumps({key: round(value, 2) for key, value in found.items()})}")
                if number >= 0:
                    rounds[way].append(found)
    text = f"{page(rounds)}\n\n{options.rounds} rounds of {options.messages:,} messages."
    if options.quick:
        print(text)
    else:
        keep_section("pop", (__doc__ or "").splitlines()[0], text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    parser.add_argument("--run", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", help=argparse.SUPPRESS)
    parser.add_argument("--pid", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages = 1, 20_000
    return options


if __name__ == "__main__":
    main()
