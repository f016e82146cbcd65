"""A file that is made anew is there whole before the one before it goes."""

from pathlib import Path

import pytest

from sparrowmq.store.vfs import Disk, File, NumberedFolder
from tests.store.faulty_disk import FaultyDisk, broken


class ToldDisk(Disk):
    """A disk that remembers what was done in which order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def sync(self, file: File) -> None:
        self.done.append(f"sync {Path(file.path).suffix}")
        super().sync(file)

    def rename(self, old: str, new: str) -> None:
        self.done.append("rename")
        super().rename(old, new)

    def sync_folder(self, path: str) -> None:
        self.done.append(f"sync {Path(path).name}")
        super().sync_folder(path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ends")


def written(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


def test_each_file_has_the_next_number_and_the_others_go_when_they_are_told_to(path: str) -> None:
    disk = Disk()
    folder = NumberedFolder(disk, path)
    for content in (b"one", b"two"):
        disk.close(folder.replace(content))
    assert folder.numbers() == [1, 0]
    folder.remove_others()
    assert written(path) == {f"{1:020d}": b"two"}
    again = NumberedFolder(disk, path)
    assert again.numbers() == [1]
    disk.close(again.replace(b"three"))
    assert again.numbers() == [2, 1]


def test_room_is_there_from_the_beginning(path: str) -> None:
    disk = Disk()
    file = NumberedFolder(disk, path).replace(b"one", 100)
    assert (file.size, written(path)) == (100, {f"{0:020d}": b"one" + bytes(97)})
    assert Path(file.path).name == f"{0:020d}"
    disk.close(file)


def test_it_is_on_disk_before_it_has_its_name_and_the_name_before_it_counts(path: str) -> None:
    disk = ToldDisk()
    disk.close(NumberedFolder(disk, path).replace(b"one"))
    assert disk.done[-3:] == ["sync .tmp", "rename", "sync ends"]


def test_what_a_crash_left_beside_is_no_file_and_in_nobodys_way(path: str) -> None:
    disk = Disk()
    folder = NumberedFolder(disk, path)
    disk.close(folder.replace(b"one"))
    (Path(path) / f"{1:020d}.tmp").write_bytes(b"half of it, and longer")
    assert NumberedFolder(disk, path).numbers() == [0]
    disk.close(folder.replace(b"two"))
    assert written(path)[f"{1:020d}"] == b"two"


def test_after_a_failure_all_is_as_before(path: str) -> None:
    disk = FaultyDisk()
    folder = NumberedFolder(disk, path)
    disk.close(folder.replace(b"one"))
    disk.sync_error = broken()
    with pytest.raises(OSError, match="error"):
        folder.replace(b"two")
    assert (folder.numbers(), folder.number) == ([0], 0)
    disk.close(folder.replace(b"two"))
    assert folder.numbers() == [1, 0]
