"""A copy is whole, or the check says which file is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparrowmq.core import snapshot
from sparrowmq.store.care import manifest
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.manifest import config_problems, copy_problems, is_copy
from sparrowmq.store.vfs import Disk
from tests.store.care.test_backup import filled
from tests.store.stores import Stores

DISK = Disk()


def test_a_copy_is_whole_until_a_file_changes(stores: Stores, tmp_path: Path) -> None:
    filled(stores)
    backup(stores.settings, tmp_path / "copy", DISK)
    settings = replace(stores.settings, path=tmp_path / "copy")
    assert is_copy(DISK, str(tmp_path / "copy")) and not is_copy(DISK, str(tmp_path))
    assert list(copy_problems(settings, DISK)) == []
    (tmp_path / "copy" / "checkpoint").write_bytes(bytes(4096))
    assert any(f"{tmp_path / 'copy' / 'checkpoint'} is damaged" in each for each in copy_problems(settings, DISK))


def test_the_log_of_a_copy_without_manifest_is_checked(stores: Stores, tmp_path: Path) -> None:
    filled(stores)
    backup(stores.settings, tmp_path / "copy", DISK)
    (tmp_path / "copy" / manifest.NAME).unlink()
    settings = replace(stores.settings, path=tmp_path / "copy")
    assert list(copy_problems(settings, DISK)) == []
    with (tmp_path / "copy" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(100)
        file.write(b"????")
    assert any("the log is damaged from offset 0" in each for each in copy_problems(settings, DISK))


def test_files_of_the_broker_are_read_in_each_dialect(tmp_path: Path) -> None:
    config = tmp_path / "config"
    snapshot.save(config / "topics.json", {"topics": 1})
    snapshot.save(config / "topics.json", {"topics": 2})
    (config / "delayOffset.json").write_text('{"offsetTable":{1:12,2:9}}')  # as Java writes it
    assert list(config_problems(str(tmp_path))) == []
    (config / "topics.json").write_bytes(b'{"topics":')
    (config / "delayOffset.json").write_bytes(b"[]")
    first, second = config_problems(str(tmp_path))
    assert "delayOffset.json cannot be read" in first and "topics.json.bak is used instead" in second
