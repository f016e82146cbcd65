"""The folder in which a copy grows, links to earlier copies, and files that become their own before a write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care import manifest
from sparrowmq.store.care.copier import Copy, CopyOnWriteDisk, EarlierCopy, growing_folder, remove
from sparrowmq.store.care.manifest import Copied
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Vfs

DISK = Disk()


def test_a_copy_appears_at_the_end(tmp_path: Path) -> None:
    to = tmp_path / "copy"
    with growing_folder(DISK, f"{to}/") as growing:
        Path(growing, "a").write_text("1")
        assert not to.exists()
    assert (to / "a").read_text() == "1" and not Path(growing).exists()


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), growing_folder(DISK, str(tmp_path / "copy")) as growing:
        Path(growing, "a").write_text("1")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_goes_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "copy.unfinished" / "below").mkdir(parents=True)
    (tmp_path / "copy.unfinished" / "below" / "a").write_text("old")
    with growing_folder(DISK, str(tmp_path / "copy")) as growing:
        assert list(Path(growing).iterdir()) == []


def test_a_folder_is_copied_with_the_folders_in_it(tmp_path: Path) -> None:
    (tmp_path / "config" / "below").mkdir(parents=True)
    for name in ("a", "below/b"):
        (tmp_path / "config" / name).write_text(name)
    copy = Copy(DISK, StoreSettings(tmp_path), str(tmp_path))
    copy.copy_tree(str(tmp_path / "config"), str(tmp_path / "copy"))
    for name in ("a", "below/b"):
        assert (tmp_path / "copy" / name).read_text() == name


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "a").write_text("1")
    for name in ("copy", "copy/a"):
        with pytest.raises(BadStore, match="is not empty"), growing_folder(DISK, str(tmp_path / name)):
            pass
    with growing_folder(DISK, str(tmp_path / "empty")):
        pass
    with growing_folder(DISK, str(tmp_path / "empty")) as growing:
        Path(growing, "a").touch()
    assert (tmp_path / "empty" / "a").exists()


def test_a_link_is_removed_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "kept")
    remove(DISK, str(tmp_path / "folder"))
    remove(DISK, str(tmp_path / "none"))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def earlier(tmp_path: Path, **how: bool) -> tuple[EarlierCopy, Path]:
    """An earlier copy with one file, and the source of that."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "source").write_text("content")
    (tmp_path / "earlier" / "a").write_text("content")
    digest = manifest.digest(DISK, str(tmp_path / "earlier" / "a"))
    known = Copied("a", 7, digest, DISK.stamp(str(tmp_path / "source")))
    return EarlierCopy(str(tmp_path / "earlier"), {"a": known}, **how), tmp_path / "source"


def test_a_file_is_linked_if_its_source_is_as_it_was(tmp_path: Path) -> None:
    files, source = earlier(tmp_path)
    stamp, to = DISK.stamp(str(source)), tmp_path / "new"
    assert files.link(DISK, "b", stamp, str(to)) is None
    assert files.link(DISK, "a", stamp._replace(changed_ns=stamp.changed_ns + 1), str(to)) is None
    assert files.link(DISK, "a", stamp._replace(inode=stamp.inode + 1), str(to)) is None
    assert not to.exists() and files.linked == 0
    assert files.link(DISK, "a", stamp, str(to)) is not None
    assert to.samefile(tmp_path / "earlier" / "a") and files.linked == 1


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_damaged_file_is_linked_only_unchecked(
    tmp_path: Path, is_checked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files, source = earlier(tmp_path, is_checked=is_checked)
    (tmp_path / "earlier" / "a").write_text("c0ntent")
    found = files.link(DISK, "a", DISK.stamp(str(source)), str(tmp_path / "new"))
    assert (found is None) == is_checked
    assert ("an earlier backup is damaged" in caplog.text) == is_checked


class WithoutLinks(Disk):
    """A file system such as FAT."""

    def link(self, path: str, to: str) -> bool:
        return False


def test_without_links_files_are_copied(tmp_path: Path) -> None:
    files, source = earlier(tmp_path)
    assert files.link(WithoutLinks(), "a", DISK.stamp(str(source)), str(tmp_path / "new")) is None


@pytest.mark.parametrize("change", ["write", "truncate"])
def test_a_shared_file_becomes_an_own_one_before_a_write(tmp_path: Path, change: str) -> None:
    (tmp_path / "earlier").write_text("content")
    path = tmp_path / "new"
    os.link(tmp_path / "earlier", path)
    disk = CopyOnWriteDisk(DISK, {str(path)})
    vfs = cast("Vfs", disk)
    file = vfs.open(str(path), writable=True)
    assert vfs.read(file, 0, 3) == b"con" and not disk.written
    if change == "write":
        vfs.write(file, 0, b"C")
        vfs.write(file, 1, b"O")
    else:
        vfs.truncate(file, 2)
    vfs.close(file)
    assert path.read_text() == ("COntent" if change == "write" else "co")
    assert (tmp_path / "earlier").read_text() == "content" and disk.written == {str(path)}
