"""What holds the loop up is seen."""

import asyncio
import gc
import time

from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_port import Pauses
from tests.metrics.test_series import read


async def test_a_loop_that_is_held_up_and_a_collection_are_counted(monkeypatch):
    monkeypatch.setattr("sparrowmq.metrics.metrics_port._LOOP_CHECK_PERIOD_S", 0.01)
    figures = Figures()
    pauses = Pauses(figures)
    task = asyncio.create_task(pauses.run())
    await asyncio.sleep(0)
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass  # the loop is held up, which is what is measured
    gc.collect()
    while not _count(figures, "sparrowmq_loop_lag_seconds"):
        await asyncio.sleep(0)
    assert read(figures)["sparrowmq_loop_lag_seconds_sum"][()] >= 0.03
    assert _count(figures, "sparrowmq_gc_pause_seconds") >= 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    before = _count(figures, "sparrowmq_gc_pause_seconds")
    gc.collect()
    assert _count(figures, "sparrowmq_gc_pause_seconds") == before


def _count(figures: Figures, name: str) -> float:
    return read(figures)[f"{name}_count"][()]
