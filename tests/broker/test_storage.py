"""The store as a part: its figures are the store's own numbers."""

import asyncio
from typing import Any

import pytest

from sparrowmq.errors import StoreFailed
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path: Any, clock: Any) -> Any:
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


def test_the_figures_follow_the_store(desk: Desk) -> None:
    figures = desk.figures
    assert figures.value("oldest_message_ms") == -1
    stored_ms = desk.clock.now_ms()
    desk.send(b"one")
    end = desk.store.end
    assert (figures.value("log_begin_offset"), figures.value("log_end_offset")) == (0, end)
    assert (figures.value("flush_behind_bytes"), figures.value("dispatch_behind_bytes")) == (end, 0)
    desk.store.flush()
    assert figures.value("flush_behind_bytes") == 0
    assert figures.value("oldest_message_ms") == stored_ms


async def test_a_failed_disk_ends_its_task(desk: Desk) -> None:
    (watching,) = [task for task in desk.storage.tasks if task.name == "disk"]
    running = asyncio.ensure_future(watching.start())
    await asyncio.sleep(0)
    desk.store.fail(OSError(5, "Input/output error"))
    with pytest.raises(StoreFailed):
        await running
