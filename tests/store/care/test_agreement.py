"""The check without the index is silent about sound stores of several kinds, and notices each change of a log or a
queue.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparrowmq.store.care import check
from sparrowmq.store.care.check import verify
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from tests.store.care.test_backup import filled
from tests.store.stores import Stores, put

DISK = Disk()


def agrees(settings: StoreSettings) -> bool:
    return not any(verify(settings, DISK, reads_index=False))


def changed(path: Path, at: int, byte: bytes = b"\x01") -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(byte)


def first_log(root: Path) -> Path:
    return root / "commitlog" / f"{0:020d}"


def second_queue_file(root: Path) -> Path:
    return root / "consumequeue" / "Orders" / "1" / f"{320:020d}"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a record": lambda root: changed(first_log(root), 500, b"\xff"),
    "an offset": lambda root: changed(second_queue_file(root), 5),
    "a size": lambda root: changed(second_queue_file(root), 8),
    "a tag": lambda root: changed(second_queue_file(root), 19),
    "an entry too many": lambda root: changed(second_queue_file(root), 14 * 20 + 11, b"\x7f"),
    "a missing queue": lambda root: shutil.rmtree(root / "consumequeue" / "Orders" / "1"),
    "a missing queue of old messages": lambda root: shutil.rmtree(root / "consumequeue" / "Old"),
    "a queue without records": lambda root: shutil.copytree(
        root / "consumequeue" / "Orders", root / "consumequeue" / "Others"
    ),
    "no last log file": lambda root: max((root / "commitlog").iterdir()).unlink(),
}


@pytest.mark.parametrize("size", [20, 512 * 20])
def test_sound_stores_agree_and_each_change_is_noticed(
    stores: Stores, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_BYTES_PER_COMPARISON", size)
    store = stores.open()
    put(store, b"old", "Old")
    store.close()
    filled(stores).close()
    root = Path(stores.settings.path)
    assert agrees(stores.settings)
    for name, change in CHANGES.items():
        shutil.copytree(root, tmp_path / "kept")
        change(root)
        assert not agrees(stores.settings), name
        shutil.rmtree(root)
        (tmp_path / "kept").rename(root)
    assert agrees(stores.settings)


def test_a_store_of_which_old_files_are_deleted_agrees(stores: Stores) -> None:
    store = stores.open()
    put(store, b"old", "Old")
    store.close()
    store = filled(stores, 140)
    put(store, b"now", "Now")
    store.checkpoint()
    store._log.row.drop_first()
    store._log.row.drop_first()
    store.close()
    assert list(verify(stores.settings)) == [] and agrees(stores.settings)


def test_a_store_of_delayed_messages_agrees(stores: Stores) -> None:
    store = stores.open()
    put(store, b"later", "SCHEDULE_TOPIC_XXXX", 1, tag="a")
    store.close()
    assert agrees(stores.settings)


def test_how_far_it_is_is_shown(stores: Stores) -> None:
    filled(stores).close()
    seen: list[int] = []
    list(
        verify(
            stores.settings, DISK, lambda what, done, _: seen.append(done) if "log" in what else None, reads_index=False
        )
    )
    assert seen == sorted(seen) and len(seen) > 1
