"""Consume queues: their files byte for byte, few open ones, and what is found after a crash."""

from pathlib import Path

import psutil
import pytest

from sparrowmq.errors import BadStore, DiskFull, InvalidName
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, GAP_ENTRY, Layout
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.entries import GAP_SIZE, pack
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, File, Unsynced, Vfs
from tests.store.crash_states import RecordVfs
from tests.store.faulty_disk import FaultyDisk

FILE_ENTRIES = 4


def table(folder: Path, limit: int = 16, file_entries: int = FILE_ENTRIES, vfs: Vfs | None = None) -> QueueTable:
    return QueueTable(OpenFiles(vfs or Disk(), limit, Unsynced()), Layout.of(folder), file_entries)


@pytest.fixture
def queues(tmp_path: Path) -> QueueTable:
    return table(tmp_path)


@pytest.fixture
def queue(queues: QueueTable) -> ConsumeQueue:
    return queues.obtain("Orders", 0)


def entry_of(number: int) -> tuple[int, int, int]:
    """The n-th message lies at 100 n, has 100 bytes, and a tag with the hash -n."""
    return 100 * number, 100, -number


def fill(queue: ConsumeQueue, count: int) -> None:
    """Entries for the next messages, in one write."""
    for number in range(queue.next_offset, queue.next_offset + count):
        queue.add(*entry_of(number))
    queue.write_pending()


def again(queue: ConsumeQueue, known: int | None = None) -> ConsumeQueue:
    """The same queue as a start finds it on disk."""
    queues = table(Path(queue.paths[0]).parents[3])
    queues.load(known)
    found = queues.get(queue.topic, queue.queue_id)
    assert found is not None
    return found


