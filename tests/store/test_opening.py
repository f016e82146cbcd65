"""How a store is opened, shared, closed and opened again."""

import gc
import hashlib
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sparrowmq.errors import BadStore, CorruptRecord, DiskFull, StoreError, StoreLocked
from sparrowmq.store.message_store import MessageStore
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import bodies, message, put

OPEN = """
import sys
from sparrowmq.errors import StoreLocked
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
try:
    MessageStore.open(StoreSettings(sys.argv[1]))
except StoreLocked as locked:
    print(locked)
"""


def content(folder):
    """Each file with the hash of its bytes and the time of its last change."""
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {path: (hashlib.sha1(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in paths}


def descriptors(folder):
    """How many this process has of files in a folder; of others it may have any number."""
    return sum(Path(file.path).is_relative_to(folder) for file in psutil.Process().open_files())


def filled(stores):
    """A store of several files with messages in two queues, the last one not dispatched."""
    store = stores.open()
    for number in range(40):
        put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
        if number < 39:
            store.publish()
    return store


def assert_all_is_there(store):
    assert bodies(store) == [b"%d" % number for number in range(0, 40, 2)]
    assert bodies(store, queue_id=1) == [b"%d" % number for number in range(1, 40, 2)]
    assert all(len(store.query("Orders", f"k{number}", 9, 0, 1 << 62)) == 1 for number in range(40))


def test_a_second_process_does_not_get_the_store(stores):
    store = stores.open()
    path = stores.settings.layout.root
    told = subprocess.run([sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=True).stdout
    assert told.strip() == (
        f"the store {path} is in use by another broker (process {os.getpid()}); stop that one or choose another "
        "storePathRootDir"
    )
    put(store)


def test_nor_does_the_same_process_get_it_twice(stores):
    store = stores.open()
    for _ in range(2):
        with pytest.raises(StoreLocked):
            stores.open()
    store.close()
    put(stores.open())


def test_a_deleted_lock_file_lets_nobody_else_in(stores):
    store = stores.open()
    put(store)
    os.unlink(store.settings.layout.lock)
    with pytest.raises(StoreLocked):
        stores.open()


def test_two_stores_do_not_share_a_log(stores, tmp_path):
    log = tmp_path / "log"
    store = stores.open(commit_log_path=log)
    put(store)
    with pytest.raises(StoreLocked, match=str(log)):
        stores.open(path=tmp_path / "other", commit_log_path=log)
    shutil.rmtree(tmp_path / "other")
    store.close()
    stores.open(commit_log_path=log)


def test_a_log_in_the_folder_of_the_store_itself_is_one_folder_to_lock(stores):
    put(stores.open(commit_log_path=stores.settings.path))


def test_files_of_others_in_the_folders_of_a_store_do_no_harm(stores):
    layout = stores.settings.layout
    store = filled(stores)
    store.close()
    folders = (
        layout.root,
        layout.commit_log,
        layout.consume_queue,
        layout.topic("Orders"),
        layout.queue("Orders", 0),
    )
    for folder in (*folders, layout.index):
        for name in ("README", "lost+found", ".DS_Store"):
            Path(folder, name).write_text("not ours")
    assert_all_is_there(stores.open())


def test_a_new_store_is_made_with_its_folders(stores):
    store = stores.open()
    assert (store.begin, store.end, list(store.queues)) == (0, 0, [])
    assert Path(stores.settings.layout.abort).exists()


@pytest.mark.parametrize("times", [1, 3])
def test_a_store_that_was_closed_is_as_it_was(stores, times, caplog):
    store = filled(stores)
    end = store.end
    for _ in range(times):
        store.close()
        assert not Path(stores.settings.layout.abort).exists()
        store = stores.open()
    assert store.end == store.flushed.value == store.dispatched.value == end
    assert_all_is_there(store)
    assert "not closed in order" not in caplog.text
    assert put(store)[:2] == (end, 20)


@pytest.mark.parametrize("times", [1, 3])
def test_a_store_that_was_killed_has_all_that_was_appended(stores, times, caplog):
    """The process is gone, its pages are not; what a power cut leaves is tried by the crash states."""
    store = filled(stores)
    end = store.end
    for _ in range(times):
        stores.crash(store)
        assert Path(stores.settings.layout.abort).exists()
        store = stores.open()
    assert store.end == store.flushed.value == store.dispatched.value == end
    assert_all_is_there(store)
    assert "the store was not closed in order" in caplog.text
    assert put(store)[:2] == (end, 20)


def test_a_start_after_a_kill_checks_the_end_of_the_log_alone_and_the_next_one_no_more(stores, caplog):
    store = stores.open(commit_log_file_size=64 << 20)
    for number in range(100):
        put(store, bytes(512 << 10), key=f"k{number}")
    store.publish()
    stores.crash(store)
    for count in (100, 33):  # of 0.5 MiB each: in the last 16 MiB, and a part of the one before
        caplog.clear()
        store = stores.open(commit_log_file_size=64 << 20)
        assert f"{count} records checked" in caplog.text
        assert len(bodies(store)) == 100
        stores.crash(store)


def test_a_store_that_was_killed_before_its_first_message_is_empty(stores):
    stores.crash(stores.open())
    assert put(stores.open())[:2] == (0, 0)


def test_closing_brings_everything_to_disk_and_takes_the_store_out_of_use(stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk)
    put(store)
    disk.synced.clear()
    store.close()
    assert disk.synced[0] == "0" * 20 and disk.synced[-1] == "checkpoint"
    for attempt in (lambda: put(store), lambda: store.append(message())):
        with pytest.raises(StoreError, match="the store is closed"):
            attempt()


def test_closing_twice_is_harmless(stores):
    store = stores.open()
    put(store)
    store.close()
    store.close()
    assert bodies(stores.open()) == [b"body"]


def test_a_store_closes_itself_at_the_end_of_a_with_block(stores):
    with stores.open() as store:
        put(store)
    with stores.open() as store:
        assert bodies(store) == [b"body"]


def test_a_closed_store_that_nobody_holds_has_no_descriptors(stores):
    """Until then Python's maps hold one each."""
    folder = stores.settings.path
    filled(stores).close()
    before = descriptors(folder)
    with MessageStore.open(stores.settings) as store:
        bodies(store)
        assert descriptors(folder) > before
    del store
    gc.collect()
    assert descriptors(folder) == before


def test_a_store_that_cannot_be_opened_gives_the_lock_back(stores):
    disk = FaultyDisk()
    disk.full_for = ("checkpoint",)
    with pytest.raises(DiskFull):
        stores.open(vfs=disk)
    put(stores.open())


def test_damage_is_told_by_file_and_offset_and_the_lock_given_back(stores):
    store = filled(stores)
    offset = store.read("Orders", 1, 3, 1).views[0]
    store.close()
    path = Path(stores.settings.layout.commit_log, "0" * 20)
    whole = bytearray(path.read_bytes())
    position = bytes(whole).index(bytes(offset))
    whole[position + 90] ^= 1
    path.write_bytes(bytes(whole))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="corruptPolicy=quarantine") as caught:
            stores.open()
        assert (caught.value.file, caught.value.offset) == (str(path), position)
    stores.leave_damaged()


def test_a_damaged_store_that_is_opened_again_and_again_keeps_no_descriptors(stores):
    filled(stores).close()
    path = Path(stores.settings.layout.commit_log, "0" * 20)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    for _ in range(3):
        with pytest.raises(CorruptRecord):
            stores.open()
        gc.collect()
        assert descriptors(Path(stores.settings.path)) == 0
    stores.leave_damaged()


def test_other_file_sizes_than_those_on_disk_are_refused(stores):
    filled(stores).close()
    with pytest.raises(BadStore, match="set the size with which it was created"):
        stores.open(commit_log_file_size=8192)
    assert_all_is_there(stores.open())


# For reading only


@pytest.mark.parametrize("state", ["open", "closed", "killed"])
def test_a_reader_sees_what_the_queues_on_disk_know_and_changes_nothing(stores, state):
    store = filled(stores)
    if state == "open":
        store.publish()
    elif state == "closed":
        store.close()
    else:
        store.publish()
        stores.crash(store)
    before = content(stores.settings.layout.root)
    reader = stores.open_to_read()
    assert bodies(reader) == [b"%d" % number for number in range(0, 40, 2)]
    assert bodies(reader, queue_id=1) == [b"%d" % number for number in range(1, 40, 2)]
    assert len(reader.query("Orders", "k0", 9, 0, 1 << 62)) == (state == "closed")
    reader.close()
    assert content(stores.settings.layout.root) == before


def test_a_reader_takes_no_messages(stores):
    filled(stores).close()
    reader = stores.open_to_read()
    with pytest.raises(StoreError, match="opened for reading only"):
        put(reader)


def test_a_reader_makes_no_store_where_there_is_none(stores):
    reader = stores.open_to_read()
    assert (reader.begin, reader.end, list(reader.queues)) == (0, 0, [])
    reader.close()
    assert not Path(stores.settings.layout.root).exists()


def test_a_reader_of_a_store_without_messages_finds_none(stores):
    stores.open()
    reader = stores.open_to_read()
    assert (reader.begin, reader.end, list(reader.queues)) == (0, 0, [])


def test_an_orderly_start_and_end_are_quiet(stores, caplog):
    with caplog.at_level(logging.INFO):
        stores.open().close()
        filled(stores).close()
    assert caplog.records == []
