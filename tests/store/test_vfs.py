import errno
import os
import resource
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.vfs import Disk, Unsynced

DISK = Disk()
REAL_USED_RATIO = Disk.used_ratio  # tests/conftest.py replaces it


@contextmanager
def largest_file(size):
    """Let no file of this process grow past `size` bytes: the kernel then answers as a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "file")


@pytest.fixture
def file(path):
    """A file of 8 KiB."""
    file = DISK.create(path, 8192, allocate=True)
    yield file
    DISK.close(file)


def test_a_new_file_holds_zeros(file):
    assert DISK.read(file, 0, 10_000) == bytes(8192)


def test_a_file_that_exists_is_not_made_anew(file, path):
    with pytest.raises(FileExistsError):
        DISK.create(path, 100, allocate=True)
    assert DISK.size(path) == 8192


@pytest.mark.parametrize("allocate", [True, False])
def test_an_allocated_file_takes_its_room_at_once_and_a_sparse_one_does_not(path, allocate):
    DISK.close(DISK.create(path, 1 << 20, allocate))
    found = os.stat(path)
    assert found.st_size == 1 << 20
    assert (found.st_blocks * 512 >= 1 << 20) == allocate


@pytest.mark.parametrize("allocate", [True, False])
def test_a_file_for_which_there_is_no_room_is_not_left_behind(path, allocate):
    with largest_file(4096), pytest.raises(DiskFull, match=f"no room on the disk for {path}; free some$"):
        DISK.create(path, 8192, allocate)
    assert not os.path.exists(path)


def test_a_file_that_was_allocated_in_part_is_not_left_behind(path, monkeypatch):
    def allocate_half(fd, offset, size):
        os.ftruncate(fd, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", allocate_half)
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(DiskFull):
        DISK.create(path, 8192, allocate=True)
    assert not os.path.exists(path)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "makedirs"])
def test_a_disk_without_room_for_another_name_is_full_too(path, monkeypatch, call, code):
    def refuse(*_args, **_words):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(DiskFull):
        DISK.create(path, 8192, allocate=True) if call == "open" else DISK.make_folder(path)


def test_another_error_stays_what_it_is(tmp_path, path, monkeypatch):
    def break_down(*_args):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "posix_fallocate", break_down)
    with pytest.raises(OSError, match="Input/output error"):
        DISK.create(path, 8192, allocate=True)
    assert not os.path.exists(path)


def test_without_fallocate_zeros_take_the_room(path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    DISK.close(DISK.create(path, (1 << 20) + 4096, allocate=True))
    found = os.stat(path)
    assert found.st_size == (1 << 20) + 4096 <= found.st_blocks * 512


def test_without_fallocate_a_file_that_was_written_in_part_is_not_left_behind(path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    with largest_file((1 << 20) + 2048), pytest.raises(DiskFull):
        DISK.create(path, (1 << 20) + 4096, allocate=True)
    assert not os.path.exists(path)


def test_to_write_past_the_room_is_a_full_disk(file):
    with largest_file(8192 + 4), pytest.raises(DiskFull):
        DISK.write(file, 8192, b"eight by")
    DISK.write(file, 8188, memoryview(b"four"))
    assert DISK.read(file, 8186, 100)[:6] == b"\0\0four"


def test_a_file_is_read_up_to_its_end(file):
    DISK.write(file, 8190, b"ab")
    assert DISK.read(file, 8189, 100) == b"\0ab"
    assert DISK.read(file, 8192, 100) == b""


def test_a_file_is_cut_and_lengthened_with_zeros(file, path):
    DISK.write(file, 0, b"abc")
    DISK.truncate(file, 2)
    DISK.truncate(file, 4)
    assert (file.size, DISK.size(path)) == (4, 4)
    assert DISK.read(file, 0, 100) == b"ab\0\0"


def test_closing_twice_is_harmless(file):
    DISK.close(file)
    DISK.close(file)
    assert file.fd == -1


def test_a_file_that_is_missing_is_not_opened(path):
    with pytest.raises(FileNotFoundError):
        DISK.open(path, writable=True)
    with pytest.raises(FileNotFoundError):
        DISK.size(path)


def test_what_is_gone_need_not_be_synced(path):
    DISK.sync_path(path)
    DISK.sync_folder(path)
    assert not DISK.exists(path)


def test_files_and_folders_are_synced_by_path(file, path, tmp_path):
    DISK.sync_path(path)
    DISK.sync_folder(str(tmp_path))


def test_a_renamed_file_takes_the_place_of_another(file, path, tmp_path):
    other = str(tmp_path / "other")
    DISK.close(DISK.create(other, 1, allocate=True))
    DISK.rename(path, other)
    assert DISK.list_folder(str(tmp_path)) == ["other"] and DISK.size(other) == 8192


def test_a_file_where_a_folder_should_be_is_told(tmp_path):
    file = tmp_path / "store"
    file.write_bytes(b"")
    for folder in (file, file / "commitlog"):
        with pytest.raises(BadStore, match="is a file; move that file away, or choose another storePathRootDir"):
            DISK.make_folder(str(folder))


def test_folders_are_made_listed_and_removed(tmp_path):
    folder = str(tmp_path / "a" / "b")
    DISK.make_folder(folder)
    DISK.make_folder(folder)
    for name in ("2", "10", "1"):
        DISK.close(DISK.create(os.path.join(folder, name), 1, allocate=False))
    assert DISK.list_folder(folder) == ["1", "10", "2"]
    for name in DISK.list_folder(folder):
        DISK.unlink(os.path.join(folder, name))
    DISK.remove_folder(folder)
    assert not DISK.exists(folder) and DISK.list_folder(folder) == []


def test_the_use_of_the_disk_is_what_df_says(tmp_path):
    shown = subprocess.run(["df", "-P", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    percent = int(shown.splitlines()[1].split()[4].rstrip("%"))
    assert REAL_USED_RATIO(DISK, str(tmp_path)) * 100 == pytest.approx(percent, abs=1.5)


def test_a_part_that_was_just_read_is_cached(path):
    file = DISK.create(path, 8192, allocate=True)
    DISK.write(file, 0, bytes(8192))
    assert DISK.read(file, 0, 8192) and DISK.is_cached(file, 0) and DISK.is_cached(file, 8191)
    DISK.close(file)
    assert DISK.is_cached(file, 0), "a closed file: the read itself reports the error"


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system does not say what is cached")
def test_a_part_that_the_system_dropped_is_not_cached(path):
    file = DISK.create(path, 1 << 20, allocate=True)
    DISK.write(file, 0, bytes(1 << 20))
    os.fsync(file.fd)
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    found = DISK.is_cached(file, 1 << 19)
    DISK.close(file)
    if found:
        pytest.skip("this file system keeps its files in memory")


def test_a_lock_is_taken_once_and_given_back_by_closing(path):
    lock = DISK.lock(path)
    assert lock is not None and DISK.lock(path) is None
    DISK.close(lock)
    again = DISK.lock(path)
    assert again is not None
    DISK.close(again)


PROBE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"


def test_the_lock_is_one_that_java_sees(path):
    """Java asks for a POSIX lock on byte 0, which another process must not get."""
    lock = DISK.lock(path)
    probe = [sys.executable, "-S", "-c", PROBE, path]
    assert lock is not None and subprocess.run(probe, capture_output=True).returncode != 0
    DISK.close(lock)
    assert subprocess.run(probe, capture_output=True).returncode == 0


def test_descriptors_are_not_inherited(file, path):
    lock = DISK.lock(path + ".lock")
    for each in (file, DISK.open(path, writable=False), lock):
        assert each is not None and not os.get_inheritable(each.fd)
        DISK.close(each)


def test_only_the_owner_may_write_what_is_made(file, path):
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o022 == 0


def test_what_is_unsynced_is_taken_once():
    unsynced = Unsynced()
    unsynced.files.add("file")
    unsynced.folders.add("folder")
    assert unsynced.take() == Unsynced({"file"}, {"folder"})
    assert unsynced.take() == Unsynced()


def test_what_was_never_written_is_in_no_used_part(path):
    file = DISK.create(path, 16 << 20, allocate=True)
    for position in (1 << 20, (8 << 20) + 5):
        DISK.write(file, position, b"x" * 10)
    DISK.sync(file)
    found = DISK.used_parts(file, 0)
    assert all(any(begin <= at < end for begin, end in found) for at in (1 << 20, (8 << 20) + 14))
    assert found == sorted(found) and all(begin < end <= file.size for begin, end in found)
    assert DISK.used_parts(file, (8 << 20) + 7)[0][0] == (8 << 20) + 7
    assert DISK.used_parts(file, file.size) == []
    DISK.close(file)


@pytest.mark.parametrize("how", ["no system call", "not by this file system"])
def test_where_nothing_is_known_of_holes_all_may_be_used(path, monkeypatch, how):
    file = DISK.create(path, 1 << 20, allocate=True)
    if how == "no system call":
        monkeypatch.delattr(os, "SEEK_DATA", raising=False)
        monkeypatch.delattr(os, "SEEK_HOLE", raising=False)
    else:

        def refuse(*_: object) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(os, "lseek", refuse)
    assert DISK.used_parts(file, 100) == [(100, 1 << 20)]
    DISK.close(file)


def test_a_folder_that_holds_what_others_put_there_stays(tmp_path):
    (tmp_path / "README").write_text("not ours")
    DISK.remove_folder(str(tmp_path))
    assert DISK.list_folder(str(tmp_path)) == ["README"]
    assert DISK.list_folder(str(tmp_path / "README")) == []


def test_a_folder_is_locked_once_and_given_back_by_closing(tmp_path):
    held = DISK.lock_folder(str(tmp_path))
    assert held is not None and DISK.lock_folder(str(tmp_path)) is None
    DISK.close(held)
    again = DISK.lock_folder(str(tmp_path))
    assert again is not None
    DISK.close(again)
