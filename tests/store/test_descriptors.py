"""What the store does when file descriptors run short: it goes on, and nothing is taken for a broken disk."""

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrowmq.errors import OutOfResources
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.store_settings import Flush
from sparrowmq.store.vfs import Disk, Unsynced
from tests.store.stores import bodies, put


@contextmanager
def spare(count: int) -> Iterator[None]:
    """Let this process open no more than that many files besides those that it has open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken, limit = set(map(int, os.listdir("/proc/self/fd"))), 0
    while count > 0:
        count -= limit not in taken
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextmanager
def none_left() -> Iterator[None]:
    """Use up all descriptors for a while."""
    taken: list[int] = []
    with spare(64):
        try:
            while True:
                taken.append(os.open("/", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        try:
            yield
        finally:
            for fd in taken:
                os.close(fd)


pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors in /proc")


@pytest.mark.parametrize("flush", Flush)
def test_many_more_queues_than_descriptors_work_and_come_up_again(stores, flush):
    names = [(f"topic-{number}", queue_id) for number in range(60) for queue_id in range(4)]
    with spare(40):
        store = stores.open(flush=flush, commit_log_file_size=1 << 20)
        for turn in range(2):
            for topic, queue_id in names:
                put(store, b"%d" % turn, topic, queue_id)
            store.publish()
            store.checkpoint()
        for topic, queue_id in names:
            assert bodies(store, topic, queue_id) == [b"0", b"1"]
            put(store, b"2", topic, queue_id)
        store.publish()
        stores.crash(store)
        store = stores.open(flush=flush, commit_log_file_size=1 << 20)
        for topic, queue_id in names:
            assert bodies(store, topic, queue_id) == [b"0", b"1", b"2"]
        assert store.flushed.error is None


async def test_without_descriptors_messages_wait_or_are_refused_and_go_on_afterwards(stores, clock):
    store = stores.open(clock=clock)
    running = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    put(store, b"first")
    store.publish()
    with none_left():
        put(store, b"new queue", "Bills")
        store.publish()
        await clock.advance(20)  # checkpoints, retention
        with pytest.raises(OutOfResources, match="no file descriptor left; raise `ulimit -n`"):
            while True:  # until the log needs its next file
                put(store, bytes(1000))
        assert store.flushed.error is None and store.written.error is None
    await clock.advance(2)
    put(store, bytes(1000))
    store.publish()
    assert bodies(store)[0] == b"first" and bodies(store, "Bills") == [b"new queue"]
    store.checkpoint()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("folder", [False, True])
def test_what_a_checkpoint_could_not_sync_is_synced_by_the_next_one(stores, monkeypatch, folder):
    store = stores.open()
    put(store)
    store.publish()
    store.flush()
    name = "sync_folder" if folder else "sync_path"
    sync, asked = getattr(Disk, name), []

    def refuse(disk, path):
        raise OutOfResources(path)

    def note(disk, path):
        asked.append(path)
        sync(disk, path)

    monkeypatch.setattr(Disk, name, refuse)
    with pytest.raises(OutOfResources):
        store.checkpoint()
    monkeypatch.setattr(Disk, name, note)
    store.checkpoint()
    queue = store.settings.layout.queue("Orders", 0)
    assert any(path.startswith(queue) for path in asked)


def test_the_name_of_a_dropped_file_is_gone_before_the_next_one_is_dropped(stores, monkeypatch):
    store = stores.open()
    while store.end < 17_000:
        put(store, bytes(1000))
    store.checkpoint()
    row, sync, synced = store._log.row, Disk.sync_folder, []

    def refuse(disk, path):
        raise OutOfResources(path)

    def note(disk, path):
        synced.append((path, len(list(Path(path).iterdir()))))
        sync(disk, path)

    row.drop_first()
    monkeypatch.setattr(Disk, "sync_folder", refuse)
    with pytest.raises(OutOfResources):
        row.drop_first()
    monkeypatch.setattr(Disk, "sync_folder", note)
    row.drop_first()
    assert synced == [(row.folder, 3), (row.folder, 2)]


def test_fewer_files_are_kept_once_there_were_too_many(tmp_path):
    files = OpenFiles(Disk(), 1000, Unsynced())
    with spare(30):
        kept = [files.create(str(tmp_path / str(number)), 10) for number in range(100)]
        still = [each for each in kept if each.file.fd != -1]
        assert 4 <= len(still) <= 24
        others = [os.open("/", os.O_RDONLY) for _ in range(5)]  # room for the others
    for fd in others:
        os.close(fd)
    files.close()
