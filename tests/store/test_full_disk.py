"""What the whole store does when its disk is full, and when it breaks."""

import asyncio
import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore, DiskFull, StoreFailed, StoreLocked
from sparrowmq.loop.turn import Turn
from sparrowmq.store.layout import Layout
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.vfs import Unsynced
from tests.store.faulty_disk import FaultyDisk, broken
from tests.store.stores import bodies, committed, message, put


@pytest.fixture
def disk():
    return FaultyDisk()


def fill(store):
    """Leave no room in the log's file for a message of 1,000 bytes."""
    while store.end < 3500:
        put(store, bytes(300))
    store.publish()


def refused(store, topic="Orders"):
    """Try to append a message for which there is no room."""
    before = store.end, store.queues.obtain(topic, 0).end.value
    with pytest.raises(DiskFull, match="no room on the disk"):
        put(store, bytes(1000), topic)
    assert (store.end, store.queues.obtain(topic, 0).end.value) == before


async def test_a_message_without_room_is_refused_and_writes_resume_after_space_returned(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    fill(store)
    count = len(bodies(store))
    disk.full_for = ("commitlog",)
    refused(store)
    with pytest.raises(DiskFull):
        store.append(*[message(bytes(600))] * 2)
    assert len(bodies(store)) == count  # reads go on
    await clock.advance(1)
    refused(store)
    disk.full_for = ()
    await clock.advance(1)
    assert put(store, bytes(1000))[:2] == (4096, count)
    store.publish()
    assert len(bodies(store)) == count + 1


async def test_a_commit_for_which_there_is_no_room_leaves_nothing(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    fill(store)
    disk.full_for = ("commitlog",)
    with pytest.raises(DiskFull):
        committed(store, bytes(100))
    store.publish()
    assert bodies(store, queue_id=1) == bodies(store, topic="Ops") == []
    assert bodies(store, topic="Halves") == [bytes(100)]
    disk.full_for = ()
    await clock.advance(1)
    committed(store, b"now")
    store.publish()
    assert bodies(store, queue_id=1) == [b"now"] and bodies(store, topic="Ops") == [b"op"]


async def test_a_full_disk_is_left_in_peace_for_a_second(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    fill(store)
    disk.full_for = ("commitlog",)
    refused(store)
    disk.full_for = ()
    await clock.advance(0.999)
    refused(store)
    with pytest.raises(DiskFull):
        put(store, b"")  # nor is anything taken that would fit: messages keep their order
    await clock.advance(0.001)
    put(store, bytes(1000))


async def test_the_log_says_once_a_minute_that_the_disk_stays_full(stores, disk, clock, caplog):
    store = stores.open(vfs=disk, clock=clock)
    fill(store)
    disk.full_for = ("commitlog",)
    for _ in range(60):
        refused(store)
        await clock.advance(1)
    assert caplog.text.count("no room on the disk") == 1
    refused(store)
    assert caplog.text.count("no room on the disk") == 2


async def test_what_was_acknowledged_is_shown_once_there_is_room_for_its_queue(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    disk.full_for = ("consumequeue",)
    put(store, b"stored", key="red")
    store.publish()
    assert bodies(store) == [] and len(store.query("Orders", "red", 9, 0, 1 << 62)) == 1
    store.flush()  # the log has it, on disk
    refused(store)
    disk.full_for = ()
    await clock.advance(1)
    put(store, b"next", key="red")
    store.publish()
    assert bodies(store) == [b"stored", b"next"]
    assert len(store.query("Orders", "red", 9, 0, 1 << 62)) == 2


async def test_one_full_queue_keeps_no_other_from_its_messages_for_long(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    disk.full_for = ("consumequeue/Orders",)
    for topic in ("Flights", "Orders", "Payments"):
        put(store, topic.encode(), topic)
    store.publish()
    disk.full_for = ()
    await clock.advance(1)
    store.publish()
    assert [bodies(store, topic) for topic in ("Flights", "Orders", "Payments")] == [
        [b"Flights"],
        [b"Orders"],
        [b"Payments"],
    ]


def count_keys(store):
    """How many keys the index has, by the heads of its files."""
    files = Path(store.settings.layout.index).iterdir()
    return sum(int.from_bytes(file.read_bytes()[36:40], "big") - 1 for file in files)


@pytest.mark.parametrize("full_for", ["consumequeue", "consumequeue/Orders/1"])
async def test_what_a_slave_could_not_show_yet_is_shown_once(stores, disk, clock, tmp_path, full_for):
    master = stores.open()
    slave = stores.open(path=tmp_path / "slave", vfs=disk, clock=clock)
    for round_ in range(3):
        disk.full_for = (full_for,) if round_ == 1 else ()
        for number in range(40):  # more than a file of a queue holds
            put(master, b"%d.%d" % (round_, number), queue_id=number % 2 + round_, key="k")
        master.publish()
        await clock.advance(1)
        while slave.end < master.end:  # file by file
            slave.follow(slave.end, master.log_bytes(slave.end, master.end - slave.end) or b"")
        slave.publish()
    assert slave.dispatched.value == master.end
    for queue_id in range(4):
        assert bodies(slave, queue_id=queue_id) == bodies(master, queue_id=queue_id) != []
    slave.close()
    assert count_keys(slave) == 120  # each key once


async def test_a_running_store_tries_again_by_itself(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    running = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    disk.full_for = ("consumequeue",)
    put(store, b"stored")
    await clock.advance(5)
    assert bodies(store) == []
    disk.full_for = ()
    await clock.advance(1.2)
    assert bodies(store) == [b"stored"]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_the_message_that_finds_room_again_is_shown_too(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    store.appender.turn = Turn()
    disk.full_for = ("consumequeue",)
    put(store, b"first")
    await clock.advance(1)
    disk.full_for = ()
    put(store, b"second")
    await clock.advance(0)
    assert bodies(store) == [b"first", b"second"]


async def test_a_store_that_is_closed_on_a_full_disk_is_recovered_at_the_next_start(stores, disk, clock, caplog):
    store = stores.open(vfs=disk, clock=clock)
    disk.full_for = ("consumequeue",)
    put(store, b"stored")
    store.publish()
    store.close()
    assert "was not closed in order: no room" in caplog.text
    assert bodies(stores.open()) == [b"stored"]


def test_a_store_for_which_there_is_no_room_is_not_opened_and_can_be_later(stores, disk):
    disk.full_for = ("checkpoint",)
    with pytest.raises(DiskFull):
        stores.open(vfs=disk)
    disk.full_for = ()
    put(stores.open(vfs=disk))


def test_a_queue_that_begins_in_the_middle_of_a_file_is_tried_again(tmp_path, disk):
    """As after its older messages were deleted: before its first entry comes a gap, for which there may be no room."""
    queue = ConsumeQueue(OpenFiles(disk, 4, Unsynced()), Layout.of(tmp_path), "Orders", 0, 16)
    queue.restart(5)
    queue.add(1000, 100, 0)
    disk.write_error = DiskFull("no room")
    for _ in range(2):
        with pytest.raises(DiskFull):
            queue.write_pending()
    disk.write_error = None
    queue.write_pending()
    assert (queue.min_offset, queue.max_offset, queue.entry(5)) == (5, 6, (1000, 100, 0))
    again = ConsumeQueue(OpenFiles(disk, 4, Unsynced()), Layout.of(tmp_path), "Orders", 0, 16)
    again.load(None)
    assert again.max_offset == 6


def test_the_kernels_own_refusal_changes_nothing(stores, clock):
    """Not our disk, but a real limit: no file of this process may be larger than 3 KiB."""
    store = stores.open(clock=clock)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3072, hard))
    try:
        refused(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.end == 0


@pytest.mark.parametrize("leave", ["close", "crash"])
async def test_a_disk_that_breaks_while_queues_are_written_is_the_end(stores, disk, clock, leave):
    """Otherwise an acknowledged message would be missing in its queue, and nobody would know."""
    store = stores.open(vfs=disk, clock=clock)
    put(store, b"first")
    store.publish()
    disk.write_error = broken()
    put(store, b"second")
    put(store, b"other", "Flights")
    store.publish()
    disk.write_error = None
    with pytest.raises(StoreFailed, match="Input/output error"):
        put(store, b"third")
    store.close() if leave == "close" else stores.crash(store)
    store = stores.open(clock=clock)
    assert bodies(store) == [b"first", b"second"] and bodies(store, "Flights") == [b"other"]


async def test_a_disk_that_breaks_while_a_log_file_is_made_is_the_end(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    fill(store)
    count = len(bodies(store))
    disk.sync_error = broken()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="Input/output error"):
            put(store, bytes(1000))
    store.close()
    store = stores.open(clock=clock)
    assert len(bodies(store)) == count and put(store, bytes(1000))[0] == 4096


async def test_a_topic_that_is_deleted_while_the_disk_is_full_does_not_come_back(stores, disk, clock):
    store = stores.open(vfs=disk, clock=clock)
    disk.full_for = ("consumequeue",)
    put(store, b"never shown")
    store.publish()
    store.delete_topic("Orders")
    disk.full_for = ()
    await clock.advance(1)
    put(store, b"of the new topic")
    store.publish()
    assert bodies(store) == [b"of the new topic"]
    assert store.written.error is None


@pytest.mark.parametrize("was_killed", [True, False])
@pytest.mark.parametrize("full_for", ["/ends", "abort", "checkpoint", "consumequeue", "set-aside"])
async def test_a_store_that_cannot_be_recovered_for_want_of_room_can_be_read(stores, disk, full_for, was_killed):
    store = stores.open(vfs=disk)
    texts = [b"%d" % number for number in range(10)]
    for text in texts:
        put(store, text, key="key")
    store.publish()
    store.flush()
    if was_killed:
        stores.crash(store)
        fd = os.open(store._log.row.files[0].path, os.O_RDWR)
        os.pwrite(fd, b"torn", store.end)  # for set-aside
        os.close(fd)
    else:
        store.close()
    disk.full_for = (full_for,)
    with suppress(DiskFull):
        stores.open(vfs=disk).close()
    full = stores.open_full(disk)
    shown = bodies(full)
    assert shown == texts or (full_for == "consumequeue" and shown == texts[: len(shown)])
    if full.flushed.error is not None:
        assert "the disk was full at the start" in str(full.flushed.error)
        assert full.flushed.error.__cause__.__class__ is DiskFull
        with pytest.raises(StoreFailed):
            put(full)
        with pytest.raises(StoreLocked):
            stores.open(vfs=disk)
        try:
            assert len(full.query("Orders", "key", 99, 0, 1 << 62)) == 10
        except BadStore as lacks:
            assert was_killed and "no room for its next file" in str(lacks)
    full.close()
    disk.full_for = ()
    store = stores.open(vfs=disk)
    assert put(store, b"next")[1] == 10
    store.publish()
    assert bodies(store) == [*texts, b"next"]
