import asyncio
import threading
from contextlib import suppress
from functools import partial
from itertools import count

import msgspec
import pytest

from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.received_message import Outcome, ReceivedMessage
from sparrowmq.client.consuming.retry import Retry
from sparrowmq.client.consuming.workers import SLICE_S, Workers
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until
from tests.client.consuming.test_received import stored

QUEUE = MessageQueue("t", "a", 1)


class Shop:
    """Has messages for workers, and keeps what they tell of them."""

    def __init__(self, count: int) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[int, Outcome]] = []
        self.waiting = [
            ReceivedMessage(msgspec.structs.replace(stored(), queue_offset=offset), QUEUE, self.tell)
            for offset in range(count)
        ]
        self.closed = asyncio.Event()

    def tell(self, message: ReceivedMessage, outcome: Outcome) -> None:
        self.told.append((message.offset, outcome))

    async def take(self, max_count: int) -> list[ReceivedMessage]:
        if not self.waiting:
            await self.closed.wait()
        return self.take_nowait(max_count)

    def take_nowait(self, max_count: int) -> list[ReceivedMessage]:
        return [self.waiting.pop(0) for _ in range(min(max_count, len(self.waiting)))]

    def workers(self, handler, background: Background, **settings) -> Workers:
        made = Workers(
            handler,
            self.take,
            ConsumerSettings("g", **settings),
            self.clock,
            background.spawn,
            take_nowait=self.take_nowait,
        )
        made.start(settings.get("concurrency", 16))
        return made


@pytest.fixture
async def background():
    async with Background() as started:
        yield started


async def for_ever(message) -> None:
    await asyncio.Event().wait()


async def test_what_a_handler_returns_or_raises_is_told(background):
    def handle(message) -> None:
        if message.offset == 1:
            raise LookupError

    shop = Shop(3)
    shop.workers(handle, background, concurrency=1)
    await until(lambda: len(shop.told) == 3)
    assert shop.told == [(0, Outcome.DONE), (1, Outcome.RETRY), (2, Outcome.DONE)]


class Panic(BaseException):
    """As Rust extensions raise it."""


@pytest.mark.parametrize(
    "error",
    [
        Panic("index out of range"),
        BaseExceptionGroup("parts", [asyncio.CancelledError(), IndexError("index out of range")]),
    ],
)
async def test_a_handler_that_panics_has_failed_and_its_worker_goes_on(background, caplog, error):
    async def handle(message) -> None:
        if message.offset == 0:
            raise error

    shop = Shop(2)
    shop.workers(handle, background, concurrency=1)
    await until(lambda: len(shop.told) == 2)
    assert shop.told == [(0, Outcome.RETRY), (1, Outcome.DONE)] and "index out of range" in caplog.text


async def test_a_handler_that_never_waits_leaves_time_to_others(background):
    handled: list[int] = []

    async def handle(message) -> None:
        handled.append(message.offset)

    shop = Shop(1000)
    shop.clock.monotonic = partial(next, count(step=SLICE_S))  # type: ignore[method-assign]
    shop.workers(handle, background, concurrency=1)
    turns = 0
    while len(handled) < 1000:
        await asyncio.sleep(0)
        turns += 1
    assert turns > 30
    assert handled == list(range(1000))


async def test_a_handler_that_cancels_its_own_task_costs_no_worker(background, caplog):
    async def handle(message) -> None:
        if message.offset < 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0 if message.offset < 3 else 60)

    shop = Shop(4)
    workers = shop.workers(handle, background, concurrency=1)
    await until(lambda: not shop.waiting)
    assert shop.told == [(0, Outcome.CANCELLED), (1, Outcome.CANCELLED), (2, Outcome.DONE)]
    assert caplog.text.count("was cancelled, not by the consumer; these come again: [<message") == 2
    caplog.clear()
    await workers.finish(0.0)
    assert shop.told[3:] == [(3, Outcome.CANCELLED)] and "not by the consumer" not in caplog.text


async def test_a_batch_is_handled_as_a_list(background):
    sizes: list[int] = []
    shop = Shop(5)
    shop.workers(lambda portion: sizes.append(len(portion)), background, concurrency=1, batch=3)
    await until(lambda: len(shop.told) == 5)
    assert sizes == [3, 2]


