"""What a store does by itself; `test_flush.py`, `test_full_disk.py` and `test_retention.py` show each part of it."""

import asyncio
import os
import threading
from contextlib import suppress

import pytest

from sparrowmq.errors import CorruptRecord, StoreFailed
from sparrowmq.store.checkpoint import load
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.retention import Cleaning
from sparrowmq.store.store_settings import Flush
from sparrowmq.store.vfs import Disk
from tests.store.stores import bodies, put


def covers(checkpoint, end):
    return checkpoint.positions is not None and checkpoint.positions.dispatched == end


async def test_a_store_left_alone_syncs_indexes_and_makes_a_checkpoint(stores, clock):
    store = stores.open(clock=clock, flush=Flush.ASYNC, flush_interval_ms=200)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    _, _, end, _ = put(store, b"body", unique_key="K")
    await clock.advance(0.3)
    await asyncio.wait_for(store.flushed.reached(end), 10)
    assert store.indexed[1] == 0
    await clock.advance(store.settings.checkpoint_interval_ms / 1000)
    async with asyncio.timeout(10):
        while not covers(load(Disk(), store.settings.layout.checkpoint), end):
            await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_deleted_topic_does_not_come_back_after_a_crash(stores, clock):
    store = stores.open(clock=clock)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    put(store, topic="Orders")
    # Were no queue left at all, it would be taken for a lost folder, which is made anew from the log.
    _, _, end, _ = put(store, topic="Bills")
    store.delete_topic("Orders")
    async with asyncio.timeout(10):
        while not covers(load(Disk(), store.settings.layout.checkpoint), end):
            await asyncio.sleep(0.01)  # the clock stands still, so it is not the checkpoint of every 5 s
    assert not store.wants_checkpoint.is_set()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stores.crash(store)
    opened = stores.open(clock=clock)
    assert opened.queues.get("Orders", 0) is None
    assert bodies(opened, "Bills") == [b"body"]


async def test_a_checkpoint_that_waits_for_other_work_is_written_when_the_store_ends(stores, clock, monkeypatch):
    store = stores.open(clock=clock)
    may_go_on = threading.Event()
    monkeypatch.setattr(CommitLog, "prepare", lambda _log, executor: executor.submit(may_go_on.wait, 60))
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    end = [put(store, b"body %d" % number, unique_key=f"K{number}").end for number in range(20)][-1]
    await clock.advance(store.settings.checkpoint_interval_ms / 1000 + 1)
    await asyncio.wait_for(store.flushed.reached(end), 10)
    await asyncio.sleep(0.1)  # the checkpoint waits behind `prepare`
    task.cancel()
    may_go_on.set()
    await asyncio.gather(task, return_exceptions=True)
    monkeypatch.undo()
    store.close()
    opened = stores.open(clock=clock)
    assert len(bodies(opened)) == 20
    assert all(opened.query("Orders", f"K{number}", 9, 0, 1 << 62) for number in range(20))


async def test_after_its_end_a_store_goes_on_without_a_loop(stores, clock):
    store = stores.open(clock=clock)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    _, _, end, _ = put(store)
    store.flush()
    assert store.flushed.value == end


async def test_a_log_file_that_is_cut_under_a_running_store_stops_writing_and_what_is_left_is_read(
    stores, clock, caplog
):
    store = stores.open(clock=clock)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    while store.end < 3000:
        put(store, b"x" * 300)
    store.publish()
    file = store._log.row.files[0]
    os.truncate(file.path, 1000)
    await clock.advance(0.2)
    with pytest.raises(StoreFailed, match="it was cut while the broker used it: restore it") as failed:
        await asyncio.wait_for(store.flushed.reached(1 << 60), 10)
    assert file.path in str(failed.value)
    with pytest.raises(StoreFailed):
        put(store)
    await clock.advance(1)
    assert not task.done()
    assert store.read("Orders", 0, 0, 32).count == 2
    with pytest.raises(CorruptRecord, match="it is not served"):
        store.read("Orders", 0, 2, 32)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    stores.crash(store)
    stores.leave_damaged()


async def test_a_store_that_failed_deletes_nothing(stores, clock):
    store = stores.open(clock=clock, retention_hours=0)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    while len(store._log.row.files) < 3:
        put(store, bytes(1000))
    await clock.advance(6)  # a checkpoint, without which they would stay
    store.flusher.fail(OSError(5, "Input/output error"))
    store.retention.request(Cleaning.FILES)
    await clock.advance(60)
    assert store.begin == 0 and len(store._log.row.files) >= 3 and not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stores.crash(store)
