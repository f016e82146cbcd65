"""Recovery: what a crash, a damaged disk or a missing file leaves is mended, or refused in words."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore, CorruptRecord, StoreFailed
from sparrowmq.protocol.messages import record as records
from sparrowmq.store import recovery
from sparrowmq.store.care.check import verify
from sparrowmq.store.checkpoint import FILE_SIZE, load
from sparrowmq.store.layout import SECTOR, offset_name
from sparrowmq.store.log.log_file import PAGE
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk as RealDisk
from tests.store.crash_model import cuts
from tests.store.crash_states import Disk, DiskState, RecordVfs
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, put

QUARANTINE = CorruptPolicy.QUARANTINE
FIVE = [b"message %d" % number for number in range(5)]
FOREVER = (64, 0, 1 << 60)  # the last arguments of a query


def fill(store: MessageStore, texts: list[bytes] = FIVE) -> list[int]:
    """Messages that can be found by how they begin; where each lies, and where the last one ends."""
    places = [put(store, text, key=text[:9].decode().replace(" ", "-")) for text in texts]
    store.publish()
    return [place[0] for place in places] + [places[-1][2]]


def log_file(store: MessageStore, begin: int = 0) -> Path:
    return Path(store.settings.layout.commit_log) / offset_name(begin)


def queue_file(store: MessageStore, topic: str = "Orders") -> Path:
    return Path(store.settings.layout.queue(topic, 0)) / offset_name(0)


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def lose(path: Path, position: int) -> None:
    """Leave a sector as a power cut may: without the bytes from `position` on, which the last writes put there."""
    overwrite(path, position, bytes(SECTOR - position % SECTOR))


def flip(path: Path, position: int, bit: int = 0) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 1 << bit]))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# A store that was closed, or whose process was killed


def test_a_store_closed_in_order_opens_as_it_was(stores: Stores, caplog: pytest.LogCaptureFixture):
    store = stores.open()
    offsets = fill(store)
    store.close()
    store = stores.open()
    assert bodies(store) == FIVE and store.end == offsets[-1]
    assert put(store)[:2] == (offsets[-1], 5)
    assert caplog.text == ""


def test_the_abort_file_stands_while_a_store_is_open(stores: Stores):
    store = stores.open()
    assert Path(store.settings.layout.abort).exists()
    store.close()
    assert not Path(store.settings.layout.abort).exists()


def test_a_killed_process_loses_nothing(stores: Stores):
    store = stores.open()
    fill(store)
    store._queue_builder.index_keys()
    stores.crash(store)
    store = stores.open()
    assert bodies(store) == FIVE
    assert len(store.query("Orders", "message-3", *FOREVER)) == 1
    assert put(store)[1] == 5


def test_what_was_not_dispatched_comes_from_the_log(stores: Stores):
    store = stores.open()
    for text in FIVE:
        put(store, text, key="all")
    stores.crash(store)
    store = stores.open()
    assert bodies(store) == FIVE
    assert len(store.query("Orders", "all", *FOREVER)) == 5


def test_a_store_that_never_had_a_message_survives_a_kill(stores: Stores):
    stores.crash(stores.open())
    store = stores.open()
    assert (store.begin, store.end, list(store.queues)) == (0, 0, [])


def test_the_store_timestamp_does_not_go_back_over_a_restart(stores: Stores, clock):
    store = stores.open()  # the machine's clock, which is ahead
    *_, before_ms = put(store)
    stores.crash(store)
    store = stores.open(clock=clock)
    assert clock.now_ms() < before_ms
    assert put(store)[3] == before_ms


# A torn tail


def test_a_torn_tail_is_cut_and_zeroed(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    stores.crash(store)
    lose(log_file(store), offsets[4] + 60)
    store = stores.open()
    assert bodies(store) == FIVE[:4] and store.end == offsets[4]
    assert not any(log_file(store).read_bytes()[offsets[4] :])
    assert put(store, b"next")[:2] == (offsets[4], 4)


def test_a_good_record_behind_the_torn_one_is_kept_in_set_aside(stores: Stores):
    store = stores.open()
    texts = [b"%d" % number * 700 for number in range(3)]
    offsets = fill(store, texts)
    whole = log_file(store).read_bytes()
    stores.crash(store)
    lose(log_file(store), (offsets[1] // SECTOR + 1) * SECTOR)
    store = stores.open()
    assert bodies(store) == texts[:1]
    (saved,) = Path(store.settings.layout.set_aside).iterdir()
    assert saved.name == f"{offsets[1]:020d}-{offsets[3]:020d}.cut"
    assert saved.read_bytes()[-len(whole[offsets[2] : offsets[3]]) :] == whole[offsets[2] : offsets[3]]


def test_a_torn_record_that_nothing_follows_is_kept_too(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    stores.crash(store)
    lose(log_file(store), offsets[4] + 60)
    torn = log_file(store).read_bytes()[offsets[4] : offsets[5]]
    store = stores.open()
    (saved,) = Path(store.settings.layout.set_aside).iterdir()
    assert saved.read_bytes() == torn.rstrip(b"\0")


def test_a_record_that_was_cut_does_not_come_back(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    stores.crash(store)
    overwrite(log_file(store), offsets[3] + 60, bytes(40))
    store = stores.open()
    put(store, b"message 9", key="message-9")  # as long as the torn one: it ends where the old last one begins
    assert store.end == offsets[4]
    stores.crash(store)
    store = stores.open()
    assert bodies(store) == [*FIVE[:3], b"message 9"]
    assert store.query("Orders", "message-4", *FOREVER) == []


def test_a_part_of_the_tail_that_cannot_be_read_is_no_torn_one(stores: Stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=8 * PAGE)
    for number in range(12):
        put(store, b"%03d" % number * 300)
    store.flush()  # acknowledged; the last checkpoint knows none of them
    end = store.end
    stores.crash(store)
    disk.bad = {(str(log_file(store)), 2 * PAGE): errno.EIO}
    before = log_file(store).read_bytes()
    with pytest.raises(CorruptRecord, match="these bytes had been on disk, so this is no torn tail"):
        stores.open(vfs=disk, commit_log_file_size=8 * PAGE)
    assert log_file(store).read_bytes() == before
    disk.bad = {}
    store = stores.open(vfs=disk, commit_log_file_size=8 * PAGE)
    assert store.end == end and len(bodies(store)) == 12


def test_files_behind_a_torn_record_go(stores: Stores):
    store = stores.open()
    texts = [b"long text %d " % number * 150 for number in range(6)]
    offsets = fill(store, texts)
    stores.crash(store)
    assert log_file(store, 8192).exists()
    lose(log_file(store), offsets[1] + 100)
    store = stores.open()
    assert bodies(store) == texts[:1]
    assert not log_file(store, 4096).exists() and not log_file(store, 8192).exists()


def test_queue_entries_of_records_that_are_cut_go_too(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    stores.crash(store)
    assert any(queue_file(store).read_bytes()[80:100])
    overwrite(log_file(store), offsets[3] + 60, bytes(40))
    store = stores.open()
    assert bodies(store) == FIVE[:3]
    assert not any(queue_file(store).read_bytes()[60:])


def test_what_a_failed_sync_left_in_memory_is_written_again_before_it_counts(stores: Stores):
    vfs = RecordVfs()
    settings = replace(stores.settings, path="/store")
    store = MessageStore.open(settings, vfs=vfs)
    put(store, FIVE[0])
    store.flush()
    put(store, FIVE[1])
    vfs.fail_next_sync = True
    with pytest.raises(StoreFailed, match="start again, which keeps what had been acknowledged"):
        store.flush()
    store = MessageStore.open(settings, vfs=vfs)  # its pages are there, whatever came of them
    assert bodies(store) == FIVE[:2] and store.flushed.value == store.end
    disk = Disk(vfs.start)
    for effect in vfs.effects:
        disk.apply(effect)
    for state in disk.states(30, random.Random(1)):
        assert bodies(MessageStore.open(settings, vfs=RecordVfs(state))) == FIVE[:2]


class Forgetting(RealDisk):
    """A disk that has only what was written since it was opened, once the cache has lost the rest of the log."""

    def __init__(self, lost_from: int):
        super().__init__()
        self._lost_from = lost_from
        self._written: list[range] = []

    def forget(self, file, offset, size):
        for at in range(max(offset, self._lost_from), min(offset + size, file.size)):
            if not any(at in each for each in self._written):
                super().write(file, at, b"\0")

    def write(self, file, offset, content):
        self._written.append(range(offset, offset + len(content)))
        super().write(file, offset, content)


def test_nothing_is_forgotten_before_it_was_read_to_be_written_again(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recovery, "_CHUNK_BYTES", PAGE)
    store = stores.open(commit_log_file_size=1 << 20)
    put(store, FIVE[0])
    store.close()
    flushed = store.end
    store = stores.open(commit_log_file_size=1 << 20)
    written = [*FIVE[:1], *(b"%d" % number + b"x" * 1000 for number in range(30))]
    for body in written[1:]:
        put(store, body)
    stores.crash(store)
    store = stores.open(vfs=Forgetting(flushed), commit_log_file_size=1 << 20)
    assert bodies(store) == written


def test_a_log_file_that_a_killed_process_made_has_its_name_on_disk_before_it_is_used(stores: Stores):
    vfs = RecordVfs()
    settings = replace(stores.settings, path="/store")
    MessageStore.open(settings, vfs=vfs)
    path = f"{settings.layout.commit_log}/{offset_name(0)}"
    vfs.sync(vfs.create(path, 4096, allocate=True))  # and the process is killed
    MessageStore.open(settings, vfs=vfs)
    disk = Disk(vfs.start)
    for effect in vfs.effects:
        disk.apply(effect)
    assert path in disk.names


# Damage to what had been on disk


def test_a_flipped_bit_in_any_byte_of_a_record_is_found(stores: Stores):
    store = stores.open()
    size = put(store, b"body", "T", tag="a")[2]
    put(store, b"a good record follows")
    store.close()
    missed = []
    for position in range(size):
        flip(log_file(store), position, position % 8)
        try:
            stores.open().close()
            missed.append(position)
        except CorruptRecord as found:
            assert found.offset == 0
        flip(log_file(store), position, position % 8)
    assert missed == []
    assert bodies(stores.open(), "T") == [b"body"]


@pytest.mark.parametrize("killed", [False, True])
def test_damage_is_refused_with_file_offset_and_remedy_and_nothing_is_changed(stores: Stores, killed: bool):
    store = stores.open()
    offsets = fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    flip(log_file(store), offsets[2] + 90)
    before = snapshot(Path(store.settings.path))
    with pytest.raises(CorruptRecord, match="corruptPolicy=quarantine") as refused:
        stores.open()
    assert (refused.value.file, refused.value.offset) == (str(log_file(store)), offsets[2])
    assert snapshot(Path(store.settings.path)) == before
    stores.leave_damaged()


@pytest.mark.parametrize("killed", [False, True])
def test_quarantine_goes_on_without_the_damaged_message(stores: Stores, killed: bool):
    store = stores.open()
    offsets = fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    flip(log_file(store), offsets[2] + 90)
    damaged = log_file(store).read_bytes()[offsets[2] : offsets[3]]
    store = stores.open(corrupt_policy=QUARANTINE)
    assert bodies(store) == FIVE[:2] + FIVE[3:]
    assert store.query("Orders", "message-2", *FOREVER) == []
    assert len(store.query("Orders", "message-4", *FOREVER)) == 1
    (saved,) = Path(store.settings.layout.set_aside).iterdir()
    assert saved.name.endswith(".damaged") and saved.read_bytes() == damaged
    assert put(store, b"next")[:2] == (offsets[5], 5)
    store.close()
    assert bodies(stores.open()) == [*FIVE[:2], *FIVE[3:], b"next"]  # as any other store


@pytest.mark.parametrize(
    ("damaged", "kept"),
    [
        ([0], FIVE[1:]),
        ([1, 2], [FIVE[0], *FIVE[3:]]),
        ([1, 3], FIVE[0::2]),
        ([4], FIVE[:4]),
        ([3, 4], FIVE[:3]),
    ],
)
def test_quarantine_fences_off_any_of_the_records(stores: Stores, damaged: list[int], kept: list[bytes]):
    store = stores.open()
    offsets = fill(store)
    store.close()
    for number in damaged:
        flip(log_file(store), offsets[number] + 90)
    store = stores.open(corrupt_policy=QUARANTINE)
    assert bodies(store) == kept
    put(store, b"next")
    assert bodies(store) == kept or bodies(store) == [*kept, b"next"]
    store.publish()
    assert bodies(store) == [*kept, b"next"]


def test_quarantine_fences_off_the_end_of_one_file_and_the_beginning_of_the_next(stores: Stores):
    store = stores.open()
    texts = [b"long text %d " % number * 150 for number in range(6)]
    offsets = fill(store, texts)
    store.close()
    assert offsets[2] == 4096
    flip(log_file(store), offsets[1] + 90)
    flip(log_file(store, 4096), 90)
    store = stores.open(corrupt_policy=QUARANTINE)
    assert bodies(store) == texts[:1] + texts[3:]


def test_a_power_cut_in_the_middle_of_a_quarantine_does_no_harm(stores: Stores):
    store = stores.open(consume_queue_file_entries=4)
    offsets = fill(store)
    store.close()
    flip(log_file(store), offsets[1] + 90)
    settings = replace(store.settings, corrupt_policy=QUARANTINE)
    root = Path(settings.path)
    folders = {str(path) for path in (root, *root.parents, *root.rglob("*")) if path.is_dir()}
    vfs = RecordVfs(DiskState(folders, snapshot(root)))
    path = str(log_file(MessageStore.open(settings, vfs=vfs)))
    is_marked = [each[0] == "create" and each[2] == settings.layout.abort for each in vfs.effects]
    is_fenced = [each[:2] == ("write", vfs.names[path]) for each in vfs.effects]
    assert ("sync_folder", str(root)) in vfs.effects[is_marked.index(True) : is_fenced.index(True)]
    seen = set()
    for cut, state in cuts(vfs.start, vfs.effects, 4, random.Random(7)):
        if state.key() in seen:
            continue
        seen.add(state.key())
        again = RecordVfs(state)
        recovered = MessageStore.open(settings, vfs=again)
        assert bodies(recovered) == [FIVE[0], *FIVE[2:]], f"after {cut} effects"
        recovered.close()
        assert list(verify(settings, again)) == [], f"after {cut} effects"
    assert len(seen) > 20
    stores.leave_damaged()


def test_a_missing_log_file_is_named(stores: Stores):
    store = stores.open()
    fill(store, [b"long text %d " % number * 150 for number in range(6)])
    store.close()
    log_file(store, 4096).unlink()
    with pytest.raises(BadStore, match=f"{offset_name(4096)} is missing.*restore it"):
        stores.open()
    stores.leave_damaged()


GARBAGE = [b"", b"\xff" * 100, b"\x7a\x11" * (FILE_SIZE // 2), b"\xff" * FILE_SIZE, bytes(FILE_SIZE)]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["empty", "short", "future", "ones", "zeros"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_garbage_checkpoint_costs_time_and_no_message(stores: Stores, garbage: bytes, killed: bool, clock):
    store = stores.open(clock=clock)
    fill(store)
    stores.crash(store) if killed else store.close()
    Path(store.settings.layout.checkpoint).write_bytes(garbage)
    store = stores.open(clock=clock)
    assert bodies(store) == FIVE
    assert put(store, b"next", key="next")[1::2] == (5, clock.now_ms())
    assert len(store.query("Orders", "next", *FOREVER)) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_a_missing_checkpoint_is_made_anew(stores: Stores, killed: bool):
    store = stores.open()
    offsets = fill(store)
    stores.crash(store) if killed else store.close()
    Path(store.settings.layout.checkpoint).unlink()
    store = stores.open()
    assert bodies(store) == FIVE
    found = load(RealDisk(), store.settings.layout.checkpoint).positions
    assert found is not None and found.flushed == offsets[-1]


def test_a_checkpoint_that_java_changed_is_void_and_its_times_count(stores: Stores):
    store = stores.open()
    fill(store)
    store.close()
    flip(Path(store.settings.layout.checkpoint), 7)  # Java knows only the first 24 bytes
    assert load(RealDisk(), store.settings.layout.checkpoint).positions is None
    assert bodies(stores.open()) == FIVE


def test_records_without_a_crc_of_their_own_are_read_when_they_were_written_so(stores: Stores):
    store = stores.open(property_crc=False)
    fill(store)
    store.close()
    store = stores.open()
    fill(store, [b"with a crc"])
    stores.crash(store)
    store = stores.open()
    assert bodies(store) == [*FIVE, b"with a crc"]
    first, last = store.record_at(0), store.read("Orders", 0, 5, 1).views[0]
    assert first is not None and b"__CRC32#" not in bytes(first)
    assert b"__CRC32#" in bytes(last) and records.check(last, needs_crc=True) is None
