"""The trial of a disk leaves nothing behind, and says what a start would say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import PROBE_BYTES, PROBE_NAME, probe_writes
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import put


def test_it_syncs_a_file_in_each_folder_and_deletes_it(tmp_path: Path) -> None:
    disk, folders = FaultyDisk(), [str(tmp_path / "a"), str(tmp_path / "log")]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / PROBE_NAME).write_bytes(b"of a process that was killed")
    probe_writes(disk, folders, folders[1], 1 << 21)
    assert disk.synced == [PROBE_NAME, PROBE_NAME]
    assert not any(os.listdir(folder) for folder in folders)


def test_a_folder_without_room_or_with_a_broken_disk_is_told_and_nothing_stays(tmp_path: Path) -> None:
    disk, folder = FaultyDisk(), str(tmp_path)
    disk.full_for = (PROBE_NAME,)
    with pytest.raises(DiskFull):
        probe_writes(disk, [folder], folder, 0)
    disk.full_for, disk.sync_errors = (), {str(tmp_path / PROBE_NAME): 5}
    with pytest.raises(OSError):
        probe_writes(disk, [folder], folder, 0)
    assert os.listdir(folder) == []


def test_a_store_wants_room_for_its_next_file_only_when_it_needs_one(tmp_path: Path) -> None:
    size = 4 * PROBE_BYTES
    with MessageStore.open(StoreSettings(tmp_path, commit_log_file_size=size)) as store:
        assert store.appender.needed_bytes() == size  # there is no file yet
        put(store, b"one")
        assert store.appender.needed_bytes() == 0
        for _ in range(3):
            put(store, bytes(PROBE_BYTES))
        assert store.appender.needed_bytes() == size
        store.appender.stall(DiskFull("no room"))
        with pytest.raises(DiskFull, match="no room"):
            store.appender.needed_bytes()
