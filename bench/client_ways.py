"""The ways of sending and consuming that `bench client` compares, each run in a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.servers import TOPIC
from tests.interop import kits

BODY: Final = b"x" * 128
LIMIT_S: Final = 120
CHECK_EVERY: Final = 64
BATCH: Final = 256
JAVA_CLIENT: Final = "4.9.8"
JAVA_PROGRAM: Final = Path(__file__).with_name("SendInTurn.java")

Figures = dict[str, float]


class Stopwatch:
    """Elapsed and CPU time for a number of messages."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def figures(self, messages: int, latencies_s: Sequence[float] = ()) -> Figures:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        found = {"rate": messages / wall, "cpu_us": cpu / messages * 1e6}
        if latencies_s:
            found["p99_us"] = sorted(latencies_s)[len(latencies_s) * 99 // 100] * 1e6
        return found


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


async def _send_gathered(mq: Any, messages: int) -> Figures:
    await mq.send(TOPIC, BODY)
    count = messages * 2 // 5
    watch = Stopwatch()
    await asyncio.gather(*(mq.send(TOPIC, BODY, tag="a", timeout_s=LIMIT_S) for _ in range(count)))
    return watch.figures(count)


async def _send_in_turn(mq: Any, messages: int) -> Figures:
    await mq.send(TOPIC, BODY)
    latencies_s = []
    watch = Stopwatch()
    for _ in range(messages // 10):
        began = time.perf_counter()
        await mq.send(TOPIC, BODY, tag="a")
        latencies_s.append(time.perf_counter() - began)
    return watch.figures(messages // 10, latencies_s)


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

    async def handle(_message: object) -> None:
        nonlocal count, watch
        count += 1
        if count == 1:
            watch = Stopwatch()
        elif count == messages:
            done.set()

    async with mq.subscribe(TOPIC, handle, group=f"ours-{time.time_ns()}", start="earliest"):
        await asyncio.wait_for(done.wait(), LIMIT_S)
        return watch.figures(messages - 1)


async def _consume_batches(mq: Any, messages: int) -> Figures:
    count, watch, done = 0, Stopwatch(), asyncio.Event()

    async def handle(portion: list[object]) -> None:
        nonlocal count, watch
        if not count:
            watch = Stopwatch()
        count += len(portion)
        if count >= messages:
            done.set()

    group = f"ours-{time.time_ns()}"
    async with mq.subscribe(TOPIC, handle, group=group, start="earliest", batch=BATCH):
        await asyncio.wait_for(done.wait(), LIMIT_S)
        return watch.figures(count)


async def _poll(mq: Any, messages: int) -> Figures:
    async with mq.pull_consumer(group=f"ours-{time.time_ns()}", start="earliest") as reader:
        reader.assign(await reader.queues(TOPIC))
        count = len(await reader.poll())
        before, watch = count, Stopwatch()
        while count < messages:
            count += len(await reader.poll())
        return watch.figures(count - before)


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
    latencies_s = []
    watch = Stopwatch()
    for _ in range(messages // 10):
        began = time.perf_counter()
        producer.send_sync(message)
        latencies_s.append(time.perf_counter() - began)
    figures = watch.figures(messages // 10, latencies_s)
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


# The Java client ----------------------------------------------------------------------------------------------------


def _java_send_in_turn(namesrv: str, messages: int) -> Figures:
    """Warmed up by as many sends as are measured. Raises: PeerMissing."""
    classes = f"{kits.client_jars(JAVA_CLIENT)}/*"
    command = [kits.java(), "-cp", classes, str(JAVA_PROGRAM), namesrv, TOPIC, str(messages // 10)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    with suppress(IndexError, json.JSONDecodeError):
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        return found
    raise RuntimeError(f"{JAVA_PROGRAM.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


OURS: Final = "ours"
CPP: Final = "C++ client"
JAVA: Final = "Java client"

WAYS: Final[dict[str, Callable[[str, int], Figures]]] = {
    f"{OURS}: send pipelined": _ours(_send_pipelined),
    f"{OURS}: send gathered": _ours(_send_gathered),
    f"{OURS}: send in turn": _ours(_send_in_turn),
    f"{CPP}: send in turn": _cpp_send_in_turn,
    f"{JAVA}: send in turn": _java_send_in_turn,
    f"{OURS}: send one-way": _ours(_send_oneway),
    f"{CPP}: send one-way": _cpp_send_oneway,
    f"{OURS}: consume": _ours(_consume),
    f"{OURS}: consume batches": _ours(_consume_batches),
    f"{OURS}: poll": _ours(_poll),
    f"{CPP}: consume": _cpp_consume,
}