async def test_a_handler_that_takes_too_long_is_cancelled_and_another_goes_on(background, caplog):
    done: list[int] = []

    async def handle(message) -> None:
        if message.offset == 0:
            await for_ever(message)
        done.append(message.offset)

    shop = Shop(2)
    shop.workers(handle, background, concurrency=1, handler_timeout_s=10.0)
    await shop.clock.advance(9.9)
    assert not shop.told
    await shop.clock.advance(1.1)
    assert shop.told == [(0, Outcome.RETRY), (1, Outcome.DONE)] and done == [1]
    assert "for 10 s; try 1 of 17; it comes again in about 10s; it is here:" in caplog.text


async def test_time_is_counted_for_each_message_alone(background):
    async def handle(message) -> None:
        await shop.clock.sleep(6)

    shop = Shop(4)
    shop.workers(handle, background, concurrency=1, handler_timeout_s=10.0)
    await shop.clock.advance(24)
    assert [outcome for _, outcome in shop.told] == [Outcome.DONE] * 4


@pytest.mark.parametrize(
    ("retry", "outcome"),
    [
        (None, Outcome.RETRY),
        (Retry("1s"), Outcome.RETRY),
        (Retry("1s", never=TimeoutError), Outcome.REJECTED),
    ],
)
async def test_an_ordered_handler_is_cancelled_before_its_message_fails(background, retry, outcome):
    async def handle(message) -> None:
        try:
            await for_ever(message)
        finally:
            ended.append(list(shop.told))

    ended: list[list[object]] = []
    shop = Shop(1)
    shop.workers(handle, background, concurrency=1, ordered=True, handler_timeout_s=10.0, retry=retry)
    await shop.clock.advance(11)
    assert shop.told == [(0, outcome)] and ended == [[]]


@pytest.mark.parametrize(("ordered", "told"), [(False, [(0, Outcome.RETRY), (1, Outcome.DONE)]), (True, [])])
async def test_a_thread_that_takes_too_long_is_reported_and_in_order_waited_for(background, caplog, ordered, told):
    started, go_on = threading.Event(), threading.Event()

    def handle(message) -> None:
        started.set()
        if message.offset == 0:
            go_on.wait(20)

    shop = Shop(2)
    shop.workers(handle, background, concurrency=1, ordered=ordered, handler_timeout_s=10.0)
    await asyncio.to_thread(started.wait, 10)
    await shop.clock.advance(11)
    await until(lambda: shop.told == told)
    assert "has had" in caplog.text
    go_on.set()
    await until(lambda: len(shop.told) == 2)


async def test_a_handler_that_returns_a_generator_has_failed(background, caplog):
    async def later(message):
        return (each for each in [message])

    shop = Shop(2)
    shop.workers(later, background, concurrency=1)
    await until(lambda: len(shop.told) == 2)
    assert shop.told == [(0, Outcome.RETRY), (1, Outcome.RETRY)] and "write it without `yield`" in caplog.text


@pytest.mark.parametrize(("result", "told"), [(False, 1), ("RECONSUME_LATER", 1), (True, 0), (None, 0)])
async def test_a_result_of_a_handler_is_said_once_to_decide_nothing(background, caplog, result, told):
    async def handle(message):
        return result

    shop = Shop(3)
    shop.workers(handle, background, concurrency=1)
    await until(lambda: len(shop.told) == 3)
    assert {outcome for _, outcome in shop.told} == {Outcome.DONE}
    assert caplog.text.count(f"returned {result!r}, which is ignored") == told


async def test_a_handler_may_ask_for_more_time(background):
    async def handle(message) -> None:
        message.extend(20)
        await shop.clock.sleep(25)

    shop = Shop(1)
    shop.workers(handle, background, concurrency=1, handler_timeout_s=10.0)
    await shop.clock.advance(26)
    assert shop.told == [(0, Outcome.DONE)]


async def test_the_log_says_where_a_handler_is_that_takes_too_long(background, caplog):
    begun, release = threading.Event(), threading.Event()

    async def inner() -> None:
        await for_ever(None)  # here in the loop

    async def handle(message) -> None:
        await inner()

    def block(message) -> None:
        begun.set()
        release.wait(20)  # here in a thread

    loop, threads = Shop(1), Shop(1)
    loop.workers(handle, background, concurrency=1, handler_timeout_s=10.0)
    threads.workers(block, background, concurrency=1, handler_timeout_s=10.0)
    await loop.clock.advance(11)
    await until(begun.is_set)
    await threads.clock.advance(11)
    await until(lambda: threads.told)
    release.set()
    assert "# here in the loop" in caplog.text and "# here in a thread" in caplog.text


