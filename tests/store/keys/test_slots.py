"""Slots that are in memory and not in the file yet, and what writes them there."""

import errno
import os
from struct import pack, unpack

import pytest

from sparrowmq.kernel.index_layout import SLOT_BYTES
from sparrowmq.store.index import Slots
from sparrowmq.store.log.log_file import LogFile
from tests.store.faulty_disk import FaultyDisk

BEGIN, COUNT = 40, 40_000  # three parts, of which the last one is not whole
SIZE = BEGIN + COUNT * SLOT_BYTES + 100


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "20260304120000005")


@pytest.fixture
def file(path, disk):
    file = LogFile.create(disk, path, 0, SIZE)
    file.write(0, b"h" * BEGIN)
    file.write(SIZE - 100, b"e" * 100)
    yield file
    file.close()


@pytest.fixture
def slots(file):
    return Slots(file, BEGIN, COUNT)


def store(slots, *wanted):
    """The newest entry of each slot becomes the one whose number follows it."""
    for slot in wanted:
        slots.load_all().link(pack(">qqq", slot, 0, 0), slot + 1, 0)


def holds_memory(slots):
    return slots._slots is not None


def on_disk(file):
    return unpack(f">{COUNT}i", file.read(BEGIN, COUNT * SLOT_BYTES))


def test_they_are_in_memory_until_what_was_taken_is_written(slots, file, disk):
    file.write(BEGIN + 3 * SLOT_BYTES, (9).to_bytes(4, "big"))
    assert slots.newest_entry(3) == 9 and not holds_memory(slots)
    store(slots, 5, 39_999)
    assert [slots.newest_entry(slot) for slot in (3, 5, 39_999)] == [9, 6, 40_000]
    assert sum(on_disk(file)) == 9 and slots.count_used() == 3
    unwritten = slots.take()
    assert unwritten.parts == [0, 2] and slots.take() is None
    unwritten.write(disk)
    assert slots.load_all().content() == file.read(BEGIN, COUNT * SLOT_BYTES)
    assert file.read(0, BEGIN) == b"h" * BEGIN and file.read(SIZE - 100, 100) == b"e" * 100


def test_memory_is_free_once_the_file_has_all_of_it(slots, disk, file):
    store(slots, 5)
    unwritten = slots.take()
    assert slots.take() is None
    assert holds_memory(slots), "the file lacks slot 5 so far"
    unwritten.write(disk)
    assert slots.take() is None
    assert not holds_memory(slots)
    assert slots.newest_entry(5) == 6
    store(slots, 7)
    slots.take().write(disk)
    assert [on_disk(file)[slot] for slot in (5, 7)] == [6, 8]


def test_what_could_not_be_written_keeps_its_memory(slots, disk):
    store(slots, 5)
    unwritten = slots.take()
    assert slots.take() is None
    slots.give_back(unwritten)
    slots.take().write(disk)
    assert slots.newest_entry(5) == 6


def test_what_was_given_back_is_taken_again(slots, file, disk):
    store(slots, 20_000)
    unwritten = slots.take()
    store(slots, 1)
    slots.give_back(unwritten)
    slots.take().write(disk)
    assert [on_disk(file)[slot] for slot in (1, 20_000)] == [2, 20_001]


def test_a_file_that_is_full_has_all_of_them_and_none_stays_in_memory(slots, file, disk):
    store(slots, 1)
    unwritten = slots.take()
    store(slots, 20_000)
    slots.write_all()
    slots.give_back(unwritten)
    assert slots.take() is None
    assert [on_disk(file)[slot] for slot in (1, 20_000)] == [2, 20_001]
    assert slots.newest_entry(20_000) == 20_001


def test_what_was_replaced_counts_and_not_what_was_in_memory(slots, file):
    store(slots, 1, 2)
    slots.replace(bytes(COUNT * SLOT_BYTES))
    assert slots.newest_entry(1) == 0 and slots.take() is None and not any(on_disk(file))


def test_a_file_that_was_deleted_meanwhile_is_not_missed(slots, file, disk):
    store(slots, 1)
    unwritten = slots.take()
    file.remove()
    unwritten.write(disk)
    assert not os.path.exists(file.path)


def test_nothing_is_written_behind_the_end_of_a_file_that_was_cut(slots, path, disk):
    store(slots, 1)
    os.truncate(path, 100)
    with pytest.raises(OSError, match="another program truncated it; it had 160140 bytes"):
        slots.take().write(disk)
    assert os.path.getsize(path) == 100


def test_slots_that_cannot_be_read_are_noted_at_the_file(slots, file, path, disk):
    for slot in (1100, 5000):
        file.write(BEGIN + slot * SLOT_BYTES, (7).to_bytes(4, "big"))
    disk.bad[path, 4096] = errno.EIO
    assert [slots.load_all().newest(slot) for slot in (1100, 5000)] == [0, 7] and file.unreadable == {4096}
