"""A store with damage anywhere in its log is sound again after a repair, and has all the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sparrowmq.errors import StoreLocked
from sparrowmq.store import checkpoint
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.repair import repair
from sparrowmq.store.layout import LOCK_OF_JAVA
from sparrowmq.store.vfs import Disk
from tests.store.stores import Stores, bodies, put

DISK = Disk()


@pytest.mark.parametrize("damaged", [[0], [7], [3, 4, 11], [39], [38, 39]])
def test_damage_far_behind_the_checkpoint_is_fenced_off_and_kept(stores: Stores, damaged: list[int]):
    store = stores.open(commit_log_file_size=1 << 20)
    places = [put(store, b"%d" % number, key=f"k{number}") for number in range(40)]
    store.close()
    settings = store.settings
    found = checkpoint.load(DISK, settings.layout.checkpoint)
    assert found.positions is not None
    path = Path(settings.layout.commit_log, f"{0:020d}")
    content = bytearray(path.read_bytes())
    for number in damaged:
        content[places[number][0] + 60] ^= 1
    path.write_bytes(content)
    assert list(verify(settings)) != []
    repair(settings, DISK)
    assert list(verify(settings)) == []
    store = stores.open(commit_log_file_size=1 << 20)
    assert bodies(store) == [b"%d" % number for number in range(40) if number not in damaged]
    assert put(store)[1] == 40  # no offset is given twice
    kept = b"".join(path.read_bytes() for path in Path(settings.layout.set_aside).iterdir())
    assert all(bytes(content[places[number][0] :][:100]) in kept for number in damaged)


def test_damage_in_an_early_file_is_fenced_off_though_java_closed_the_store(stores: Stores):
    store = stores.open(commit_log_file_size=64 << 10)
    places = [put(store, b"x" * 4096, key=f"k{number}") for number in range(40)]
    store.close()
    settings = store.settings
    layout = settings.layout
    Path(layout.lock).write_bytes(LOCK_OF_JAVA)
    shutil.rmtree(layout.ends)
    with Path(layout.checkpoint).open("r+b") as file:
        file.seek(64)
        file.write(bytes(64))  # Java writes its own fields only
    with Path(layout.commit_log, f"{0:020d}").open("r+b") as file:
        file.seek(places[3][0] + 200)
        file.write(b"y")
    assert list(verify(settings)) != []
    repair(settings, DISK)
    assert list(verify(settings)) == []
    assert len(bodies(stores.open(commit_log_file_size=64 << 10))) == 39


def test_a_sound_store_stays_as_it_is(stores: Stores):
    store = stores.open()
    for number in range(40):
        put(store, b"%d" % number)
    store.close()
    repair(store.settings, DISK)
    assert not Path(store.settings.layout.set_aside).exists()
    assert bodies(stores.open()) == [b"%d" % number for number in range(40)]


def test_a_store_that_a_broker_has_open_is_left_alone(stores: Stores):
    store = stores.open()
    with pytest.raises(StoreLocked):
        repair(store.settings, DISK)