def numbers(queue: ConsumeQueue) -> list[int | None]:
    """The messages that the queue can read: their numbers, None where there is only a gap."""
    entries = [queue.entry(queue_offset) for queue_offset in range(queue.min_offset, queue.max_offset)]
    return [entry[0] // 100 if entry else None for entry in entries]


def names(queue: ConsumeQueue) -> list[int]:
    """The first entry of each file."""
    return [int(path.name) // ENTRY_SIZE for path in sorted(Path(queue._folder).iterdir())]


def open_paths(folder: Path) -> list[str]:
    return [file.path for file in psutil.Process().open_files() if file.path.startswith(str(folder))]


# Files


@pytest.mark.covers("S-STORE-03")
def test_an_entry_is_offset_size_and_tags_code_in_20_bytes(queue: ConsumeQueue, tmp_path: Path):
    queue.add(0x0102030405060708, 0x0A0B0C0D, -2)
    queue.write_pending()
    path = tmp_path / "consumequeue" / "Orders" / "0" / "00000000000000000000"
    expected = bytes.fromhex("0102030405060708 0a0b0c0d fffffffffffffffe")
    assert len(expected) == 20 and path.read_bytes() == expected.ljust(FILE_ENTRIES * 20, b"\0")


@pytest.mark.covers("S-STORE-03")
def test_a_file_holds_300000_entries_unless_told_otherwise(tmp_path: Path):
    file_entries = StoreSettings(tmp_path).consume_queue_file_entries
    queue = table(tmp_path, file_entries=file_entries).obtain("Orders", 0)
    queue.restart(299_999)
    queue.add(*entry_of(0))
    queue.add(*entry_of(1))
    queue.write_pending()
    assert [Path(path).name for path in queue.paths] == ["0" * 20, "00000000000006000000"]
    assert {Path(path).stat().st_size for path in queue.paths} == {6_000_000}


def test_queue_files_are_sparse(queue: ConsumeQueue, tmp_path: Path):
    large = table(tmp_path / "large", file_entries=300_000).obtain("Orders", 0)
    fill(large, 1)
    assert Path(large.paths[0]).stat().st_blocks * 512 < 100_000


def test_one_write_may_go_on_in_the_next_files(queue: ConsumeQueue):
    fill(queue, 10)
    assert names(queue) == [0, 4, 8]
    assert numbers(queue) == list(range(10))


def test_a_read_ends_with_its_file_and_with_the_queue(queue: ConsumeQueue):
    fill(queue, 6)
    assert list(queue.read(1, 32)) == [entry_of(1), entry_of(2), entry_of(3)]
    assert list(queue.read(4, 32)) == [entry_of(4), entry_of(5)]
    assert list(queue.read(5, 1)) == [entry_of(5)]
    assert list(queue.read(6, 32)) == []
    assert list(queue.read(5, 0)) == []


def test_fresh_entries_cannot_be_read_until_they_are_written(queue: ConsumeQueue):
    queue.add(*entry_of(0))
    assert (queue.max_offset, queue.entry(0), queue.is_empty) == (0, None, True)
    queue.write_pending()
    assert (queue.max_offset, queue.entry(0), queue.is_empty) == (1, entry_of(0), False)


def test_a_queue_that_begins_in_the_middle_of_a_file_has_a_gap_before(queue: ConsumeQueue):
    queue.restart(6)
    fill(queue, 1)
    content = Path(queue.paths[0]).read_bytes()
    assert names(queue) == [4]
    assert content == GAP_ENTRY * 2 + ENTRY.pack(*entry_of(6)) + bytes(ENTRY_SIZE)
    assert bytes(8) + b"\x7f\xff\xff\xff" + bytes(8) == GAP_ENTRY
    assert (queue.begin, queue.min_offset, queue.max_offset) == (4, 6, 7)
    assert queue.entry(5) is None


def test_a_gap_is_no_message(queue: ConsumeQueue):
    fill(queue, 2)
    queue.write_gap(5)
    assert numbers(queue) == [0, 1, None, None, None]
    assert list(queue.read(4, 1)) == [(0, GAP_SIZE, 0)]
    assert queue.last_entry() == (100, 100)
    fill(queue, 1)
    assert numbers(queue) == [0, 1, None, None, None, 5]


def test_a_full_disk_leaves_all_entries_fresh(tmp_path: Path):
    disk = FaultyDisk()
    queue = table(tmp_path, vfs=disk).obtain("Orders", 0)
    fill(queue, 3)
    queue.add(*entry_of(3))
    queue.add(*entry_of(4))  # needs a new file
    disk.full_for = (f"{FILE_ENTRIES * ENTRY_SIZE:020d}",)
    with pytest.raises(DiskFull):
        queue.write_pending()
    assert numbers(queue) == [0, 1, 2] and queue.unwritten.size == 2 * ENTRY_SIZE
    disk.full_for = ()
    queue.write_pending()
    assert numbers(queue) == [0, 1, 2, 3, 4] and not queue.has_unwritten


def test_a_topic_that_would_lead_out_of_the_store_is_refused(queues: QueueTable):
    for topic in ("..", ".", "", "a/b", "a\0"):
        with pytest.raises(InvalidName, match="cannot be a topic"):
            queues.obtain(topic, 0)


# Open files


def test_many_queues_share_few_open_files(tmp_path: Path):
    queues = table(tmp_path, limit=4)
    for round_ in range(3):
        for queue_id in range(40):
            fill(queues.obtain("Orders", queue_id), 2)
            assert len(open_paths(tmp_path)) <= 4
        for queue_id in range(40):
            assert numbers(queues.obtain("Orders", queue_id)) == list(range(2 * round_ + 2))
            assert len(open_paths(tmp_path)) <= 4
    queues.files.close()
    assert open_paths(tmp_path) == []


def test_a_file_in_use_stays_open_rather_than_an_idle_one(tmp_path: Path):
    queues = table(tmp_path, limit=3)
    for queue_id in range(4):  # the fourth closes the first, and nobody has used the others since
        fill(queues.obtain("Orders", queue_id), 1)
    queues.obtain("Orders", 1).read(0, 1)
    fill(queues.obtain("Orders", 4), 1)
    assert sorted(int(Path(path).parent.name) for path in open_paths(tmp_path)) == [1, 3, 4]


# Offsets


def test_the_end_rises_once_for_all_fresh_entries(queue: ConsumeQueue):
    seen: list[int] = []
    queue.end.when(1, lambda _: seen.append(queue.max_offset))
    fill(queue, 7)
    assert seen == [7]


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (1, 1), (300, 3), (301, 4), (901, 10), (10**9, 10)])
def test_a_place_in_the_log_is_found(queue: ConsumeQueue, offset: int, expected: int):
    fill(queue, 10)
    assert queue.find(offset) == expected


