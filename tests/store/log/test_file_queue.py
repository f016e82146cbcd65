import os

import pytest

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.layout import offset_name
from sparrowmq.store.log.log_file import FileQueue
from sparrowmq.store.vfs import Disk
from tests.store.crash_states import DiskState, RecordVfs
from tests.store.faulty_disk import FaultyDisk

DISK = Disk()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "commitlog")


def opened(folder, size=4096, vfs=DISK, writable=True):
    return FileQueue.open(vfs, folder, size, writable)


def make(folder, *begins, vfs=DISK):
    row = opened(folder, vfs=vfs)
    for begin in begins:
        row.add(row.create_next(begin))
    return row


def names(folder):
    return [int(name) for name in DISK.list_folder(folder)]


def test_a_row_that_is_not_there_is_empty(folder):
    row = opened(folder)
    assert (row.begin, row.end, row.find(0), row.between(0, 100)) == (0, 0, None, [])


@pytest.mark.covers("S-STORE-01")
def test_a_byte_is_found_in_the_file_named_by_its_offset(folder):
    row = make(folder, 8192, 12288)
    assert (row.begin, row.end) == (8192, 16384)
    found = [(offset, file.begin if (file := row.find(offset)) else None) for offset in (8191, 8192, 12287, 12288)]
    assert found == [(8191, None), (8192, 8192), (12287, 8192), (12288, 12288)]
    assert row.find(16384) is None
    row.close()


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 4096, [0]), (4095, 4097, [0, 4096]), (4096, 4096, []), (0, 1 << 40, [0, 4096]), (8192, 9000, [])],
)
def test_the_files_between_two_offsets_hold_bytes_of_them(folder, begin, end, expected):
    row = make(folder, 0, 4096)
    assert [file.begin for file in row.between(begin, end)] == expected
    row.close()


def test_a_row_is_found_again(folder):
    row = make(folder, 4096, 8192)
    row.files[1].write(0, b"abc")
    row.close()
    again = opened(folder)
    assert [file.begin for file in again.files] == [4096, 8192] and again.files[1].read(0, 3) == b"abc"
    again.close()


def test_a_new_file_is_on_disk_with_its_name_before_it_is_used():
    vfs = RecordVfs()
    make("/log", 0, vfs=vfs)
    assert [effect[0] for effect in vfs.effects] == ["make_folder", "create", "sync", "sync_folder"]


def test_files_go_at_both_ends_and_are_gone_from_the_disk(folder):
    row = make(folder, 0, 4096, 8192)
    row.drop_first()
    row.drop_last()
    assert (row.begin, row.end) == (4096, 8192) and names(folder) == [4096]
    row.close()


def test_a_file_that_goes_is_gone_on_disk_before_the_next_one_goes():
    vfs = RecordVfs()
    row = make("/log", 0, 4096, vfs=vfs)
    before = len(vfs.effects)
    row.drop_last()
    row.drop_first()
    assert [effect[0] for effect in vfs.effects[before:]] == ["sync_folder", *["unlink", "sync_folder"] * 2]


def test_a_hole_is_damage_and_names_the_missing_file(folder):
    make(folder, 0, 4096, 8192).close()
    os.unlink(os.path.join(folder, offset_name(4096)))
    with pytest.raises(BadStore, match=r"00000000000000004096 is missing, .*restore it from a slave or a backup"):
        opened(folder)


def test_another_file_size_than_the_one_it_was_made_with_is_refused(folder):
    make(folder, 0, 4096).close()
    for size in (2048, 8192):
        with pytest.raises(BadStore, match=r"has 4096 bytes, not 2048|set the size with which it was created"):
            opened(folder, size)
    assert names(folder) == [0, 4096]


def cut_last(folder, size):
    path = os.path.join(folder, max(os.listdir(folder)))
    os.truncate(path, size)


def test_a_last_file_that_is_short_and_unused_is_removed(folder):
    make(folder, 0, 4096).close()
    cut_last(folder, 512)
    row = opened(folder)
    assert row.end == 4096 and names(folder) == [0]
    row.close()


def test_a_reader_leaves_a_short_file_where_it_is(folder):
    make(folder, 0, 4096).close()
    cut_last(folder, 512)
    row = opened(folder, writable=False)
    assert row.end == 4096 and names(folder) == [0, 4096]
    row.close()


def test_a_short_file_that_holds_something_is_refused(folder):
    row = make(folder, 0, 4096)
    row.files[1].write(100, b"message")
    row.close()
    cut_last(folder, 512)
    with pytest.raises(BadStore, match="00000000000000004096 has 512 bytes, not 4096"):
        opened(folder)


def test_a_short_file_before_others_is_refused(folder):
    make(folder, 0, 4096).close()
    os.truncate(os.path.join(folder, offset_name(0)), 512)
    with pytest.raises(BadStore, match="00000000000000000000 has 512 bytes"):
        opened(folder)


def test_names_of_others_are_left_alone(folder):
    make(folder, 0).close()
    DISK.close(DISK.create(os.path.join(folder, ".nfs0001"), 10, allocate=False))
    row = opened(folder)
    assert row.end == 4096 and len(os.listdir(folder)) == 2
    row.close()


def test_a_full_disk_changes_nothing_and_the_file_comes_once_there_is_room(folder):
    disk = FaultyDisk()
    row = make(folder, 0, vfs=disk)
    disk.full_for = ("commitlog",)
    with pytest.raises(DiskFull):
        row.create_next(4096)
    assert (row.end, names(folder)) == (4096, [0])
    disk.full_for = ()
    row.add(row.create_next(4096))
    assert row.end == 8192
    row.close()


def test_a_file_whose_name_cannot_be_brought_to_disk_goes_again(folder, monkeypatch):
    disk = FaultyDisk()
    row = make(folder, 0, vfs=disk)

    def refuse(path: str) -> None:
        raise DiskFull("no room for the name")

    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(disk, "sync_folder", refuse)
        row.create_next(4096)
    assert names(folder) == [0]
    row.add(row.create_next(4096))
    row.close()


def test_a_file_that_does_not_follow_is_not_taken(folder):
    row = make(folder, 0)
    with pytest.raises(AssertionError, match="does not follow the row that ends at 4096"):
        row.add(row.create_next(8192))
    row.close()


def test_a_short_file_that_goes_at_the_start_is_gone_on_disk_before_the_next_one_goes():
    vfs = RecordVfs(DiskState({"/", "/log"}, {f"/log/{0:020d}": bytes(64), f"/log/{64:020d}": b""}))
    row = FileQueue.open(vfs, "/log", 64)
    row.drop_last()
    assert [effect[0] for effect in vfs.effects] == ["unlink", "sync_folder", "unlink", "sync_folder"]
