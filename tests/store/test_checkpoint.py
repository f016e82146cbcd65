import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from zlib import crc32

import pytest

from sparrowmq.store.checkpoint import (
    DUE_BYTES,
    VERIFIED_BYTES,
    Checkpoint,
    Checkpointer,
    load,
    pack,
    save,
    unpack,
)
from sparrowmq.store.layout import NO_CRC
from sparrowmq.store.queues.queue_ends import Positions, QueueEnds
from sparrowmq.store.vfs import Disk, Unsynced
from sparrowmq.testing.clock import ManualClock
from tests.store.crash_states import RecordVfs
from tests.store.stores import put

DISK = Disk()
OURS = Checkpoint(5000, 6000, 7000, 11, 12, Positions(100, 300, 200, 20260101120000123, 42, 50))


def test_a_checkpoint_is_read_as_it_was_written():
    assert unpack(pack(OURS)) == OURS


def test_the_bytes_are_where_they_are_drawn():
    sector = pack(OURS)
    assert len(sector) == 512
    assert struct.unpack_from(">qqqqq", sector) == (5000, 6000, 7000, 11, 12)
    assert sector[40:64] == bytes(24) and sector[64:72] == b"SPARROW1"
    assert struct.unpack_from(">qqqqqq", sector, 72) == (100, 300, 200, 20260101120000123, 42, 50)
    assert struct.unpack_from(">I", sector, 120)[0] == crc32(sector[:120])
    assert not any(sector[124:])


@pytest.mark.parametrize("position", [0, 39, 60, 64, 79, 90, 119, 120, 123])
def test_one_wrong_byte_voids_our_part_and_leaves_javas(position):
    sector = bytearray(pack(OURS))
    sector[position] ^= 1
    found = unpack(bytes(sector))
    assert found.positions is None
    if position >= 40:
        assert found == replace(OURS, positions=None)


def test_java_that_ran_in_the_meantime_voids_our_part():
    """Java writes its three timestamps and lets the other bytes be."""
    sector = struct.pack(">qqq", 8000, 8001, 8002) + pack(OURS)[24:]
    assert unpack(sector) == Checkpoint(8000, 8001, 8002, 11, 12)


@pytest.mark.parametrize("sector", [b"", bytes(20), bytes(4096)])
def test_a_file_without_anything_says_nothing(sector):
    assert unpack(sector) == Checkpoint()


@pytest.mark.parametrize(
    ("log_ms", "queues_ms", "safe_ms"), [(10_000, 20_000, 7_000), (20_000, 10_000, 7_000), (1_000, 9_000, 0)]
)
def test_javas_rule_leaves_a_margin_of_three_seconds(log_ms, queues_ms, safe_ms):
    assert Checkpoint(log_ms, queues_ms).safe_ms == safe_ms


def test_a_store_without_a_checkpoint_has_an_empty_one(tmp_path):
    assert load(DISK, str(tmp_path / "checkpoint")) == Checkpoint()


@pytest.mark.parametrize("size", [None, 0, 24, 4096])
def test_a_checkpoint_is_saved_in_javas_size_whatever_was_there(tmp_path, size):
    path = tmp_path / "checkpoint"
    if size is not None:
        path.write_bytes(bytes(size))
    save(DISK, str(path), OURS)
    assert path.stat().st_size == 4096
    assert load(DISK, str(path)) == OURS


def test_a_checkpoint_is_one_write_and_one_sync():
    vfs = RecordVfs()
    vfs.make_folder("/store")
    save(vfs, "/store/checkpoint", OURS)
    assert [effect[0] for effect in vfs.effects] == ["make_folder", "create", "write", "sync"]
    save(vfs, "/store/checkpoint", OURS)
    assert [effect[0] for effect in vfs.effects[4:]] == ["write", "sync"]
    assert vfs.effects[4][2] == 0 and len(vfs.effects[4][3]) == 512


def checkpointer(vfs, unsynced=None):
    vfs.make_folder("/store")
    made = Checkpointer(vfs, "/store/checkpoint", unsynced or Unsynced(), None, QueueEnds(vfs, "/store/ends"))
    made.start(0)
    return made


def positions(path, vfs):
    found = load(vfs, path).positions
    assert found is not None
    return found