@pytest.mark.parametrize(("offset", "expected"), [(0, 2), (200, 2), (201, 5), (500, 5), (501, 9), (801, 9)])
def test_a_place_in_the_log_is_found_across_gaps(queue: ConsumeQueue, offset: int, expected: int):
    queue.restart(2)
    fill(queue, 1)
    queue.write_gap(5)
    fill(queue, 1)
    queue.write_gap(9)
    assert queue.find(offset) == expected


def test_a_queue_forgets_what_left_the_log_and_deletes_whole_files(queue: ConsumeQueue):
    fill(queue, 10)
    for _ in range(3):
        queue.forget_before(900, dispatched=1000)
        queue._files.unsynced.take()  # as a checkpoint does
    assert (queue.min_offset, queue.max_offset) == (9, 10)
    assert names(queue) == [8] and numbers(queue) == [9]
    assert queue.entry(8) is None


def test_a_file_stays_until_the_entries_behind_it_are_on_disk(queue: ConsumeQueue):
    fill(queue, 6)
    queue._files.unsynced.take()
    queue.forget_before(500, dispatched=400)
    assert queue.min_offset == 5 and names(queue) == [0, 4]
    queue.forget_before(500, dispatched=401)
    assert names(queue) == [4]


def test_the_last_file_stays_though_all_its_messages_are_gone(queue: ConsumeQueue):
    fill(queue, 4)
    queue._files.unsynced.take()
    queue.forget_before(10**9, dispatched=10**9)
    assert (queue.min_offset, queue.max_offset) == (4, 4)
    assert names(queue) == [0] and numbers(again(queue)) == [0, 1, 2, 3]


def test_the_last_entry_tells_where_its_record_is(queue: ConsumeQueue):
    assert queue.last_entry() == (-1, 0)
    fill(queue, 5)
    assert queue.last_entry() == (400, 100)


def test_bytes_behind_the_end_are_noticed(queue: ConsumeQueue):
    assert queue.count_used_entries() == 0
    fill(queue, 5)
    assert queue.count_used_entries() == 5
    queue.write(6, pack([1, 1, 1]))
    assert (queue.max_offset, queue.count_used_entries()) == (5, 7)


# Cutting


@pytest.mark.parametrize("keep", [0, 1, 4, 5, 9])
def test_a_queue_can_be_cut_and_goes_on(queue: ConsumeQueue, keep: int):
    fill(queue, 10)
    queue.truncate(keep)
    assert numbers(queue) == list(range(keep)) == numbers(again(queue))
    assert queue.count_used_entries() == keep
    fill(queue, 3)
    assert numbers(queue) == list(range(keep + 3)) == numbers(again(queue))


def test_a_queue_restarts_within_what_it_has(queue: ConsumeQueue):
    fill(queue, 6)
    queue.restart(2)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 2, 2)


def test_a_queue_restarts_at_a_higher_number_without_its_past(queue: ConsumeQueue):
    fill(queue, 6)
    queue.restart(9)
    fill(queue, 1)
    assert names(queue) == [8] and (queue.min_offset, queue.max_offset) == (9, 10)


