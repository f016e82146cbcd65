"""How many messages a second does our client send and consume, beside the C++ client under its Python binding?

    ./run bench client [--quick] [--messages 50000] [--rounds 3]

Both are driven from Python, each in a process of its own, with bodies of 128 bytes, against one broker of ours (4
queues, asynchronous flush); rounds alternate between them. "in turn" waits for each answer before the next send;
"pipelined" is ours alone (`send_soon`, 512 in flight), for the binding has no such thing. Consumers begin a new
group at the topic's beginning; the clock runs from their first message to their last.

Bound, by hand: a pipelined send is some 12 us of Python here and 9 us at the broker, on a core each: 80,000/s. In
turn it is both plus two passages through the kernel, 60 to 100 us: 10,000 to 16,000/s. Consuming is 5 us a
message, most of it for taking the record apart: 200,000/s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from statistics import median
from typing import Any, Final

from bench.peers import OURS, TOPIC, serving
from bench.results import keep_section

BODY: Final = b"x" * 128
CPP: Final = "C++ client"
MINE: Final = "ours"
LIMIT_S: Final = 120
CHECK_EVERY: Final = 64

Figures = dict[str, float]


def main() -> None:
    options = _options()
    if options.run:
        print(json.dumps(WAYS[options.run](options.namesrv, options.messages)), flush=True)
        return
    figures: dict[str, list[Figures]] = defaultdict(list)
    with serving(OURS) as broker:
        for _ in range(options.rounds):
            for way in WAYS:
                found = _in_a_process(way, broker.namesrv, options.messages)
                figures[way].append(found)
                print(
                    f"{way:28} {found['rate']:10,.0f}/s {found['cpu_us']:6.1f} us CPU a message", flush=True
                )
    text = _table(figures)
    if options.quick:
        print(text)
    else:
        note = f"{options.rounds} rounds of {options.messages:,} messages."
        keep_section("client", __doc__.splitlines()[0], f"{text}\n\n{note}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages = 1, 10_000
    return options


def _in_a_process(way: str, namesrv: str, messages: int) -> Figures:
    command = [
        sys.executable,
        "-m",
        "bench.client",
        "--run",
        way,
        "--namesrv",
        namesrv,
        "--messages",
        str(messages),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    with suppress(IndexError, json.JSONDecodeError):
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        return found
    raise RuntimeError(f"{way} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


class Stopwatch:
    """Elapsed and CPU time for a number of messages."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def figures(self, messages: int) -> Figures:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"rate": messages / wall, "cpu_us": cpu / messages * 1e6}


# Ours ---------------------------------------------------------------------------------------------------------------


def _ours(use: Callable[[Any, int], Awaitable[Figures]]) -> Callable[[str, int], Figures]:
    def run(namesrv: str, messages: int) -> Figures:
        import uvloop

        import sparrowmq

        async def live() -> Figures:
            async with sparrowmq.connect(namesrv) as mq:
                return await use(mq, messages)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live())

    return run


async def _send_pipelined(mq: Any, messages: int) -> Figures:
    await mq.send(TOPIC, BODY)
    watch = Stopwatch()
    for number in range(messages):
        mq.send_soon(TOPIC, BODY, tag="a").add_done_callback(_must_succeed)
        if number % CHECK_EVERY == 0:
            await mq.drain()
    await mq.flush()
    return watch.figures(messages)


async def _send_in_turn(mq: Any, messages: int) -> Figures:
    await mq.send(TOPIC, BODY)
    watch = Stopwatch()
    for _ in range(messages // 10):
        await mq.send(TOPIC, BODY, tag="a")
    return watch.figures(messages // 10)


async def _send_oneway(mq: Any, messages: int) -> Figures:
    await mq.send(TOPIC, BODY)
    watch = Stopwatch()
    for number in range(messages):
        mq.send_nowait(TOPIC, BODY, tag="a")
        if number % CHECK_EVERY == 0:
            await mq.drain()
            await asyncio.sleep(0)
    await mq.flush()
    await mq.send(TOPIC, BODY)  # behind all others
    return watch.figures(messages)


async def _consume(mq: Any, messages: int) -> Figures:
    count, watch, done = 0, Stopwatch(), asyncio.Event()

    def handle(_message: object) -> None:
        nonlocal count, watch
        count += 1
        if count == 1:
            watch = Stopwatch()
        elif count == messages:
            done.set()

    async with mq.subscribe(TOPIC, handle, group=f"ours-{time.time_ns()}", start="earliest"):
        await asyncio.wait_for(done.wait(), LIMIT_S)
        return watch.figures(messages - 1)


def _must_succeed(future: asyncio.Future[Any]) -> None:
    future.result()


# The C++ client -----------------------------------------------------------------------------------------------------


def _cpp_producer(namesrv: str) -> tuple[Any, Any]:
    from rocketmq.client import Message, Producer

    producer = Producer("bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    message = Message(TOPIC)
    message.set_tags("a")
    message.set_body(BODY)
    return producer, message


def _cpp_send_in_turn(namesrv: str, messages: int) -> Figures:
    producer, message = _cpp_producer(namesrv)
    producer.send_sync(message)
    watch = Stopwatch()
    for _ in range(messages // 10):
        producer.send_sync(message)
    figures = watch.figures(messages // 10)
    producer.shutdown()
    return figures


def _cpp_send_oneway(namesrv: str, messages: int) -> Figures:
    producer, message = _cpp_producer(namesrv)
    producer.send_sync(message)
    watch = Stopwatch()
    for _ in range(messages):
        producer.send_oneway(message)
    producer.send_sync(message)
    figures = watch.figures(messages)
    producer.shutdown()
    return figures


def _cpp_consume(namesrv: str, messages: int) -> Figures:
    from rocketmq.client import PushConsumer

    count, watch = 0, Stopwatch()
    found: list[Figures] = []

    def handle(_message: object) -> None:
        nonlocal count, watch
        count += 1
        if count == 1:
            watch = Stopwatch()
        elif count == messages:
            found.append(watch.figures(messages - 1))

    consumer = PushConsumer(f"cpp-{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(TOPIC, handle)
    consumer.start()
    deadline = time.monotonic() + LIMIT_S - 10
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
    consumer.shutdown()
    return found[0]


WAYS: Final[dict[str, Callable[[str, int], Figures]]] = {
    f"{MINE}: send pipelined": _ours(_send_pipelined),
    f"{MINE}: send in turn": _ours(_send_in_turn),
    f"{CPP}: send in turn": _cpp_send_in_turn,
    f"{MINE}: send one-way": _ours(_send_oneway),
    f"{CPP}: send one-way": _cpp_send_oneway,
    f"{MINE}: consume": _ours(_consume),
    f"{CPP}: consume": _cpp_consume,
}
# The binding's quickest answered send is its only one.
RIVALS: Final = {"send pipelined": "send in turn"}


def _table(figures: dict[str, list[Figures]]) -> str:
    lines = ["| what | messages/s | CPU us/message | times the C++ client |", "|---|---|---|---|"]
    for way, rounds in figures.items():
        who, what = way.split(": ")
        rates = [found["rate"] for found in rounds]
        rival = figures[f"{CPP}: {RIVALS.get(what, what)}"]
        ratio = median(rates) / median(found["rate"] for found in rival)
        cpu_us = median(found["cpu_us"] for found in rounds)
        shown = f"{median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
        lines.append(f"| {who}, {what} | {shown} | {cpu_us:.1f} | {ratio:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
