"""Handlers that survive bad data: messages that are refused, retried by rules, or given more time, at a real broker."""

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

import sparrowmq.sync
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.retry import Reject, Retry
from sparrowmq.errors import ConfigError, InvalidMessage
from tests.client.conftest import until


@dataclass
class Order:
    id: str


async def letters(mq, group: str = "g") -> list[tuple[bytes, str]]:
    """The dead letters of a group, with their reasons."""
    try:
        found = await mq.admin.dead_letters(group)
    except sparrowmq.NoRoute:
        return []
    return [(letter.body, letter.properties["REJECT_REASON"]) for letter in found]


async def buried(mq, count: int = 1) -> list[tuple[bytes, str]]:
    async with asyncio.timeout(10):
        while len(found := await letters(mq)) < count:
            await asyncio.sleep(0.01)
    return sorted(found)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("way", ["method", "exception", "loop"])
async def test_a_rejected_message_is_a_dead_letter_at_once_and_the_others_go_on(mq, ordered, way):
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            if way == "method":
                message.reject("no such customer")
            else:
                raise Reject("no such customer")

    for body in (b"bad", b"good"):
        await mq.send("orders", body, fifo="x")
    options = {"group": "g", "ordered": ordered, "start": "earliest"}
    async with mq.subscribe("orders", None if way == "loop" else handle, **options) as orders:
        if way == "loop":
            async for message in orders:
                async with message.process():
                    await handle(message)
                if len(seen) == 2:
                    break
        assert await buried(mq) == [(b"bad", "no such customer")]
        await until(lambda: seen == [b"bad", b"good"])
        await until(lambda: sum(orders.position(queue) for queue in orders.queues) == 2)


async def test_a_body_that_does_not_fit_is_rejected_by_the_rules(mq, caplog):
    seen: list[Order] = []

    @mq.handler("orders", group="g", start="earliest", retry=Retry("1s", never=InvalidMessage))
    async def handle(order: Order) -> None:
        seen.append(order)

    await mq.send("orders", b"{}")
    await mq.send("orders", b'{"id": "o-1"}')
    serving = asyncio.ensure_future(mq.serve())
    [(body, reason)] = await buried(mq)
    await until(lambda: seen == [Order("o-1")])
    serving.cancel()
    assert body == b"{}" and "is not what its handler takes" in reason and "missing required field" in reason


@pytest.mark.parametrize("ordered", [False, True])
async def test_retries_come_exactly_after_their_delays_and_end_as_a_dead_letter(mq, ordered):
    times: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        times.append(time.monotonic())
        raise LookupError(f"no customer at {message.reconsume_times}")

    rules = Retry(0.3, 0.6, never=ValueError)
    await mq.send("orders", b"x")
    async with mq.subscribe("orders", handle, group="g", ordered=ordered, retry=rules, start="earliest"):
        [(_, reason)] = await buried(mq)
    assert reason == "failed 3 times: LookupError: no customer at 2"
    first, second, third = times
    assert 0.3 <= second - first < 0.9 and 0.6 <= third - second < 1.2


async def test_in_a_broadcast_group_there_are_no_retries_and_a_rejected_message_is_dropped(mq, tmp_path, caplog):
    with pytest.raises(ConfigError, match="broadcast messages are not retried: leave out retry="):
        mq.subscribe("orders", group="g", broadcast=True, retry=Retry("1s"))
    await mq.send("orders", b"x")
    for ordered in (False, True):
        options = {"group": f"g{ordered}", "broadcast": True, "ordered": ordered, "offset_folder": tmp_path}
        async with mq.subscribe("orders", start="earliest", **options) as orders:
            (await anext(orders)).reject("no such customer")
            await until(lambda: sum(orders.position(queue) for queue in orders.queues) == 1)
    assert caplog.text.count("dropping") == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"retry": 3}, r"retry=3: give Retry\("),
        ({"max_reconsume_times": 3}, "leave out max_reconsume_times="),
    ],
)
async def test_rules_that_say_nothing_or_too_much_are_refused(mq, given, words):
    with pytest.raises(ConfigError, match=words):
        mq.subscribe("orders", group="g", **({"retry": Retry("1s")} | given))