def test_files_and_folders_are_on_disk_before_the_checkpoint_says_so():
    vfs = RecordVfs()
    made = checkpointer(vfs, unsynced := Unsynced())
    for name in ("b", "a"):
        file = vfs.create(f"/store/{name}", 100, allocate=False)
        unsynced.files.add(file.path)
    unsynced.folders.add("/store")
    before = len(vfs.effects)
    made.write(made.begin(1000, 5))
    first, second, names, *others = vfs.effects[before:]
    ends = max(n for n, effect in enumerate(others) if effect[:2] == ("sync_folder", "/store/ends"))
    checkpoint_itself = others[ends + 1 :]
    assert {first, second} == {("sync", 0), ("sync", 1)} and names == ("sync_folder", "/store")
    assert [effect[0] for effect in checkpoint_itself] == ["create", "write", "sync"]
    assert made.written_offset == 1000


def test_what_changes_after_a_checkpoint_began_is_left_to_the_next_one():
    vfs = RecordVfs()
    made = checkpointer(vfs, unsynced := Unsynced())
    job = made.begin(1000, 5)
    unsynced.files.add("/store/later")
    made.write(job)
    assert unsynced.files == {"/store/later"}
    assert made.begin(1000, 5).unsynced.files == {"/store/later"}


def test_the_next_start_checks_the_last_megabytes_again():
    """It begins at a mark that was once a log's end, so that a record begins there."""
    vfs = RecordVfs()
    made = checkpointer(vfs)
    found = []
    for end in (1000, VERIFIED_BYTES, VERIFIED_BYTES + 1000, 3 * VERIFIED_BYTES, 4 * VERIFIED_BYTES):
        made.write(made.begin(end, 5))
        found.append(positions("/store/checkpoint", vfs).scan_from)
    assert found == [0, 0, 1000, VERIFIED_BYTES + 1000, 3 * VERIFIED_BYTES]


def test_a_log_that_did_not_grow_gets_no_second_mark():
    made = checkpointer(RecordVfs())
    for _ in range(3):
        made.write(made.begin(1000, 5))
    assert list(made._marks) == [0, 1000]


def test_marks_between_checkpoints_spare_a_start_what_lies_before_the_last_megabytes():
    vfs = RecordVfs()
    made = checkpointer(vfs)
    for offset in range(0, 3 * VERIFIED_BYTES, 1000):
        made.mark(offset)
    made.write(made.begin(3 * VERIFIED_BYTES, 5))
    assert 0 <= 2 * VERIFIED_BYTES - positions("/store/checkpoint", vfs).scan_from < (1 << 20) + 1000


def test_a_checkpoint_never_begins_behind_its_end_though_the_log_grew_while_it_was_synced():
    vfs = RecordVfs()
    made = checkpointer(vfs)
    for offset in range(0, 4 * VERIFIED_BYTES, 1 << 20):
        made.mark(offset)
    made.write(made.begin(1000, 5))
    found = positions("/store/checkpoint", vfs)
    assert (found.scan_from, found.flushed) == (0, 1000)


def test_a_log_that_grew_much_is_due_once():
    made = checkpointer(RecordVfs())
    assert not made.is_due(DUE_BYTES - 1) and made.is_due(DUE_BYTES)
    made.begin(DUE_BYTES, 5)  # which may yet fail: it is not asked for ten times a second
    assert not made.is_due(DUE_BYTES) and made.is_due(2 * DUE_BYTES)


def test_a_running_store_makes_a_checkpoint_when_it_grew_much(stores, monkeypatch):
    store = stores.open()
    put(store)
    store.publish()
    monkeypatch.setattr("sparrowmq.store.checkpoint.DUE_BYTES", 100)
    with ThreadPoolExecutor(1) as executor:
        store.tend(executor)
    assert store.wants_checkpoint.is_set()


def test_a_store_says_in_its_checkpoint_what_is_on_disk(stores):
    store = stores.open(clock=ManualClock(now_ms=1_800_000_000_000))
    path = stores.settings.layout.checkpoint
    for number in range(3):
        put(store, key=f"k{number}")
    before = positions(path, DISK)
    assert (before.flushed, before.dispatched, before.index_file) == (0, 0, 0)
    store.checkpoint()
    found = load(DISK, path)
    assert (found.log_ms, found.queues_ms, found.index_ms) == (1_800_000_000_000,) * 3
    after = positions(path, DISK)
    assert after.scan_from <= after.dispatched == after.flushed == store.end
    assert (after.index_next, after.crc_from) == (4, 0)


def test_records_without_crc_are_known_from_the_checkpoint(stores):
    store = stores.open(property_crc=False)
    put(store)
    store.close()
    path = stores.settings.layout.checkpoint
    assert positions(path, DISK).crc_from == NO_CRC
    store = stores.open()
    end = store.end
    put(store)
    store.close()
    assert positions(path, DISK).crc_from == end
