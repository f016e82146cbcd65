"""What holds the loop up is seen."""

import asyncio
import gc
import time

from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pauses import Pauses
from tests.metrics.test_page import read


async def test_a_loop_that_is_held_up_and_a_collection_are_counted(monkeypatch):
    monkeypatch.setattr("sparrowmq.metrics.pauses._PERIOD_S", 0.01)
    pauses = Pauses()
    task = asyncio.create_task(pauses.run())
    await asyncio.sleep(0)
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass  # the loop is held up, which is what is measured
    gc.collect()
    while not _count(pauses, "sparrowmq_loop_lag_seconds"):
        await asyncio.sleep(0)
    assert _late(pauses) >= 0.03
    assert _count(pauses, "sparrowmq_gc_pause_seconds") >= 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    before = _count(pauses, "sparrowmq_gc_pause_seconds")
    gc.collect()
    assert _count(pauses, "sparrowmq_gc_pause_seconds") == before


def _told(pauses: Pauses) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    page = Page({}, most=1)
    pauses.tell(page)
    return read(page)


def _count(pauses: Pauses, name: str) -> float:
    return _told(pauses)[f"{name}_count"][()]


def _late(pauses: Pauses) -> float:
    return _told(pauses)["sparrowmq_loop_lag_seconds_sum"][()]
