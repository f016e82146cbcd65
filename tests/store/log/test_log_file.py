import errno
import os

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.store.log.log_file import PAGE, LogFile, is_unused
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk

SIZE = 8 * PAGE


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "00000000000000008192")


@pytest.fixture
def file(path, disk):
    """A file for the bytes from 8192 on of a row, full of ones."""
    file = LogFile.create(disk, path, 8192, SIZE)
    file.write(0, b"\1" * SIZE)
    yield file
    file.close()


def test_a_file_knows_which_bytes_of_the_row_it_holds(file, path):
    assert (file.begin, file.end, file.size, file.path) == (8192, 8192 + SIZE, SIZE, path)


def test_what_is_written_is_there_when_the_file_is_opened_again(file, path, disk):
    file.write(10, b"abc")
    file.sync()
    again = LogFile.open(disk, path, 8192, writable=False)
    assert again.read(9, 5) == b"\1abc\1"
    again.close()


@pytest.mark.parametrize(
    ("position", "size", "expected"),
    [(0, 3, 3), (SIZE - 2, 3, 2), (SIZE, 1, 0), (SIZE + 5, 1, 0), (0, 0, 0), (0, -1, 0)],
)
def test_a_read_ends_where_the_file_does(file, position, size, expected):
    assert file.read(position, size) == b"\1" * expected


def test_what_was_read_stays_good_after_the_file_was_deleted(file, path):
    content = file.read(0, 3)
    file.remove()
    assert not os.path.exists(path) and content == b"\1\1\1"


def test_without_room_nothing_is_left(path, disk):
    disk.full_for = (path,)
    with pytest.raises(DiskFull):
        LogFile.create(disk, path, 0, SIZE)
    assert not os.path.exists(path)


def test_a_file_opened_for_reading_is_not_written_to(file, path, disk):
    reader = LogFile.open(disk, path, 8192, writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        reader.write(0, b"abc")
    reader.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA, errno.EBADMSG])
def test_a_page_that_cannot_be_read_is_zeros_and_its_neighbours_are_what_they_are(file, disk, caplog, number):
    disk.bad = {(file.path, 2 * PAGE): number}
    ones, zeros = b"\1" * PAGE, bytes(PAGE)
    assert file.read(0, 4 * PAGE) == ones + ones + zeros + ones
    assert file.read(2 * PAGE - 2, 4) == b"\1\1\0\0"
    assert file.read(3 * PAGE - 2, 4) == b"\0\0\1\1"
    assert file.unreadable == {2 * PAGE}
    assert caplog.text.count(f"{file.path} cannot be read at {2 * PAGE}: ") == 1


def test_the_disk_is_asked_again_for_what_it_could_not_read(file, disk):
    disk.bad = {(file.path, 0): errno.EIO}
    assert file.read(0, 4) == bytes(4)
    disk.bad = {}
    assert file.read(0, 4) == b"\1" * 4


def test_what_somebody_cut_off_is_zeros(file, caplog):
    os.truncate(file.path, PAGE + 100)
    assert not file.is_whole
    assert file.read(PAGE + 90, 20) == b"\1" * 10 + bytes(10)
    assert file.read(4 * PAGE, 2) == bytes(2)
    assert file.unreadable == {PAGE, 4 * PAGE} and "another program truncated the file" in caplog.text


def test_another_error_is_no_damage(file, disk):
    disk.bad = {(file.path, 0): errno.EBADF}
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 4)


@pytest.mark.parametrize(
    ("size", "written_at", "unused"),
    [(0, None, True), (3 << 20, None, True), (3 << 20, (3 << 20) - 1, False)],
)
def test_a_file_of_zeros_is_unused(path, size, written_at, unused):
    disk = Disk()
    file = disk.create(path, size, allocate=False)
    if written_at is not None:
        disk.write(file, written_at, b"\1")
    disk.close(file)
    assert is_unused(disk, path) == unused
