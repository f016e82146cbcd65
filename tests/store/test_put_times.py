"""The times of puts: Java's spans and buckets, and what a burst counts."""

import asyncio

import pytest

from sparrowmq.errors import NotSafeInTime
from sparrowmq.loop.durability import Durability, Requirement
from sparrowmq.loop.watermark import Watermark
from sparrowmq.store.appender import PutTimes
from sparrowmq.testing import ManualClock
from tests.store.stores import message


@pytest.mark.parametrize(
    ("took_ms", "span"),
    [
        (0, 0),
        (1, 1),
        (9, 1),
        (10, 2),
        (99, 3),
        (100, 4),
        (999, 6),
        (1000, 7),
        (4999, 10),
        (9999, 11),
        (10_000, 12),
    ],
)
def test_a_time_is_in_the_span_where_java_puts_it(took_ms: int, span: int) -> None:
    times = PutTimes()
    times.record(took_ms, 3)
    assert [index for index, count in enumerate(times.spans) if count] == [span]
    assert sum(times.spans) == 3 and times.greatest_ms == took_ms


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ({}, 0.99, 0.0),
        ({0: 100}, 0.99, 0.99),  # Java's first bucket holds 0 and 1 ms
        ({0: 900, 30: 100}, 0.99, 28 + 2 * 90 / 100),  # its 25th bucket ends at 30 ms
        ({0: 1, 150: 999}, 0.5, 140 + 10 * 499 / 999),
        ({0: 1, 7000: 1}, 0.999, 1.0),
        ({7000: 1000}, 0.99, 6000 + 1000 * 0.99),
    ],
)
def test_a_quantile_is_what_java_computes(counts: dict[int, int], share: float, expected: float) -> None:
    times = PutTimes()
    for took_ms, count in counts.items():
        times.record(took_ms, count)
    assert times.quantile_ms(share) == pytest.approx(expected)


def test_tools_see_the_last_full_minute() -> None:
    times = PutTimes()
    for now_s in range(60):
        times.sample(now_s)
    times.record(5, 7)
    assert times.spans[1] == 7, "before the first minute is over"
    times.sample(60)
    times.record(700, 2)
    assert (times.spans[1], times.spans[6]) == (7, 0)
    times.sample(119)
    times.sample(120)
    assert (times.spans[1], times.spans[6]) == (0, 2)
    times.sample(180)
    assert sum(times.spans) == 0 and times.greatest_ms == 700


async def test_a_burst_is_counted_when_it_is_safe_and_as_failed_when_it_is_not() -> None:
    times, mark, clock = PutTimes(), Watermark(), ManualClock()
    safety = Durability((Requirement(mark, 10, "on disk"),), clock, 1.0)
    mark.advance(5)
    times.burst(safety, 0.0, 2, 5)
    assert sum(times.spans) == 2
    times.burst(safety, 0.0, 3, 9)
    assert sum(times.spans) == 2
    mark.advance(9)
    assert (sum(times.spans), times.failed) == (5, 0)
    times.burst(safety, 0.0, 4, 20)
    mark.fail(NotSafeInTime(10, "on disk", 1.0))
    assert (sum(times.spans), times.failed) == (9, 4)


async def test_a_running_store_counts_each_put_once(stores) -> None:
    from sparrowmq.loop.turn import Turn

    store = stores.open()
    running = asyncio.ensure_future(store.run(Turn()))
    await asyncio.sleep(0)
    for count in (3, 1, 4):
        for _ in range(count):
            store.append(message())
        await store.flushed.reached(store.end)
    await asyncio.sleep(0)
    assert sum(store.appender.put_times.spans) == 8 and store.appender.count_added()[0] == 8
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
