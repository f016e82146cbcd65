"""The store as a part: its figures are the store's own numbers."""

import asyncio
from typing import Any

import pytest

from sparrowmq.broker.storage import has_failed, storage, while_writable
from sparrowmq.errors import StoreFailed
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path: Any, clock: Any) -> Any:
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


def test_the_figures_follow_the_store(desk: Desk) -> None:
    figures = desk.figures
    assert figures.value("sparrowmq_oldest_message_ms") == -1
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
    assert figures.value("sparrowmq_oldest_message_ms") == stored_ms


async def test_a_failed_disk_is_told_once(desk: Desk) -> None:
    told: list[str] = []
    figures = Figures()
    part = storage(desk.store, Turn(), figures, lambda: told.append("failed"))
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
    assert "delivery ends with the store" in caplog.text
    with pytest.raises(ExceptionGroup):
        await while_writable(fail(ValueError("a fault of ours")), "delivery")


async def raising(error: Exception) -> None:
    raise error
