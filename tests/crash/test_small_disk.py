"""A small disk is full when it says so, and has room again."""

import os
from pathlib import Path

import pytest

from tests.crash.not_here import NotHere, skipped_without
from tests.crash.small_disk import SmallDisk


def test_nobody_finds_a_byte_on_a_disk_that_is_full(tmp_path: Path):
    with skipped_without("a loop device"):
        disk = SmallDisk(tmp_path, 4 << 20)
    with disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(b"x")
        disk.free()
        (disk.folder / "more").write_bytes(bytes(3 << 20))
    assert not os.path.ismount(disk.folder)


def test_it_takes_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotHere, match="it takes root"):
        SmallDisk(tmp_path, 4 << 20)
