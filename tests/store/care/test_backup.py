"""A copy of a store is whole, or it is not there: while messages come, while files go, and when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.core import snapshot
from sparrowmq.errors import CorruptRecord, DiskFull
from sparrowmq.store.care import manifest
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.copier import EarlierCopy
from sparrowmq.store.checkpoint import VERIFIED_BYTES
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Disk, File
from tests.store.stores import Stores, bodies, put

DISK = Disk()
BACKUP = """
import sys
from sparrowmq.store.care.backup import backup
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk

class Slow(Disk):
    def write(self, file, offset, content):
        print(file.path, flush=True)
        sys.stdin.readline()
        super().write(file, offset, content)

sizes = dict(commit_log_file_size=4096, consume_queue_file_entries=16, index_slots=128, index_entries=64)
backup(StoreSettings(sys.argv[1], **sizes), sys.argv[2], Slow())
"""


def age(folder: Path | str) -> None:
    """Let all files look as if they had not been written to for a minute."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - 60
            os.utime(path, (then, then))


def earlier_in(folder: Path) -> EarlierCopy:
    found = manifest.load(DISK, str(folder))
    assert found is not None
    return EarlierCopy(str(folder), found.by_path())


def filled(stores: Stores, count: int = 60) -> MessageStore:
    store = stores.open()
    for number in range(count):
        put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
        store.publish()
    return store


def assert_holds(stores: Stores, path: Path, count: int) -> None:
    """The copy is sound as it lies there, and has at least so many messages from the first one on."""
    settings = replace(stores.settings, path=path)
    assert list(verify(settings)) == []
    store = stores.open(path=path)
    found = sorted(int(body) for queue_id in (0, 1) for body in bodies(store, queue_id=queue_id))
    assert found[:count] == list(range(count)) and found == list(range(len(found)))
    assert all(len(store.query("Orders", f"k{number}", 9, 0, 1 << 62)) == 1 for number in found)
    store.close()


@pytest.mark.parametrize("state", ["running", "closed", "killed"])
def test_a_copy_has_all_that_was_stored_when_it_began(stores: Stores, tmp_path: Path, state: str):
    store = filled(stores)
    if state == "closed":
        store.close()
    elif state == "killed":
        stores.crash(store)
    assert backup(stores.settings, tmp_path / "copy", DISK) > 0
    assert_holds(stores, tmp_path / "copy", 60)
    if state == "running":
        assert put(store, b"60")[1] == 30  # the broker goes on


class Busy(Disk):
    """A disk at which something happens while a file is copied."""

    def __init__(self, happens: Iterator[None]) -> None:
        self._happens = happens

    def read(self, file: File, offset: int, size: int) -> bytes:
        next(self._happens, None)
        return super().read(file, offset, size)


def test_messages_that_come_meanwhile_do_no_harm(stores: Stores, tmp_path: Path):
    store = filled(stores)
    store.checkpoint()

    def more() -> Iterator[None]:
        for number in range(60, 400):
            put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
            if number % 3 == 0:
                store.publish()
            if number % 50 == 0:
                store.checkpoint()
            yield

    backup(stores.settings, tmp_path / "copy", Busy(more()))
    assert_holds(stores, tmp_path / "copy", 60)


def test_files_that_go_meanwhile_are_left_out_of_the_copy(stores: Stores, tmp_path: Path):
    store = filled(stores, 140)
    store.checkpoint()
    files = store._log.row.files
    assert len(files) > 4

    def goes() -> Iterator[None]:
        while True:
            if len(files) > 2 and list((tmp_path / "copy.unfinished" / "commitlog").glob("0*")):
                store._log.row.drop_first()
                store._log.row.drop_first()
            yield

    backup(stores.settings, tmp_path / "copy", Busy(goes()))
    settings = replace(stores.settings, path=tmp_path / "copy")
    assert list(verify(settings)) == []
    opened = stores.open(path=tmp_path / "copy")
    assert opened.begin > 0 and bodies(opened)[-1] == b"138"


def test_a_topic_that_is_deleted_meanwhile_is_left_out_or_whole(stores: Stores, tmp_path: Path):
    store = filled(stores)
    put(store, b"stays", "Payments")
    store.checkpoint()

    def goes() -> Iterator[None]:
        while not list((tmp_path / "copy.unfinished" / "consumequeue").glob("Orders/0/*")):
            yield
        store.delete_topic("Orders")

    backup(stores.settings, tmp_path / "copy", Busy(goes()))
    opened = stores.open(path=tmp_path / "copy")
    assert bodies(opened, "Payments") == [b"stays"]
    assert bodies(opened) in ([], [b"%d" % number for number in range(0, 60, 2)])
    opened.close()
    stores.leave_damaged()


@pytest.mark.parametrize("writes", [1, 3, 6, 12])
def test_a_copy_that_is_killed_is_not_there_and_the_next_one_succeeds(stores: Stores, tmp_path: Path, writes: int):
    store = filled(stores)
    store.checkpoint()
    copy = tmp_path / "copy"
    command = [sys.executable, "-c", BACKUP, str(stores.settings.path), str(copy)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for _ in range(writes):
            assert process.stdout.readline()
            process.stdin.write("\n")
            process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert not copy.exists() and (tmp_path / "copy.unfinished").exists()
    backup(stores.settings, copy, DISK)
    assert not (tmp_path / "copy.unfinished").exists()
    assert_holds(stores, copy, 60)


def test_a_store_with_rot_that_nobody_reads_is_not_copied_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = StoreSettings(tmp_path / "store", commit_log_file_size=8 << 20)
    with MessageStore.open(settings) as store:
        places = []
        for _ in range(3 * VERIFIED_BYTES >> 20):
            places.append(put(store, bytes(1 << 20)))
            store.checkpoint()
    rotten = places[3].offset
    with Path(settings.layout.commit_log, f"{0:020d}").open("r+b") as file:
        file.seek(rotten + 5000)
        file.write(b"x")
    with pytest.raises(CorruptRecord, match="it is not copied; stop the broker and take what is missing") as told:
        backup(settings, tmp_path / "copy", DISK)
    assert (told.value.file, told.value.offset) == (file.name, rotten)
    assert not (tmp_path / "copy").exists()
    passes = replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE)
    assert backup(passes, tmp_path / "copy", DISK) > rotten
    assert f"is damaged at offset {rotten}" in caplog.text and "it is copied as it is" in caplog.text


