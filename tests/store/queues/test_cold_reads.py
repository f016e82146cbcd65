"""Cold reads: which reads of a queue need a thread first, and what the thread reads."""

import pytest

from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues import cold_reads
from sparrowmq.store.vfs import Disk, File
from tests.store.stores import Stores, Where, put


class ColdDisk(Disk):
    """A disk of which the system caches only the `parts` of the log that were read.

    Attributes:
        parts: of the first log file, in the order of reads.
    """

    def __init__(self) -> None:
        self.parts: list[range] = []

    def read(self, file: File, offset: int, size: int) -> bytes:
        if "commitlog" in file.path:
            self.parts.append(range(offset, offset + size))
        return super().read(file, offset, size)

    def is_cached(self, file: File, offset: int) -> bool:
        return any(offset in part for part in self.parts)


def filled(stores: Stores, size: int = 100) -> tuple[MessageStore, list[range], list[Where]]:
    """A store with forty messages on a cold disk, the parts that were read of its log, and its messages."""
    disk = ColdDisk()
    store = stores.open(vfs=disk, consume_queue_file_entries=64, commit_log_file_size=1 << 17)
    placed = [put(store, bytes(size)) for _ in range(40)]
    store.checkpoint()
    disk.parts.clear()
    return store, disk.parts, placed


def test_cold_messages_are_cached_once(stores: Stores, monkeypatch):
    monkeypatch.setattr(cold_reads, "NEAR", 3)
    store, reads, placed = filled(stores)
    cache = store.cold_read("Orders", 0, 0, placed[32].offset)
    assert cache is not None and not reads
    cache()
    reads[:] = reads[:1]
    assert store.cold_read("Orders", 0, 0, 1000) is not None, "the last one is still cold"
    cache()
    reads.pop(0)
    assert all(each.offset in part for each, part in zip(placed[:32], reads, strict=False))
    assert store.cold_read("Orders", 0, 0, placed[32].offset) is None
    assert store.cold_read("Orders", 0, 36, 10_000) is not None
    assert store.cold_read("Orders", 0, 37, 10_000) is None, "near the end"


def test_as_many_bytes_are_cached_as_the_reader_wants(stores: Stores, monkeypatch):
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    store, reads, placed = filled(stores, 1000)
    of_one = placed[0].end - placed[0].offset
    for wanted in (of_one, 1500, 100_000):
        reads.clear()
        cache = store.cold_read("Orders", 0, 0, wanted)
        assert cache is not None
        cache()
        assert wanted <= sum(map(len, reads)) < wanted + of_one


@pytest.mark.parametrize("offset", [-1, 40, 41, 1 << 62])
def test_offsets_outside_of_the_queue_need_no_thread(stores: Stores, monkeypatch, offset):
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    store, *_ = filled(stores)
    assert store.cold_read("Orders", 0, offset, 1000) is None
    assert store.cold_read("Nowhere", 0, 0, 1000) is None


def test_gaps_of_a_queue_are_not_read(stores: Stores, monkeypatch):
    """The entry of a gap has offset 0 and a size of 2 GiB: reading it would read a whole file."""
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    store, reads, _ = filled(stores)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.write_gap(60)
    cache = store.cold_read("Orders", 0, 39, 1000)
    assert cache is not None
    cache()
    assert 0 < sum(map(len, reads)) < 1500
    stores.leave_damaged()
