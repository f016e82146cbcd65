"""A disk whose power can be cut keeps what was synced, and loses what was not."""

import os
import threading
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.store.log.log_file import PAGE
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.crash import loop_disk
from tests.crash.loop_disk import LoopDisk, demand
from tests.crash.not_here import NotHere, skipped_without
from tests.store.stores import messages, put


@pytest.fixture(params=["ext4", pytest.param("xfs", marks=pytest.mark.nightly)])
def disk(tmp_path: Path, request) -> LoopDisk:
    with skipped_without("a loop device"):
        demand(request.param)
        return LoopDisk(tmp_path, request.param)


def test_a_power_cut_takes_what_no_sync_has_covered(disk: LoopDisk):
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


def test_a_sync_waits_while_the_disk_of_the_image_is_frozen(tmp_path: Path) -> None:
    with skipped_without("a loop device"), LoopDisk(tmp_path / "below", "ext4") as below:
        image = below.folder / "image"
        with LoopDisk(tmp_path, "ext4", image, "-O", "^has_journal") as disk:
            fd = os.open(disk.folder / "file", os.O_RDWR | os.O_CREAT)
            below.freeze()
            os.pwrite(fd, b"x", 0)
            sync = threading.Thread(target=os.fsync, args=(fd,))
            sync.start()
            sync.join(1)
            waits = sync.is_alive()
            below.thaw()
            sync.join()
            os.close(fd)
            assert waits


def test_who_may_not_mount_is_told_why(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotHere, match="it takes root"):
        loop_disk.demand("ext4")


def test_sectors_that_cannot_be_read_kill_nobody_and_what_lies_before_them_is_served(disk: LoopDisk):
    with disk:
        settings = StoreSettings(disk.folder / "store", commit_log_file_size=1 << 20, index=False)
        store = MessageStore.open(settings)
        sent = [os.urandom(1000) for _ in range(60)]
        for body in sent:
            put(store, body)
        store.flush()
        store.publish()
        disk.break_off(_forgotten(Path(store._log.row.files[0].path), page=10))
        told, served, offset = 0, [], 0
        while offset < len(sent):
            try:
                read = store.read("Orders", 0, offset, 32)
            except CorruptRecord:
                told, offset = told + 1, offset + 1
                continue
            served += [bytes(message.body) for message in messages(read)]
            offset = read.next_offset
        assert served == sent[: len(served)] and len(served) + told == len(sent) and told >= 10 <= len(served)
        disk.mend()
        store.close()


def test_an_index_on_sectors_that_cannot_be_read_stops_no_message_and_is_made_anew(disk: LoopDisk):
    with disk:
        # Slots of 400 kB: the page in their midst lies where keys will go.
        settings = StoreSettings(
            disk.folder / "store", commit_log_file_size=1 << 20, index_slots=100_000, index_entries=20_000
        )
        store = MessageStore.open(settings)
        for number in range(1000):
            put(store, b"x", key=f"key-{number}")
        store.close()
        (path,) = Path(settings.layout.index).iterdir()
        mark = os.urandom(PAGE)
        with path.open("r+b") as file:
            file.seek(50 * PAGE)
            file.write(mark)
            os.fsync(file.fileno())
        store = MessageStore.open(settings)
        disk.break_off(_forgotten(path, page=50))
        for number in range(1000, 2000):
            put(store, b"x", key=f"key-{number}")
        store.publish()
        store._queue_builder.index_keys()
        assert [message.queue_offset for message in messages(store.read("Orders", 0, 1999, 1))] == [1999]
        with pytest.raises(BadStore, match="start the broker again, which builds the index again"):
            store.query("Orders", "key-1999", 9, 0, 1 << 60)
        disk.mend()
        store.close()
        with MessageStore.open(settings) as store:
            for number in (0, 999, 1000, 1999):
                assert len(store.query("Orders", f"key-{number}", 9, 0, 1 << 60)) == 1


def _forgotten(path: Path, page: int) -> bytes:
    """What a page of a file holds; from then on all of the file has to be read from the disk again."""
    fd = os.open(path, os.O_RDONLY)
    try:
        content = os.pread(fd, PAGE, page * PAGE)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return content
    finally:
        os.close(fd)
