"""A disk whose power can be cut keeps what was synced, and loses what was not."""

import os
from pathlib import Path

import pytest

from tests.crash import loop_disk
from tests.crash.loop_disk import LoopDisk, demand
from tests.crash.not_here import NotHere


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.slow)])
def test_a_power_cut_takes_what_no_sync_has_covered(tmp_path: Path, kind: str):
    try:
        demand(kind)
        disk = LoopDisk(tmp_path, kind)
    except NotHere as reason:
        pytest.skip(f"needs a loop device: {reason}")
    with disk:
        for name in ("synced", "loose"):
            (disk.folder / name).write_bytes(b"x" * 8192)
        fd = os.open(disk.folder / "synced", os.O_RDWR)
        os.fdatasync(fd)
        os.pwrite(fd, b"y" * 8192, 0)
        disk.cut()
        os.close(fd)
        disk.again()
        assert (disk.folder / "synced").read_bytes() == b"x" * 8192
        assert not (disk.folder / "loose").exists() or not any((disk.folder / "loose").read_bytes())
    assert not os.path.ismount(disk.folder)


def test_who_may_not_mount_is_told_why(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotHere, match="it takes root"):
        loop_disk.demand("ext4")