def test_a_deleted_topic_leaves_no_folder(queues: QueueTable, tmp_path: Path):
    for queue_id in range(2):
        fill(queues.obtain("Orders", queue_id), 5)
    fill(queues.obtain("Bills", 0), 1)
    queues.obtain("Orders", 2)  # only waited for
    queues.remove_topic("Orders")
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["Bills"]
    assert [(queue.topic, queue.queue_id) for queue in queues] == [("Bills", 0)]
    assert numbers(queues.obtain("Bills", 0)) == [0]


# What a start finds


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_the_end_is_found_after_a_shutdown_in_order(queue: ConsumeQueue, count: int):
    fill(queue, count)
    found = again(queue)
    assert numbers(found) == list(range(count)) and found.next_offset == count


@pytest.mark.parametrize("junk", [(50, 100, 0), (700, 0, 0), (700, -1, 0)], ids=["goes back", "empty", "negative"])
def test_after_a_crash_a_queue_ends_where_an_entry_makes_no_sense(queue: ConsumeQueue, junk: tuple[int, int, int]):
    fill(queue, 6)
    queue.write(6, pack([*junk, *entry_of(7)]))
    assert numbers(again(queue, known=300)) == list(range(6))


def test_after_a_crash_a_short_file_gets_its_full_size(queue: ConsumeQueue):
    fill(queue, 6)
    path = Path(queue.paths[1])
    path.write_bytes(path.read_bytes()[:25])
    found = again(queue, known=400)
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert path.stat().st_size == FILE_ENTRIES * ENTRY_SIZE


def test_a_gap_at_the_beginning_survives_a_crash(queue: ConsumeQueue):
    queue.restart(6)
    fill(queue, 3)
    found = again(queue, known=0)
    assert (found.find(0), found.max_offset) == (6, 9)


def test_files_behind_a_hole_that_a_crash_left_go(queue: ConsumeQueue):
    fill(queue, 10)
    Path(queue.paths[1]).unlink()
    found = again(queue, known=400)
    assert numbers(found) == [0, 1, 2, 3] and names(found) == [0]


@pytest.mark.parametrize("known", [None, 10**6])
def test_a_missing_file_is_named_if_no_crash_explains_it(queue: ConsumeQueue, known: int | None):
    fill(queue, 10)
    Path(queue.paths[1]).unlink()
    with pytest.raises(BadStore, match=r"0{18}80 is missing.*delete the folder consumequeue"):
        again(queue, known)


def test_a_file_of_another_size_is_refused(queue: ConsumeQueue, tmp_path: Path):
    fill(queue, 10)
    with pytest.raises(BadStore, match="not at a multiple of the file size 140"):
        table(tmp_path, file_entries=7).load(None)


def test_folders_that_are_no_queues_are_left_alone(queue: ConsumeQueue, tmp_path: Path):
    fill(queue, 1)
    (tmp_path / "consumequeue" / "Orders" / "notes").mkdir()
    queues = table(tmp_path)
    queues.load(None)
    assert [(queue.topic, queue.queue_id) for queue in queues] == [("Orders", 0)]


def test_of_two_files_that_go_the_first_is_gone_on_disk_before_the_second():
    vfs = RecordVfs()
    vfs.make_folder("/store")
    queue = table(Path("/store"), vfs=vfs).obtain("Orders", 0)
    fill(queue, 14)
    before = len(vfs.effects)
    queue.forget_before(1300, 10_000)
    assert [effect[0] for effect in vfs.effects[before:]] == ["sync_folder", "unlink"] * 3


class Reads(Disk):
    """A disk that keeps the size of its largest read."""

    largest = 0

    def read(self, file: File, offset: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return super().read(file, offset, size)


def test_the_content_of_a_large_file_is_read_in_parts(tmp_path):
    queue = table(tmp_path, file_entries=10_000).obtain("Orders", 0)
    fill(queue, 9_000)
    disk = Reads()
    queues = table(tmp_path, file_entries=10_000, vfs=disk)
    queues.load(None)
    found = queues.get("Orders", 0)
    assert found is not None and found.known_end() == queue.known_end()
    assert found.count_used_entries() == 9_000
    assert disk.largest <= 1 << 16
