import gc
import os

import pytest

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.mapped_file import MappedFile, is_unused
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk

DISK = Disk()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "00000000000000008192")


@pytest.fixture
def file(path):
    """A file for the bytes 8192 to 12288 of a row."""
    file = MappedFile.create(DISK, path, 8192, 4096)
    yield file
    file.close()


def test_a_file_knows_which_bytes_of_the_row_it_holds(file, path):
    assert (file.begin, file.end, file.size, file.path) == (8192, 12288, 4096, path)


def test_what_is_written_is_there_when_the_file_is_opened_again(file, path):
    file.write(10, b"abc")
    file.sync()
    again = MappedFile.open(DISK, path, 8192, writable=False)
    assert bytes(again.view[9:14]) == b"\0abc\0"
    again.close()


def test_a_view_stays_good_after_the_file_was_closed_and_deleted(path):
    file = MappedFile.create(DISK, path, 0, 4096)
    file.write(0, b"abc")
    view = file.view[:3]
    file.remove()
    del file
    gc.collect()
    assert not os.path.exists(path) and bytes(view) == b"abc"


def test_without_room_nothing_is_mapped_and_nothing_left(path):
    disk = FaultyDisk()
    disk.full_for = (path,)
    disk.map = lambda *_args: pytest.fail("mapped a file without room")  # type: ignore[method-assign]
    with pytest.raises(DiskFull):
        MappedFile.create(disk, path, 0, 4096)
    assert not os.path.exists(path)


def test_a_file_that_somebody_cut_is_refused(file, path):
    opened = DISK.open(path, writable=True)
    os.truncate(path, 100)
    with pytest.raises(BadStore, match="was cut to 100 bytes"):
        MappedFile(DISK, opened, 8192)
    DISK.close(opened)


def test_a_file_opened_for_reading_is_not_written_to(file, path):
    reader = MappedFile.open(DISK, path, 8192, writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.write(0, b"abc")
    reader.close()


def test_numbers_are_a_window_into_the_file(file):
    numbers = file.numbers(8, 3)
    file.write(12, b"\0\0\1\0")
    numbers[2] = -1
    assert file.is_memory
    assert list(numbers) == [0, 256, -1]
    assert bytes(file.view[16:20]) == b"\xff" * 4


@pytest.mark.parametrize(
    ("size", "written_at", "unused"),
    [(0, None, True), (3 << 20, None, True), (3 << 20, (3 << 20) - 1, False)],
)
def test_a_file_of_zeros_is_unused(path, size, written_at, unused):
    file = DISK.create(path, size, allocate=False)
    if written_at is not None:
        DISK.write(file, written_at, b"\1")
    DISK.close(file)
    assert is_unused(DISK, path) == unused
