import os
from pathlib import Path

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.store.layout import ENTRY
from sparrowmq.store.timers import TimerFile
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk, broken
from tests.store.stores import descriptors

PENDING = [ENTRY.pack(100, 91, 5), ENTRY.pack(191, 91, 7) + ENTRY.pack(282, 91, 6)]


def known(file):
    """What it says, which is something."""
    found = file.load()
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "timers")


def test_without_a_file_nothing_is_known(folder):
    file = TimerFile(Disk(), folder)
    assert file.load() is None and file.wants_replacement


def test_what_was_written_is_known_again(folder):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    file.settle([191], 2000)
    file.settle([100, 373], 3000)
    file.close()
    said = known(TimerFile(Disk(), folder))
    assert said.pending == b"".join(PENDING) and said.finished == {191, 100, 373}
    assert (said.queue_offset, said.log_offset) == (3, 3000)


def test_a_file_goes_on_where_it_ended(folder):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    file.close()
    file = TimerFile(Disk(), folder)
    assert known(file).finished == set()
    file.settle([191], 2000)
    file.close()
    assert known(TimerFile(Disk(), folder)).finished == {191}


@pytest.mark.parametrize("cut", range(1, 48))
def test_a_torn_last_chunk_is_as_if_it_had_not_been_written(folder, cut):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    file.settle([191], 2000)
    file.settle([100, 373], 3000)
    file.close()
    path = Path(folder, "0" * 20)
    os.truncate(path, path.stat().st_size - cut)
    file = TimerFile(Disk(), folder)
    said = known(file)
    assert said.finished == {191} and (said.queue_offset, said.log_offset) == (3, 2000)
    file.settle([282], 4000)
    file.close()
    assert known(TimerFile(Disk(), folder)).finished == {191, 282}


def test_a_new_file_takes_the_place_of_the_one_before(folder):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    file.replace(PENDING[:1], 5, 1500)
    assert os.listdir(folder) == ["0" * 19 + "1"]
    file.close()
    assert known(TimerFile(Disk(), folder)).pending == PENDING[0]


def test_a_damaged_file_is_not_believed(folder, caplog):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    file.close()
    path = Path(folder, "0" * 20)
    content = bytearray(path.read_bytes())
    content[30] ^= 1
    path.write_bytes(content)
    before = descriptors()
    file = TimerFile(Disk(), folder)
    assert file.load() is None and "is damaged" in caplog.text
    assert descriptors() == before
    file.replace(PENDING, 4, 2000)
    file.close()
    assert known(TimerFile(Disk(), folder)).log_offset == 2000


def test_a_crash_while_a_new_file_is_written_leaves_the_one_before(folder):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    Path(folder, "0" * 19 + "1.tmp").write_bytes(b"SPTM torn")
    file.close()
    file = TimerFile(Disk(), folder)
    assert known(file).log_offset == 1000
    file.replace(PENDING, 4, 2000)
    file.close()
    assert known(TimerFile(Disk(), folder)).log_offset == 2000


def test_a_full_or_broken_disk_leaves_what_was_there(folder):
    disk = FaultyDisk()
    file = TimerFile(disk, folder)
    file.replace(PENDING, 3, 1000)
    disk.full_for = ("timers",)
    with pytest.raises(DiskFull):
        file.settle([100], 2000)
    with pytest.raises(DiskFull):
        file.replace(PENDING, 4, 2000)
    disk.full_for = ()
    disk.sync_error = broken()
    with pytest.raises(OSError, match="Input/output"):
        file.replace(PENDING, 4, 2000)
    file.settle([191], 3000)
    file.close()
    said = known(TimerFile(Disk(), folder))
    assert said.finished == {191} and said.log_offset == 3000


def test_a_file_is_made_anew_when_most_of_it_is_settled(folder):
    file = TimerFile(Disk(), folder)
    file.replace(PENDING, 3, 1000)
    assert not file.wants_replacement
    file.settle(list(range(150_000)), 2000)
    assert file.wants_replacement
    file.replace(PENDING, 5, 3000)
    assert not file.wants_replacement
    file.close()
