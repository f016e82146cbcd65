"""Files of queues that are damaged under a running store: they are made anew from the log, and nothing is hidden."""

import asyncio
import errno
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from sparrowmq.broker.sql_filters import RecordFilter
from sparrowmq.errors import BadStore
from sparrowmq.filter.grammar import parse
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.layout import ENTRY_SIZE
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.retention import Cleaning
from sparrowmq.testing.clock import ManualClock
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, messages, put

TEXTS = [b"message %d" % number for number in range(40)]


def filled(stores: Stores, disk: FaultyDisk | None = None) -> MessageStore:
    """Three files of a queue, of 16 entries each, with another queue's messages between."""
    store = stores.open(vfs=disk)
    for text in TEXTS:
        put(store, text, tag="a")
        put(store, b"elsewhere", "Bills")
    store.publish()
    return store


def file(store: MessageStore, number: int) -> Path:
    return sorted(Path(store.settings.layout.queue("Orders", 0)).iterdir())[number]


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(content)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 3])
def test_a_part_of_a_file_that_is_zeros_hides_nothing(stores: Stores, number: int, first: int, caplog):
    store = filled(stores)
    before = file(store, number).read_bytes()
    overwrite(file(store, number), first * ENTRY_SIZE, bytes(4 * ENTRY_SIZE))
    assert bodies(store) == TEXTS
    assert file(store, number).read_bytes() == before
    assert f"{file(store, number)} is damaged; it is built again from the log" in caplog.text


def test_a_tag_filter_does_not_pass_over_entries_that_are_zeros(stores: Stores):
    store = filled(stores)
    overwrite(file(store, 0), 4 * ENTRY_SIZE, bytes(4 * ENTRY_SIZE))
    found = store.read("Orders", 0, 0, 32, selector=Selector(frozenset({string_hash("a")})))
    assert [bytes(each.body) for each in messages(found)] == TEXTS[:16]


@pytest.mark.parametrize("damage", [b"\0\0\0\0\0\0\0\1", b"\x7f" * 8])
def test_offsets_that_do_not_rise_are_damage(stores: Stores, damage: bytes):
    store = filled(stores)
    overwrite(file(store, 1), 5 * ENTRY_SIZE, damage)
    assert bodies(store) == TEXTS


def test_sizes_that_reach_over_the_next_message_are_damage(stores: Stores):
    store = filled(stores)
    overwrite(file(store, 1), 5 * ENTRY_SIZE + 10, b"\x04")  # 1024 bytes more
    assert bodies(store) == TEXTS


@pytest.mark.parametrize("count", [1, 32])
@pytest.mark.parametrize("place", [5, 15, len(TEXTS) - 1])
@pytest.mark.parametrize(
    "selector",
    [ALL, Selector(frozenset({string_hash("a")})), Selector(predicate=RecordFilter(parse("TAGS = 'a'")))],
)
def test_sizes_that_reach_over_the_end_of_the_log_are_damage(
    stores: Stores, place: int, count: int, selector: Selector
):
    store = filled(stores)
    number, index = divmod(place, 16)
    overwrite(file(store, number), index * ENTRY_SIZE + 8, b"\x20")
    found, offset = [], 0
    while offset < len(TEXTS):
        read = store.read("Orders", 0, offset, count, selector=selector)
        found += [bytes(each.body) for each in messages(read)]
        assert read.next_offset > offset
        offset = read.next_offset
    assert found == TEXTS


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_is_cut_is_made_anew(stores: Stores, number: int, left: int):
    store = filled(stores)
    before = file(store, number).read_bytes()
    os.truncate(file(store, number), left)
    assert bodies(store) == TEXTS
    assert file(store, number).read_bytes() == before
    put(store, b"one more")
    store.publish()
    assert bodies(store) == [*TEXTS, b"one more"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_file_that_cannot_be_read_is_made_anew(stores: Stores, number: int):
    disk = FaultyDisk()
    store = filled(stores, disk)
    disk.bad[str(file(store, number)), 0] = errno.EIO
    assert bodies(store) == TEXTS


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_start_makes_a_file_anew_that_cannot_be_read(stores: Stores, number: int):
    disk = FaultyDisk()
    filled(stores, disk).close()
    disk.bad[str(file(stores.open(), number)), 0] = errno.EIO
    stores._open.pop().close()
    assert bodies(stores.open(vfs=disk)) == TEXTS


def test_a_start_that_cannot_tell_where_an_unreadable_queue_ends_says_what_to_do(stores: Stores):
    disk = FaultyDisk()
    store = filled(stores, disk)
    store.close()
    shutil.rmtree(store.settings.layout.ends)
    disk.bad[str(file(store, 2)), 0] = errno.EIO
    with pytest.raises(BadStore, match=r"queue Orders/0 cannot be read: .* delete the folder consumequeue"):
        stores.open(vfs=disk)
    shutil.rmtree(store.settings.layout.consume_queue)
    disk.bad.clear()
    assert bodies(stores.open(vfs=disk)) == TEXTS


def test_a_file_that_cannot_be_made_anew_is_told(stores: Stores):
    disk = FaultyDisk()
    store = filled(stores, disk)
    path = file(store, 0)
    os.truncate(path, 0)
    disk.write_errors[str(path)] = errno.EIO
    with pytest.raises(BadStore, match="cannot be built again"):
        store.read("Orders", 0, 0, 32)
    disk.write_errors.clear()
    assert bodies(store) == TEXTS


def test_what_the_log_says_is_taken_though_its_offsets_do_not_rise(stores: Stores, monkeypatch):
    """As where a topic was made anew by a broker that did not tell, and one of its messages rotted."""
    store = filled(stores)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    overwrite(file(store, 0), 5 * ENTRY_SIZE, b"\0\0\0\0\0\0\0\1")
    mended = []
    monkeypatch.setattr(queue._files, "rebuild_file", lambda _, begin: mended.append(begin))
    for _ in range(2):
        assert len(queue.read(0, 16)) == 16
    assert mended == [0]
    stores.leave_damaged()


async def test_retention_goes_on_when_a_file_can_be_made_anew(stores: Stores, clock: ManualClock, caplog):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, clock=clock)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    for text in TEXTS:
        put(store, text + bytes(400))
    store.checkpoint()
    path = file(store, 0)
    os.truncate(path, 0)
    disk.write_errors[str(path)] = errno.EIO
    for error in (True, False):
        if not error:
            disk.write_errors.clear()
        store.retention.request(Cleaning.QUEUES)
        await clock.advance(11)
        assert not task.done() and ("not all old messages were deleted" in caplog.text) is error
        caplog.clear()
    assert bodies(store) == [text + bytes(400) for text in TEXTS]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
