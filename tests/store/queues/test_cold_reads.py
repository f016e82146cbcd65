"""Cold reads: which reads of a queue need a thread first, and what the thread reads."""

import pytest

from sparrowmq.store.log.log_file import LogFile
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues import cold_reads
from sparrowmq.store.vfs import Disk
from tests.store.stores import Stores, Where, put


def filled(stores: Stores, size: int = 100) -> tuple[MessageStore, list[Where]]:
    store = stores.open(consume_queue_file_entries=64, commit_log_file_size=1 << 17)
    placed = [put(store, bytes(size)) for _ in range(40)]
    store.checkpoint()
    return store, placed


@pytest.fixture
def reads(monkeypatch):
    """The parts of the log that were read for the system's cache, which has nothing before that."""
    parts: list[range] = []
    monkeypatch.setattr(LogFile, "cache", lambda file, at, size: parts.append(range(at, at + size)))
    monkeypatch.setattr(Disk, "is_cached", lambda disk, file, at: any(at in part for part in parts))
    return parts


@pytest.mark.guards("cold_reads.cold_read: places[-1] -> places[0]")
def test_cold_messages_are_cached_once(stores: Stores, reads, monkeypatch):
    monkeypatch.setattr(cold_reads, "NEAR", 3)
    store, placed = filled(stores)
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


def test_as_many_bytes_are_cached_as_the_reader_wants(stores: Stores, reads, monkeypatch):
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    store, _ = filled(stores, 1000)
    for wanted in (1500, 100_000):
        reads.clear()
        cache = store.cold_read("Orders", 0, 0, wanted)
        assert cache is not None
        cache()
        assert wanted <= sum(map(len, reads)) < wanted + 1300


@pytest.mark.parametrize("offset", [-1, 40, 41, 1 << 62])
def test_offsets_outside_of_the_queue_need_no_thread(stores: Stores, reads, monkeypatch, offset):
    monkeypatch.setattr(cold_reads, "NEAR", 0)
    store, _ = filled(stores)
    assert store.cold_read("Orders", 0, offset, 1000) is None
    assert store.cold_read("Nowhere", 0, 0, 1000) is None
