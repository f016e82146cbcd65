"""The store as a part: its figures are the store's own numbers."""

import asyncio
from typing import Any

import pytest

from sparrowmq.broker.store import FreedSpace, has_failed, opened_full, store_part, wait_for_space, while_writable
from sparrowmq.errors import DiskFull, StoreFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.testing.clock import ManualClock
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path: Any, clock: Any) -> Any:
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


def test_the_figures_follow_the_store(desk: Desk) -> None:
    figures = desk.figures
    assert figures.values("sparrowmq_oldest_message_timestamp_seconds") == {}
    stored_ms = desk.clock.now_ms()
    desk.send(b"one")
    end = desk.store.end
    assert (figures.value("sparrowmq_log_begin_offset"), figures.value("sparrowmq_log_end_offset")) == (
        0,
        end,
    )
    assert (
        figures.value("sparrowmq_flush_behind_bytes"),
        figures.value("sparrowmq_dispatch_behind_bytes"),
    ) == (end, 0)
    desk.store.flush()
    assert figures.value("sparrowmq_flush_behind_bytes") == 0
    for which in ("oldest", "newest"):
        assert figures.value(f"sparrowmq_{which}_message_timestamp_seconds") == stored_ms / 1000
    assert figures.values("sparrowmq_index_lacks_from_timestamp_seconds") == {}


async def test_a_failed_disk_is_told_once(desk: Desk) -> None:
    told: list[str] = []
    figures = Figures()
    part = store_part(desk.store, Turn(), SystemClock(), figures, lambda: told.append("failed"))
    (watching,) = [task for task in part.tasks if task.name == "disk"]
    running = asyncio.ensure_future(while_writable(watching.start(), "disk"))
    await asyncio.sleep(0)
    assert (told, has_failed(desk.store), figures.value("sparrowmq_store_failed")) == ([], False, 0)
    desk.store.flusher.fail(OSError(5, "Input/output error"))
    await running
    assert (told, has_failed(desk.store), figures.value("sparrowmq_store_failed")) == (["failed"], True, 1)


async def test_work_that_stores_ends_with_the_store_and_other_errors_pass(caplog: Any) -> None:
    async def fail(error: Exception) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(raising(error))

    await while_writable(fail(StoreFailed("the disk is gone")), "delivery")
    assert "the store failed: delivery stopped" in caplog.text
    with pytest.raises(ExceptionGroup):
        await while_writable(fail(ValueError("a fault of ours")), "delivery")


async def raising(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("full", ["store", "commitlog"])
async def test_a_broker_that_began_on_a_full_disk_waits_for_room_on_that_disk(
    desk: Desk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """The log may be on another disk than the rest of the store."""
    assert not opened_full(desk.store)
    desk.store.flusher.begin_full(DiskFull("no room on the disk"))
    assert opened_full(desk.store) and has_failed(desk.store)
    free = {"store": 500 << 20, "commitlog": 500 << 20} | {full: 5 << 20}
    layout = desk.store.settings.layout
    names = {layout.root: "store", layout.commit_log: "commitlog"}
    monkeypatch.setattr("sparrowmq.broker.store._free_bytes", lambda path: free[names[path]])
    waiting = asyncio.ensure_future(wait_for_space(FreedSpace(desk.store), clock))
    await clock.advance(5)
    for name in free:
        free[name] += 15 << 20
    await clock.advance(5)
    assert not waiting.done()
    free[full] += 1 << 20
    await clock.advance(1)
    await waiting
