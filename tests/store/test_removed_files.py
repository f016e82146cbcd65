"""Files that somebody removes, moves or replaces while a store uses them."""

import asyncio
import os
import re
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparrowmq.errors import StoreFailed
from sparrowmq.store.store_settings import Flush
from tests.store.stores import bodies, put


@asynccontextmanager
async def running(store):
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def remove(path):
    path.unlink()


def move(path):
    path.rename(path.with_name("moved"))


def replace(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def replace_by_a_moved_one(path):
    move(path)
    shutil.copy(path.with_name("moved"), path)


def move_the_folder(path):
    path.parent.rename(path.parent.with_name("elsewhere"))


WAYS = [remove, move, replace, replace_by_a_moved_one, move_the_folder]


@pytest.mark.parametrize("way", WAYS)
async def test_a_sync_acknowledges_nothing_once_the_log_file_is_gone(stores, clock, caplog, way):
    store = stores.open(clock=clock)
    async with running(store):
        put(store, b"acknowledged")
        store.publish()
        await asyncio.wait_for(store.flushed.reached(store.end), 10)
        path = Path(store._log.row.files[0].path)
        way(path)
        put(store, b"too late")
        store.publish()
        store.flusher.kick()
        with pytest.raises(StoreFailed, match="removed, moved or replaced while the broker used it") as failed:
            await asyncio.wait_for(store.flushed.reached(store.end), 10)
        assert path.name in str(failed.value)
        assert [each.levelname for each in caplog.records if each.levelname == "CRITICAL"] == ["CRITICAL"]
        with pytest.raises(StoreFailed):
            put(store)
        assert bodies(store) == [b"acknowledged", b"too late"]
        if sys.platform == "linux" and way is not move_the_folder:
            kept = re.search(r"its content is at (/proc/\d+/fd/\d+)", str(failed.value))
            assert kept
            shutil.copy(kept[1], path.with_name("kept"))
            path.with_name("moved").unlink(missing_ok=True)
            path.with_name("kept").rename(path)
    if sys.platform != "linux" or way is move_the_folder:
        stores.crash(store)
        stores.leave_damaged()
        return
    store.close()
    assert bodies(stores.open(clock=clock)) == [b"acknowledged", b"too late"]


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_each_log_file_is_missed_within_a_second_or_so(stores, clock, number):
    store = stores.open(clock=clock, flush=Flush.ASYNC)
    async with running(store):
        while len(store._log.row.files) < 3:
            put(store, bytes(1000))
        store.publish()
        await clock.advance(2)
        assert store.flushed.error is None
        os.unlink(store._log.row.files[number].path)
        await clock.advance(1.1)
        assert isinstance(store.flushed.error, StoreFailed)
    stores.crash(store)
    stores.leave_damaged()


@pytest.mark.parametrize("folder", ["consumequeue/Orders/0", "index"])
async def test_a_queue_or_index_file_that_is_removed_is_built_again_by_the_next_start(stores, clock, folder):
    store = stores.open(clock=clock)
    async with running(store):
        for number in range(40):
            put(store, b"%d" % number, key=f"k{number}")
        await clock.advance(6)
        for path in (Path(store.settings.path) / folder).iterdir():
            path.unlink()
        put(store, b"40", key="k40")
        await clock.advance(6)
        assert store.flushed.error is None
    store.close()
    store = stores.open(clock=clock)
    assert bodies(store) == [b"%d" % number for number in range(41)]
    assert all(len(store.query("Orders", f"k{number}", 9, 0, 1 << 62)) == 1 for number in range(41))
