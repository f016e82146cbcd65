"""The file `abort` notes how far the log has been synced, and says no more than is true."""

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.store.layout import SECTOR
from sparrowmq.store.log import flush
from sparrowmq.store.log.flush import SyncedMark
from sparrowmq.store.vfs import Disk, File


@pytest.fixture
def path(tmp_path):
    return tmp_path / "abort"


def begun(path, end=100, vfs=None):
    mark = SyncedMark(vfs or Disk(), str(path))
    mark.begin(end)
    return mark


def test_the_last_note_counts(path):
    mark = begun(path)
    for end in (200, 350, 400):
        mark.note(end)
        assert flush.load_mark(Disk(), str(path)) == end


def test_a_damaged_sector_leaves_the_note_before(path):
    mark = begun(path)
    mark.note(200)
    mark.note(350)
    content = bytearray(path.read_bytes())
    content[SECTOR + 9] ^= 1
    path.write_bytes(content)
    assert flush.load_mark(Disk(), str(path)) == 200


@pytest.mark.parametrize("content", [b"", b"4711", b"SYNCED-1", bytes(2 * SECTOR)])
def test_a_file_without_a_mark_says_nothing(path, content):
    path.write_bytes(content)
    assert flush.load_mark(Disk(), str(path)) == 0


def test_a_missing_file_says_nothing(path):
    assert flush.load_mark(Disk(), str(path)) == 0


def test_a_start_lowers_the_marks_of_the_last_run_on_disk(path):
    begun(path).note(9000)
    disk = Syncs()
    begun(path, 500, disk)
    assert flush.load_mark(Disk(), str(path)) == 500 and disk.synced == [str(path)]


def test_marks_are_lowered_and_never_raised(path):
    begun(path).note(9000)
    flush.lower_mark(Disk(), str(path), 700)
    assert flush.load_mark(Disk(), str(path)) == 700
    flush.lower_mark(Disk(), str(path), 800)
    assert flush.load_mark(Disk(), str(path)) == 700


def test_a_full_disk_leaves_an_empty_file_and_a_warning(path, caplog):
    mark = begun(path, vfs=Full())
    mark.note(200)
    assert path.read_bytes() == b"" and "no room" in caplog.text


def test_a_mark_that_cannot_be_written_stops_nothing(path, caplog):
    mark = begun(path)
    mark._vfs = Full()
    mark.note(200)
    mark.note(300)
    assert flush.load_mark(Disk(), str(path)) == 100 and caplog.text.count("is not written any more") == 1


class Syncs(Disk):
    """A disk that remembers the synced files."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync(self, file: File) -> None:
        self.synced.append(file.path)
        super().sync(file)


class Full(Disk):
    """A disk without room."""

    def create(self, path, size, allocate):
        if allocate:
            raise DiskFull(f"no room on the disk for {path}")
        return super().create(path, size, allocate)

    def write(self, file, offset, content):
        raise DiskFull(f"no room on the disk for {file.path}")


def on_boot(monkeypatch, number):
    monkeypatch.setattr(flush, "boot_id", lambda: bytes(15) + bytes([number]))


def test_a_mark_says_whether_the_machine_was_restarted(path, monkeypatch):
    on_boot(monkeypatch, 1)
    mark = begun(path)
    mark.note(200)
    assert not flush.is_of_earlier_boot(Disk(), str(path))
    on_boot(monkeypatch, 2)
    assert flush.is_of_earlier_boot(Disk(), str(path))
    assert flush.load_mark(Disk(), str(path)) == 200


def test_without_a_known_boot_the_machine_counts_as_not_restarted(path, monkeypatch):
    on_boot(monkeypatch, 0)
    begun(path).note(200)
    on_boot(monkeypatch, 2)
    assert not flush.is_of_earlier_boot(Disk(), str(path))
    assert not flush.is_of_earlier_boot(Disk(), str(path) + "-missing")


def test_each_boot_of_the_system_has_an_identity():
    assert len(flush.boot_id()) == 16