async def test_a_handler_that_takes_too_long_follows_the_rules_for_retries(background):
    shop = Shop(1)
    rules = Retry("1s", never=TimeoutError)
    shop.workers(for_ever, background, concurrency=1, handler_timeout_s=10.0, retry=rules)
    await shop.clock.advance(11)
    assert shop.told == [(0, Outcome.REJECTED)]


async def test_without_a_limit_nobody_looks(background):
    shop = Shop(1)
    shop.workers(for_ever, background, concurrency=1, handler_timeout_s=None)
    await shop.clock.advance(hours=1)
    assert not shop.told and not shop.clock._timers


async def test_the_end_waits_for_handlers_and_cancels_those_that_go_on(background, caplog):
    async def handle(message) -> None:
        await (shop.clock.sleep(1) if message.offset else for_ever(message))

    shop = Shop(2)
    workers = shop.workers(handle, background, concurrency=2)
    await shop.clock.advance(0)
    shop.closed.set()
    finishing = asyncio.ensure_future(workers.finish(5.0))
    await shop.clock.advance(4.9)
    assert not finishing.done() and shop.told == [(1, Outcome.DONE)]
    await shop.clock.advance(0.1)
    await finishing
    assert shop.told == [(1, Outcome.DONE), (0, Outcome.CANCELLED)] and "are cut short" in caplog.text


async def test_a_handler_that_wraps_its_cancellation_is_cancelled_all_the_same(background, caplog):
    async def handle(message) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise BaseExceptionGroup("parts", [error, LookupError("no such shop")]) from None

    shop = Shop(1)
    workers = shop.workers(handle, background, concurrency=1)
    await until(lambda: not shop.waiting)
    await workers.finish(grace_s=0)
    assert shop.told == [(0, Outcome.CANCELLED)] and "no such shop" in caplog.text


async def test_a_handler_that_ignores_its_cancellation_is_named(background, caplog):
    released = asyncio.Event()

    async def deaf(message) -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    shop = Shop(1)
    workers = shop.workers(deaf, background, concurrency=1)
    await shop.clock.advance(0)
    finishing = asyncio.ensure_future(workers.finish(0.0))
    await shop.clock.advance(1)
    await finishing
    assert "ignore cancellation" in caplog.text and "await released.wait()" in caplog.text
    released.set()


@pytest.mark.covers("S-START-08")
@pytest.mark.parametrize("in_threads", [False, True])
async def test_more_or_fewer_handlers_run_as_soon_as_it_is_wanted(background, in_threads):
    gates = [threading.Event() for _ in range(20)]

    async def handle(message) -> None:
        await until(gates[message.offset].is_set)

    shop = Shop(20)
    handler = (lambda message: gates[message.offset].wait(20)) if in_threads else handle
    workers = shop.workers(handler, background, concurrency=2)
    await until(lambda: len(shop.waiting) == 18)
    workers.resize(5)
    await until(lambda: len(shop.waiting) == 15)
    workers.resize(1)
    assert not shop.told, "none is cut short"
    for gate in gates[:5]:
        gate.set()
    await until(lambda: len(shop.told) == 5 and len(workers._workers) == 1 and len(shop.waiting) == 14)
    for gate in gates:
        gate.set()
    await until(lambda: len(shop.told) == 20)
    assert {outcome for _, outcome in shop.told} == {Outcome.DONE}


async def test_handlers_that_are_idle_go_at_once_and_the_others_are_waited_for(background):
    shop = Shop(1)

    # A plain function would run in a thread, and perhaps begin to sleep after the clock moved.
    async def sleep(message):
        await shop.clock.sleep(1)

    workers = shop.workers(sleep, background, concurrency=3)
    await until(lambda: not shop.waiting)
    workers.resize(1)
    workers.resize(2)
    workers.resize(1)
    await until(lambda: len(workers._workers) == 1)
    finishing = asyncio.ensure_future(workers.finish(5.0))
    shop.closed.set()
    await shop.clock.advance(1)
    await finishing
    assert shop.told == [(0, Outcome.DONE)]


async def test_one_that_takes_too_long_and_is_one_too_many_has_no_successor(background):
    shop = Shop(2)
    workers = shop.workers(for_ever, background, concurrency=2, handler_timeout_s=10.0)
    await shop.clock.advance(0)
    workers.resize(1)
    await shop.clock.advance(11)
    await until(lambda: len(shop.told) == 2)
    assert sum(not worker.is_expired for worker in workers._workers) == 1
