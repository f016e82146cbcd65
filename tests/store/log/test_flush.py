import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord, DiskFull, StoreFailed
from sparrowmq.loop.turn import Turn
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.flush import Flusher, SyncedMark
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk, broken
from tests.store.stores import bodies, message, put, put_batch, safe

FIRST = "0" * 20


@pytest.fixture
def disk():
    disk = FaultyDisk()
    yield disk
    disk.may_sync.set()


@asynccontextmanager
async def running(store: MessageStore) -> AsyncIterator[None]:
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def begins(disk):
    """Wait until a sync is under way."""
    assert await asyncio.to_thread(disk.sync_began.wait, 10)


def hold_syncs(disk):
    disk.synced.clear()
    disk.sync_began.clear()
    disk.may_sync.clear()


async def within_10_s(awaitable):
    return await asyncio.wait_for(awaitable, 10)


@pytest.mark.covers("S-STORE-08")
async def test_with_sync_flush_an_answer_waits_until_the_message_is_on_disk(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        put(store)
        store.flush()
        hold_syncs(disk)
        _, _, end, _ = put(store)
        answer = asyncio.create_task(safe(store, end))
        await begins(disk)
        assert not answer.done() and store.flushed.value < end
        disk.may_sync.set()
        assert await within_10_s(answer) == end
        assert disk.synced == [FIRST]


@pytest.mark.covers("S-STORE-08")
async def test_one_sync_covers_all_that_came_while_the_one_before_was_under_way(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        put(store)
        store.flush()
        hold_syncs(disk)
        ends = [put(store)[2]]
        await begins(disk)
        for _ in range(20):
            ends.append(put(store, bytes(30))[2])
            store.publish()  # each is a burst of its own
        assert store.end < 4096
        disk.may_sync.set()
        assert await within_10_s(asyncio.gather(*(safe(store, end) for end in ends)))
        assert disk.synced == [FIRST, FIRST]


@pytest.mark.covers("S-STORE-08")
async def test_with_async_flush_the_answer_comes_at_once_and_the_sync_with_the_interval(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock, flush=Flush.ASYNC, flush_interval_ms=200)
    async with running(store):
        put(store)
        store.flush()
        disk.synced.clear()
        _, _, end, _ = put(store)
        store.publish()
        await safe(store, end)
        await clock.advance(0.199)
        assert disk.synced == [] and store.flushed.value < end
        await clock.advance(0.001)
        await within_10_s(store.flushed.reached(end))
        assert disk.synced == [FIRST]


async def test_no_interval_keeps_a_message_from_the_disk_for_longer_than_half_a_second(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock, flush=Flush.ASYNC, flush_interval_ms=60_000)
    async with running(store):
        _, _, end, _ = put(store)
        await clock.advance(0.5)
        await within_10_s(store.flushed.reached(end))


async def test_nothing_new_is_no_reason_to_sync(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock, flush=Flush.ASYNC)
    async with running(store):
        put(store)
        store.flush()
        disk.synced.clear()
        store.flush()
        await clock.advance(3)
    assert disk.synced == []


def test_a_sync_covers_each_file_that_was_written_since_the_last_one(stores, disk):
    store = stores.open(vfs=disk)
    put(store)
    store.flush()
    while store.end < 9000:
        put(store, bytes(500))
    disk.synced.clear()
    store.flush()
    assert disk.synced == [FIRST, f"{4096:020d}", f"{8192:020d}"]
    disk.synced.clear()
    put(store)
    store.flush()
    assert disk.synced == [f"{8192:020d}"]


@pytest.mark.covers("S-STORE-08")
def test_after_a_failed_sync_what_the_system_dropped_is_not_served(stores, disk):
    store = stores.open(vfs=disk)
    put(store, b"kept")
    store.flush()
    lost = put(store, b"lost")
    store.publish()
    disk.sync_error = broken()
    with pytest.raises(StoreFailed):
        store.flush()
    assert bodies(store) == [b"kept", b"lost"]  # the pages are still there
    file = Path(store._log.row.files[0].path)
    with file.open("r+b") as dropped:
        dropped.seek(lost.offset)
        dropped.write(bytes(lost.end - lost.offset))
    with pytest.raises(CorruptRecord, match="it is not served"):
        store.read("Orders", 0, 1, 1)
    assert bytes(store.read("Orders", 0, 0, 1).views[0]).find(b"kept") > 0


async def test_a_failed_sync_fails_all_who_wait_and_nothing_is_acknowledged_any_more(stores, disk, clock, caplog):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        put(store, b"acknowledged")
        store.flush()
        hold_syncs(disk)
        disk.sync_error = broken()
        flushed = store.flushed.value
        ends = [put(store, b"lost?")[2]]
        await begins(disk)
        ends += [put(store, b"lost?")[2] for _ in range(3)]
        waiting = [asyncio.create_task(safe(store, end)) for end in ends]
        disk.may_sync.set()
        answers = await within_10_s(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(answer) for answer in answers] == [StoreFailed] * 4
        assert "Input/output error" in str(answers[0]) and "start again" in str(answers[0])

        # The disk says "all well" from now on, as Linux does; nobody believes it.
        for attempt in (store.flush, store.checkpoint, lambda: put(store)):
            with pytest.raises(StoreFailed):
                attempt()
        with pytest.raises(StoreFailed):
            await safe(store, ends[0])
        assert store.flushed.value == flushed and disk.synced == []
        assert bodies(store)[0] == b"acknowledged"  # reads go on
    assert [record.levelname for record in caplog.records].count("CRITICAL") == 1


@pytest.mark.parametrize("attempt", ["flush", "checkpoint", "close"])
async def test_a_sync_that_failed_in_the_thread_is_not_tried_again_by_who_cannot_have_heard_of_it(
    stores, disk, clock, attempt
):
    store = stores.open(vfs=disk, clock=clock)
    put(store, b"acknowledged")
    store.flush()
    store.appender.turn = Turn()
    store.flusher.start(asyncio.get_running_loop())
    hold_syncs(disk)
    disk.sync_error = broken()
    put(store, b"lost?")
    store.publish()
    await begins(disk)
    disk.may_sync.set()
    if attempt == "close":
        store.flusher.stop()
        store.close()
    else:
        with pytest.raises(StoreFailed, match="Input/output error"):
            getattr(store, attempt)()
    assert disk.synced == [] and isinstance(store.flushed.error, StoreFailed)
    assert store._vfs.exists(stores.settings.layout.abort)
    store.flusher.stop()


async def test_the_thread_goes_on_after_a_flush_in_between(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        for _ in range(3):
            put(store)
            store.flush()
            assert store.flushed.value == store.end
            _, _, end, _ = put(store)
            await within_10_s(safe(store, end))


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.EBADF])
async def test_after_a_failed_write_nothing_is_acknowledged(stores, disk, clock, flush, code):
    store = stores.open(vfs=disk, clock=clock, flush=flush)
    async with running(store):
        _, _, end, _ = put(store, b"acknowledged")
        await within_10_s(safe(store, end))
        disk.log_error = OSError(code, os.strerror(code))
        ends = [put(store, b"lost")[2] for _ in range(3)]
        ends.append(put_batch(store, message(b"lost"), message(b"too"))[1][2])
        waiting = [asyncio.create_task(safe(store, end, wants)) for end in ends for wants in (True, False)]
        answers = await within_10_s(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(answer) for answer in answers] == [StoreFailed] * 8
        assert os.strerror(code) in str(answers[0])
        disk.log_error = None  # it is not believed when it is well again
        for attempt in (store.flush, store.checkpoint, lambda: put(store)):
            with pytest.raises(StoreFailed):
                attempt()
        assert store.written.value == end
        assert bodies(store) == [b"acknowledged"]
    store.close()
    assert bodies(stores.open()) == [b"acknowledged"]


async def test_with_async_flush_a_failed_sync_ends_what_is_acknowledged_too(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock, flush=Flush.ASYNC)
    async with running(store):
        _, _, end, _ = put(store)
        await within_10_s(safe(store, end))
        _, _, later, _ = put(store, b"of the turn in which a sync fails")
        answer = asyncio.create_task(safe(store, later))
        store.flusher.fail(broken())
        with pytest.raises(StoreFailed):
            await within_10_s(answer)
        with pytest.raises(StoreFailed):
            put(store)
        assert len(bodies(store)) == 1


async def test_a_message_is_not_acknowledged_before_a_full_disk_took_it(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock, flush=Flush.ASYNC)
    async with running(store):
        disk.log_error = DiskFull("no room on the disk")
        _, _, end, _ = put(store)
        answer = asyncio.create_task(safe(store, end))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not answer.done() and store.written.value < end
        disk.log_error = None
        await clock.advance(1.1)
        await within_10_s(answer)
        assert store.written.value == end


async def test_what_was_acknowledged_before_a_failed_sync_stays_acknowledged(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        _, _, end, _ = put(store)
        await within_10_s(safe(store, end))
        disk.sync_error = broken()
        _, _, later, _ = put(store)
        with pytest.raises(StoreFailed):
            await within_10_s(safe(store, later))
        assert await safe(store, end) == end


def test_a_store_that_failed_is_left_as_after_a_crash_and_keeps_what_was_acknowledged(stores, disk, caplog):
    store = stores.open(vfs=disk)
    put(store, b"acknowledged")
    store.flush()
    disk.sync_error = broken()
    put(store, b"perhaps")
    with pytest.raises(StoreFailed):
        store.flush()
    store.close()
    assert Path(stores.settings.layout.abort).exists()
    assert "the store was not closed in order" in caplog.text
    assert bodies(stores.open())[0] == b"acknowledged"


def test_a_failed_sync_of_queues_or_checkpoint_is_the_end_too(stores, disk):
    store = stores.open(vfs=disk)
    put(store)
    store.flush()
    disk.sync_error = broken()
    with pytest.raises(StoreFailed):
        store.checkpoint()
    with pytest.raises(StoreFailed):
        put(store)


async def test_a_failed_sync_of_a_regular_checkpoint_is_the_end_too(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    async with running(store):
        _, _, end, _ = put(store)
        await within_10_s(safe(store, end))
        disk.sync_error = broken()
        await clock.advance(5)
        with pytest.raises(StoreFailed):
            await within_10_s(store.flushed.reached(end + 1))


def flusher_of(folder, disk):
    """A flusher of a log that has some bytes."""
    log = CommitLog(disk, str(folder / "log"), 1024)
    log.start_at(0)
    log.make_room(100)
    log.append(bytes(100))
    log.write_out()
    disk.synced.clear()
    disk.sync_began.clear()
    return log, Flusher(log, SyncedMark(Disk(), str(folder / "abort")))


async def test_the_thread_ends_after_what_it_was_given(tmp_path, disk):
    log, flusher = flusher_of(tmp_path, disk)
    flusher.start_at(0)
    flusher.start(asyncio.get_running_loop())
    flusher.kick()
    flusher.stop()
    assert disk.synced == [FIRST]
    assert await within_10_s(flusher.flushed.reached(100)) == 100
    log.close()


async def test_a_second_kick_without_new_bytes_orders_nothing(tmp_path, disk):
    log, flusher = flusher_of(tmp_path, disk)
    flusher.start_at(0)
    flusher.kick()
    flusher.kick()
    assert flusher._orders.qsize() == 1
    log.append(bytes(1))
    flusher.kick()
    assert flusher._orders.qsize() == 1
    log.write_out()
    flusher.kick()
    assert flusher._orders.qsize() == 2
    log.close()


async def test_kicks_sync_each_file_that_was_written_though_they_are_taken_together(tmp_path, disk):
    log, flusher = flusher_of(tmp_path, disk)
    flusher.start_at(0)
    flusher.kick()
    for _ in range(2):
        log.make_room(1000)
        log.append(bytes(1000))
    log.write_out()
    disk.synced.clear()
    flusher.kick()
    flusher.start(asyncio.get_running_loop())
    flusher.stop()
    assert disk.synced == [FIRST, f"{1024:020d}", f"{2048:020d}"]
    assert flusher.times.count == 1
    assert await within_10_s(flusher.flushed.reached(log.written)) == log.written
    log.close()


def test_a_loop_that_ended_first_is_told_in_the_log_alone(tmp_path, disk, caplog):
    log, flusher = flusher_of(tmp_path, disk)
    flusher.start_at(0)
    loop = asyncio.new_event_loop()
    flusher.start(loop)
    loop.close()
    with caplog.at_level(logging.WARNING):
        flusher.kick()
        flusher.stop()
    assert "the loop ended while the store was being written" in caplog.text
    log.close()


def test_only_the_first_failure_counts(tmp_path, disk):
    log, flusher = flusher_of(tmp_path, disk)
    first = flusher.fail(broken())
    assert flusher.fail(OSError("later")) is first is flusher.flushed.error
    with pytest.raises(StoreFailed) as refused:
        log.make_room(1)
    assert refused.value is first
    log.close()
