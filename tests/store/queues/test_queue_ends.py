"""The file of queue ends: what it says, how it grows, and what of it counts after a crash or damage."""

from pathlib import Path

import pytest

from sparrowmq.store.queues.queue_ends import Positions, QueueEnds, SavedEnds
from sparrowmq.store.queues.queue_files import QueueEnd
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk, broken

ORDERS, BILLS = ("Orders", 0), ("Bills", 3)


def at(dispatched: int) -> Positions:
    return Positions(0, dispatched, dispatched, 7, 8, 9)


def end(count: int) -> QueueEnd:
    return QueueEnd(0, count, count * 11, (5, -1))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "ends")


@pytest.fixture
def ends(folder: str) -> QueueEnds:
    made = QueueEnds(Disk(), folder)
    assert made.load() == SavedEnds()
    made.begin(SavedEnds())
    return made


def again(folder: str) -> SavedEnds:
    return QueueEnds(Disk(), folder).load()


def test_what_is_written_is_read(ends: QueueEnds, folder: str):
    ends.write({ORDERS: end(3), ("城", 0): end(1)}, at(100), 5)
    ends.write({ORDERS: end(4), BILLS: end(2)}, at(200), 6)
    assert again(folder) == SavedEnds(at(200), 6, {ORDERS: end(4), ("城", 0): end(1), BILLS: end(2)})


def test_a_topic_that_was_deleted_has_no_queues_and_its_records_do_not_count(ends: QueueEnds, folder: str):
    ends.write({ORDERS: end(3), BILLS: end(2)}, at(100), 5)
    ends.delete("Orders", 150)
    assert again(folder) == SavedEnds(at(100), 5, {BILLS: end(2)}, {"Orders": 150})
    ends.write({ORDERS: end(3)}, at(120), 6)  # it was on its way to disk meanwhile
    assert ORDERS not in again(folder).ends
    assert ends.take_deleted_topics() == {"Orders"}
    ends.write({ORDERS: end(1)}, at(200), 7)
    assert again(folder) == SavedEnds(at(200), 7, {ORDERS: end(1), BILLS: end(2)}, {"Orders": 150})


def test_a_full_file_is_followed_by_one_with_all_that_counts(ends: QueueEnds, folder: str):
    ends.write({BILLS: end(2)}, at(1), 5)
    ends.delete("Gone", 60)
    for number in range(1000):
        ends.write({ORDERS: end(number)}, at(100 + number), 5)
    (path,) = Path(folder).iterdir()
    assert int(path.name) > 1
    assert again(folder) == SavedEnds(at(1099), 5, {BILLS: end(2), ORDERS: end(999)}, {"Gone": 60})


def test_a_start_begins_a_new_file_with_what_was_right(ends: QueueEnds, folder: str):
    ends.write({ORDERS: end(3)}, at(100), 5)
    ends.delete("Gone", 60)
    ends.close()
    following = QueueEnds(Disk(), folder)
    following.begin(following.load())
    following.write({BILLS: end(1)}, at(200), 6)
    assert [path.name for path in Path(folder).iterdir()] == [f"{1:020d}"]
    assert again(folder) == SavedEnds(at(200), 6, {ORDERS: end(3), BILLS: end(1)}, {"Gone": 60})


@pytest.mark.parametrize("position", [0, 30, 90, 120])
def test_one_wrong_byte_voids_the_chunk_and_what_follows(ends: QueueEnds, folder: str, position: int):
    ends.write({ORDERS: end(1)}, at(100), 5)
    first = again(folder)
    size = ends._size
    ends.write({ORDERS: end(2)}, at(200), 6)
    ends.write({ORDERS: end(3)}, at(300), 6)
    (path,) = Path(folder).iterdir()
    content = bytearray(path.read_bytes())
    content[size + position] ^= 1
    path.write_bytes(content)
    assert again(folder) == first
    content[position] ^= 1
    path.write_bytes(content)
    assert again(folder) == SavedEnds(is_lost=True)


def test_what_could_not_be_synced_is_an_error_and_nothing_is_remembered_of_it(folder: str):
    disk = FaultyDisk()
    ends = QueueEnds(disk, folder)
    ends.write({ORDERS: end(1)}, at(100), 5)
    disk.sync_error = broken()
    with pytest.raises(OSError, match="Input/output"):
        ends.write({ORDERS: end(2)}, at(200), 6)
    ends.write({BILLS: end(1)}, at(300), 7)
    assert again(folder).ends == {ORDERS: end(1), BILLS: end(1)}
