"""How long something is stored that the disk, a queue or a slave lacks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.broker.replication.slave_link import declare_lags, lag_s
from sparrowmq.testing.clock import ManualClock
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, ManualClock())
    yield desk
    desk.store.close()


async def test_it_counts_from_when_the_first_record_was_stored_that_is_lacking(desk: Desk) -> None:
    places = []
    for _ in range(3):
        places.append(desk.store.end)
        desk.send(b"x" * 100)
        await desk.clock.advance(10)
    now_ms = desk.clock.now_ms()
    assert [lag_s(desk.store, place, now_ms) for place in places] == [30, 20, 10]
    assert lag_s(desk.store, desk.store.end, now_ms) == 0


async def test_who_stands_within_a_record_counts_from_a_later_one(desk: Desk) -> None:
    desk.send(b"x" * 100)
    await desk.clock.advance(10)
    desk.send(b"x" * 100)
    assert lag_s(desk.store, 7, desk.clock.now_ms() + 5000) == 5


async def test_the_blank_end_of_a_file_is_passed_over(desk: Desk) -> None:
    blank = 0
    while desk.store.end < 1 << 20:
        blank = desk.store.end
        desk.send(bytes(100_000))
        await desk.clock.advance(1)
    assert desk.store.record_at(blank) is None and blank < 1 << 20
    assert lag_s(desk.store, blank, desk.clock.now_ms()) == 1


async def test_disk_and_queues_are_followed(desk: Desk) -> None:
    declare_lags(desk.store, desk.clock, desk.figures)
    desk.send(b"x")
    await desk.clock.advance(4)
    assert desk.figures.value("sparrowmq_flush_lag_seconds") == 4
    assert desk.figures.value("sparrowmq_dispatch_lag_seconds") == 0
    desk.store.flush()
    assert desk.figures.value("sparrowmq_flush_lag_seconds") == 0