async def test_plain_handlers_run_at_once_and_do_not_stop_the_loop(mq):
    threads: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        time.sleep(0.1)
        done.append(message.offset)

    done: list[int] = []
    longest = last = 0.0
    await mq.send_many([sparrowmq.Message("orders", b"x")] * 32)
    began = time.monotonic()
    async with mq.subscribe("orders", handle, group="g", concurrency=16, start="earliest"):
        last = time.monotonic()
        while len(done) < 32:
            await asyncio.sleep(0.001)
            last, longest = time.monotonic(), max(longest, time.monotonic() - last)
    assert time.monotonic() - began < 1.6 and len(threads) == 16, "3.2 s one after the other"
    assert longest < 0.1, "the loop went on"


async def test_an_ordered_plain_handler_has_one_thread_at_a_time_for_each_queue(mq):
    running: dict[int, int] = {}
    most, seen = 0, list[tuple[int, int]]()
    lock = threading.Lock()

    def handle(message: ReceivedMessage) -> None:
        nonlocal most
        with lock:
            running[message.queue.queue_id] = running.get(message.queue.queue_id, 0) + 1
            most = max(most, *running.values())
        time.sleep(0.01)
        with lock:
            running[message.queue.queue_id] -= 1
            seen.append((message.queue.queue_id, message.offset))

    queues = await mq.queues("orders") if await mq.admin.create_topic("orders", queues=4) else []
    queues = queues or await mq.queues("orders")
    for number in range(40):
        await mq.send("orders", b"%d" % number, queue=queues[number % 4])
    async with mq.subscribe("orders", handle, group="g", ordered=True, start="earliest"):
        await until(lambda: len(seen) == 40)
    assert most == 1
    for queue in range(4):
        offsets = [offset for each, offset in seen if each == queue]
        assert offsets == sorted(offsets)


async def test_middleware_runs_in_the_loop_around_a_plain_handler_in_a_thread(mq):
    seen: list[tuple[str, bool]] = []

    def note(where: str) -> None:
        seen.append((where, threading.current_thread() is threading.main_thread()))

    @mq.middleware
    async def around(delivered, call_next):
        note("before")
        await call_next(delivered)
        note("after")

    @mq.handler("orders", group="g", start="earliest")
    def handle(body: str) -> None:
        note(body)

    await mq.send("orders", b"x")
    serving = asyncio.ensure_future(mq.serve())
    await until(lambda: len(seen) == 3)
    serving.cancel()
    assert seen == [("before", True), ("x", False), ("after", True)]


def test_the_blocking_client_has_the_same(rocketmq_server, rocketmq_topic):
    seen: list[str] = []
    with sparrowmq.sync.connect(rocketmq_server) as mq:

        def handle(message: ReceivedMessage) -> None:
            seen.append(message.text())
            message.extend(5)
            if message.text() == "bad":
                raise Reject("no such customer")
            if len(seen) < 3:
                raise LookupError

        mq.send(rocketmq_topic, b"bad")
        mq.send(rocketmq_topic, b"late")
        rules = Retry(0.1, times=3)
        with mq.subscribe(rocketmq_topic, handle, group="sync-bad", retry=rules, start="earliest"):
            deadline = time.monotonic() + 10
            while seen.count("late") < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        with mq.subscribe(rocketmq_topic, group="sync-loop", start="earliest") as orders:
            for number, message in enumerate(orders, 1):
                with message.process():
                    raise Reject("not at all")
                if number == 2:
                    break
        assert sorted(seen)[:2] == ["bad", "late"] and seen.count("bad") == 1
        assert [letter.body for letter in mq.admin.dead_letters("sync-bad")] == [b"bad"]
        deadline = time.monotonic() + 10
        while len(mq.admin.dead_letters("sync-loop")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