def test_how_much_of_the_copy_was_checked_is_told(stores: Stores, tmp_path: Path) -> None:
    filled(stores)
    told: list[tuple[str, int, int]] = []
    backup(stores.settings, tmp_path / "copy", DISK, lambda *done: told.append(done))
    assert {what for what, _, _ in told} == {"checking the copy", "noting the digests"}
    for step in ("checking the copy", "noting the digests"):
        done = [done for what, done, _ in told if what == step]
        assert done == sorted(done) and done[0] == 0


def test_a_copy_has_no_group_ahead_of_its_messages(stores: Stores, tmp_path: Path) -> None:
    """A group whose offset is ahead would skip the messages that the restored store gets there."""
    store = filled(stores, 4)
    offsets = Path(stores.settings.layout.root, "config", "consumerOffset.json")

    def consumed() -> Iterator[None]:
        while True:
            put(store, b"more")
            store.publish()
            queue = store.queues.get("Orders", 0)
            assert queue is not None
            snapshot.save(offsets, {"offset": queue.max_offset})
            yield

    next(consumed())
    backup(stores.settings, tmp_path / "copy", Busy(consumed()))
    copy = stores.open(path=tmp_path / "copy")
    saved = snapshot.load(tmp_path / "copy" / "config" / "consumerOffset.json")
    queue = copy.queues.get("Orders", 0)
    assert saved is not None and queue is not None and saved["offset"] <= queue.max_offset


def test_a_file_that_was_written_just_now_may_change_once_more(stores: Stores, tmp_path: Path) -> None:
    filled(stores).checkpoint()
    backup(stores.settings, tmp_path / "first", DISK)
    found = manifest.load(DISK, str(tmp_path / "first"))
    assert found is not None and {file.source for file in found.files} == {None}


def test_a_copy_that_fails_leaves_nothing(stores: Stores, tmp_path: Path) -> None:
    filled(stores)

    def fails() -> Iterator[None]:
        yield
        yield
        raise DiskFull("no room on the disk")

    with pytest.raises(DiskFull):
        backup(stores.settings, tmp_path / "copy", Busy(fails()))
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_full_files_of_an_earlier_copy_are_linked_and_the_copy_is_whole(stores: Stores, tmp_path: Path) -> None:
    store = filled(stores, 140)
    store.checkpoint()
    age(stores.settings.path)
    backup(stores.settings, tmp_path / "first", DISK)
    for number in range(140, 170):
        put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
    store.publish()
    earlier = earlier_in(tmp_path / "first")
    backup(stores.settings, tmp_path / "second", DISK, earlier=earlier)
    logs = sorted(path.name for path in (tmp_path / "first" / "commitlog").iterdir())
    shared = [
        name
        for name in logs
        if (tmp_path / "first" / "commitlog" / name).samefile(tmp_path / "second" / "commitlog" / name)
    ]
    assert shared == logs[:-1] and len(shared) > 1 and earlier.linked > len(shared)
    assert_holds(stores, tmp_path / "second", 170)
    assert_holds(stores, tmp_path / "first", 140)


def test_a_file_that_has_changed_is_copied_again_and_the_earlier_copy_stays(stores: Stores, tmp_path: Path) -> None:
    store = filled(stores)
    store.checkpoint()
    age(stores.settings.path)
    backup(stores.settings, tmp_path / "first", DISK)
    first = sorted((tmp_path / "first" / "commitlog").iterdir())[0]
    os.utime(Path(stores.settings.layout.commit_log, first.name))
    backup(stores.settings, tmp_path / "second", DISK, earlier=earlier_in(tmp_path / "first"))
    second = tmp_path / "second" / "commitlog" / first.name
    assert not second.samefile(first) and second.read_bytes() == first.read_bytes()


def test_a_recovery_that_writes_to_a_shared_file_changes_no_earlier_copy(stores: Stores, tmp_path: Path) -> None:
    """The earlier copy rots. So the recovery of the new one, which reads the whole log, fences records off."""
    store = filled(stores)
    store.checkpoint()
    store.close()
    age(stores.settings.path)
    backup(stores.settings, tmp_path / "first", DISK)
    rotten = tmp_path / "first" / "commitlog" / f"{0:020d}"
    content = bytearray(rotten.read_bytes())
    content[1000] ^= 1
    rotten.write_bytes(content)
    before = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path.is_file()}
    Path(stores.settings.layout.checkpoint).unlink()
    fences = replace(stores.settings, corrupt_policy=CorruptPolicy.QUARANTINE)
    backup(fences, tmp_path / "second", DISK, earlier=earlier_in(tmp_path / "first"))
    assert list(verify(replace(stores.settings, path=tmp_path / "second"))) == []
    assert not rotten.samefile(tmp_path / "second" / "commitlog" / rotten.name)
    assert before == {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path in before}
