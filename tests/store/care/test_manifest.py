"""The manifest of a copy names each file, and notices each change of one, and of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care import manifest
from sparrowmq.store.care.manifest import Copied, Manifest
from sparrowmq.store.vfs import Disk, Stamp

DISK = Disk()
MIB = 1 << 20


def copied(folder: Path, name: str, content: bytes) -> Copied:
    (folder / name).write_bytes(content)
    return Copied(name, len(content), manifest.digest(DISK, str(folder / name)))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    files = [copied(tmp_path, "a", b"1"), Copied("b", 5, "0" * 64, Stamp(5, 6, 7))]
    manifest.save(DISK, str(tmp_path), Manifest(1, 2, 3, files))
    assert manifest.load(DISK, str(tmp_path)) == Manifest(1, 2, 3, files)
    assert manifest.load(DISK, str(tmp_path / "none")) is None


@pytest.mark.parametrize("keep", [0, 20, -2])
def test_a_manifest_that_was_changed_is_refused(tmp_path: Path, keep: int) -> None:
    manifest.save(DISK, str(tmp_path), Manifest(1, 2, 3, [copied(tmp_path, "a", b"1")]))
    path = tmp_path / manifest.NAME
    whole = path.read_bytes()
    for content in (whole[:keep], whole.replace(b'"end":3', b'"end":4')):
        path.write_bytes(content)
        with pytest.raises(BadStore, match="is damaged"):
            manifest.load(DISK, str(tmp_path))


def test_a_manifest_of_a_later_version_is_refused(tmp_path: Path) -> None:
    manifest.save(DISK, str(tmp_path), Manifest(1, 2, 3, [], 2))
    with pytest.raises(BadStore, match="which a later SparrowMQ wrote"):
        manifest.load(DISK, str(tmp_path))


def test_each_change_of_a_file_is_noticed(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3
    wanted, path = copied(tmp_path, "a", content), tmp_path / "a"
    assert manifest.problem(DISK, str(tmp_path), wanted) == ""
    path.write_bytes(content[:99] + b"\xff" + content[100:])
    assert "is damaged" in manifest.problem(DISK, str(tmp_path), wanted)
    path.write_bytes(content + b"\0")  # which changes no digest
    assert "has 769 bytes, the manifest says 768" in manifest.problem(DISK, str(tmp_path), wanted)
    path.unlink()
    assert manifest.problem(DISK, str(tmp_path), wanted) == f"{path} is missing"


def test_holes_change_no_digest(tmp_path: Path) -> None:
    """Bytes in parts 0, 2 and 5; one file has holes elsewhere, the other zeros."""
    holes, zeros = tmp_path / "holes", tmp_path / "zeros"
    places = [0, 2 * MIB + 5, 3 * MIB - 9000, 5 * MIB]
    with holes.open("wb") as file:
        for place in places:
            file.seek(place)
            file.write(b"x")
        file.truncate(8 * MIB)
    zeros.write_bytes(holes.read_bytes())
    assert os.stat(holes).st_blocks < os.stat(zeros).st_blocks
    assert manifest.digest(DISK, str(holes)) == manifest.digest(DISK, str(zeros))


def test_equal_parts_at_other_places_have_another_digest(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"x" * MIB + bytes(MIB))
    second.write_bytes(bytes(MIB) + b"x" * MIB)
    assert manifest.digest(DISK, str(first)) != manifest.digest(DISK, str(second))
