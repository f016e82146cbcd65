"""Files of queues that are damaged are made anew from the log, byte for byte; what the log has no more is a gap."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_ends import ALL_TOPICS, QueueEnds
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk
from tests.store.mutated import verifying_little
from tests.store.stores import Stores, bodies, put

TEXTS = [b"message %d" % number for number in range(80)]


def fill(store: MessageStore) -> list[int]:
    """Five files of a queue, with another one's messages between; where each message lies in the log."""
    places = []
    for text in TEXTS:
        places.append(put(store, text, tag="a")[0])
        put(store, b"elsewhere", "Bills")
    store.checkpoint()
    return places


def snapshot(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("files", [[0], [1, 2], [4], [0, 2, 4], [0, 1, 2, 3, 4]])
def test_files_that_are_gone_come_back_as_they_were(stores: Stores, killed: bool, files: list[int]):
    store = stores.open()
    fill(store)
    stores.crash(store) if killed else store.close()
    before = snapshot(store.settings.layout.consume_queue)
    paths = sorted(Path(store.settings.layout.queue("Orders", 0)).iterdir())
    for number in files:
        paths[number].unlink()
    store = stores.open()
    assert snapshot(store.settings.layout.consume_queue) == before
    assert bodies(store) == TEXTS and put(store)[1] == len(TEXTS)


def test_all_queues_at_once_come_back_by_one_look_at_the_log(stores: Stores, caplog):
    store = stores.open()
    fill(store)
    store.close()
    before = snapshot(store.settings.layout.consume_queue)
    shutil.rmtree(store.settings.layout.consume_queue)
    store = stores.open()
    assert snapshot(store.settings.layout.consume_queue) == before
    assert "queue Orders/0: the files of entries 0, 16, 32, 48, 64 are damaged" in caplog.text


def test_only_the_part_of_the_log_between_the_neighbours_is_read(stores: Stores, monkeypatch):
    store = stores.open()
    places = fill(store)
    store.close()
    path = sorted(Path(store.settings.layout.queue("Orders", 0)).iterdir())[2]
    path.write_bytes(path.read_bytes()[:100])
    asked = []

    def sound_records(self: CommitLog, begin: int, end: int) -> Iterator[memoryview]:
        asked.append((begin, end))
        return real(self, begin, end)

    real = CommitLog.sound_records
    monkeypatch.setattr(CommitLog, "sound_records", sound_records)
    assert bodies(stores.open()) == TEXTS
    assert asked[0] == (places[31], places[48])


@pytest.mark.parametrize("killed", [False, True])
def test_the_last_messages_of_a_queue_that_rotted_leave_a_gap_and_their_offsets_are_not_given_again(
    stores: Stores, killed: bool, caplog
):
    """Far before the log's end, where no start looks, and the queue's file is lost too."""
    with verifying_little(1024):
        store = stores.open()
        places = fill(store)
        for _ in range(8):
            for _ in range(10):
                put(store, b"elsewhere", "Bills")
            store.checkpoint()
        stores.crash(store) if killed else store.close()
        path = Path(store.settings.layout.commit_log)
        for place in places[-2:]:
            file = path / f"{place // 4096 * 4096:020d}"
            content = bytearray(file.read_bytes())
            content[place % 4096 + 90] ^= 1
            file.write_bytes(content)
        sorted(Path(store.settings.layout.queue("Orders", 0)).iterdir())[-1].unlink()
        store = stores.open()
    assert bodies(store) == TEXTS[:-2]
    assert put(store, b"next")[1] == len(TEXTS)
    assert "the log has no record of 2 of them" in caplog.text
    stores.leave_damaged()


@pytest.mark.parametrize("killed", [False, True])
def test_a_rotten_record_does_not_take_the_end_of_its_queue_with_it(stores: Stores, killed: bool):
    with verifying_little(1024):
        store = stores.open()
        places = fill(store)
        for _ in range(80):
            put(store, b"elsewhere", "Bills")
            store.checkpoint()
        stores.crash(store) if killed else store.close()
        file = Path(store.settings.layout.commit_log) / f"{places[-1] // 4096 * 4096:020d}"
        content = bytearray(file.read_bytes())
        content[places[-1] % 4096 + 90] ^= 1
        file.write_bytes(content)
        store = stores.open()
    queue = store.queues.get("Orders", 0)
    assert queue is not None and queue.max_offset == len(TEXTS)
    entry = queue.entry(len(TEXTS) - 1)
    assert entry is not None and entry.offset == places[-1]  # whoever mends the record has it there again
    assert put(store, b"next")[1] == len(TEXTS)
    stores.leave_damaged()


def test_what_a_topic_made_anew_lost_is_not_replaced_by_messages_of_the_deleted_one(stores: Stores):
    with verifying_little(1024):
        store = stores.open()
        fill(store)
        store.delete_topic("Orders")
        places = [put(store, b"new " + text)[0] for text in TEXTS[:3]]
        for _ in range(80):
            put(store, b"elsewhere", "Bills")
            store.checkpoint()
        store.close()
        file = Path(store.settings.layout.commit_log) / f"{places[1] // 4096 * 4096:020d}"
        content = bytearray(file.read_bytes())
        content[places[1] % 4096 + 90] ^= 1
        file.write_bytes(content)
        shutil.rmtree(store.settings.layout.queue("Orders", 0))
        store = stores.open()
    assert bodies(store) == [b"new " + TEXTS[0], b"new " + TEXTS[2]]
    stores.leave_damaged()


def test_a_topic_made_anew_is_mended_with_its_own_messages(stores: Stores):
    store = stores.open()
    fill(store)
    store.delete_topic("Orders")
    for text in TEXTS[:3]:
        put(store, b"new " + text)
    store.close()
    before = snapshot(store.settings.layout.consume_queue)
    shutil.rmtree(store.settings.layout.queue("Orders", 0))
    store = stores.open()
    assert snapshot(store.settings.layout.consume_queue) == before


def test_a_deletion_is_forgotten_with_the_last_record_that_it_is_about(stores: Stores):
    store = stores.open()
    fill(store)
    store.delete_topic("Orders")
    for _ in range(12):
        put(store, bytes(1000), "Bills")
    store.close()
    ends = QueueEnds(Disk(), store.settings.layout.ends)
    assert list(ends.load().deleted) == [ALL_TOPICS, "Orders"]
    log_files = sorted(Path(store.settings.layout.commit_log).iterdir())
    for path in log_files[:-2]:
        path.unlink()
    stores.open(corrupt_policy=CorruptPolicy.QUARANTINE).close()
    assert list(ends.load().deleted) == [ALL_TOPICS]


def test_a_topic_that_was_deleted_and_made_anew_after_the_checkpoint_has_its_own_messages(stores: Stores):
    store = stores.open()
    fill(store)
    put(store, b"after the checkpoint")
    store.delete_topic("Orders")
    put(store, b"new")
    store.publish()
    stores.crash(store)
    assert bodies(stores.open()) == [b"new"]


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


def lose_checksums(store: MessageStore) -> None:
    """Damage the ends of queues, and a queue: the tags of a message, its offset, some entries, and the last ones."""
    for path in Path(store.settings.layout.ends).iterdir():
        overwrite(path, 0, bytes(8))
    paths = sorted(Path(store.settings.layout.queue("Orders", 0)).iterdir())
    overwrite(paths[0], 3 * 20 + 12, b"\1")
    overwrite(paths[1], 5 * 20 + 6, b"\1")
    overwrite(paths[2], 0, bytes(16 * 20))
    overwrite(paths[4], 6 * 20, bytes(10 * 20))


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


@pytest.mark.parametrize("killed", [False, True])
def test_damaged_queues_without_their_checksums_are_built_again_from_the_log(stores: Stores, killed: bool):
    store = stores.open()
    fill(store)
    stores.crash(store) if killed else store.close()
    lose_checksums(store)
    store = stores.open()
    queue = store.queues.obtain("Orders", 0)
    assert {queue.read(number, 1).tags_code(0) for number in range(len(TEXTS))} == {string_hash("a")}
    assert bodies(store) == TEXTS and put(store)[1] == len(TEXTS)
    store.close()
    store = stores.open()
    assert bodies(store)[: len(TEXTS)] == TEXTS


def test_without_checksums_a_damaged_record_waits_for_its_copy_and_becomes_no_gap(stores: Stores):
    with verifying_little():
        store = stores.open()
        places = []
        for number, text in enumerate(TEXTS):
            places.append(put(store, text, tag="a")[0])
            if number % 10 == 0:  # so that a start need not check the older ones
                store.checkpoint()
        place = places[10]
        store.close()
        log_file = next(Path(store.settings.layout.commit_log).glob("0*0"))
        sound = log_file.read_bytes()[place + 60 : place + 61]
        lose_checksums(store)
        overwrite(log_file, place + 60, bytes([sound[0] ^ 1]))
        with pytest.raises(CorruptRecord) as damage:
            stores.open(awaits_copy=True)
        assert damage.value.offset == place
        overwrite(log_file, place + 60, sound)
        assert bodies(stores.open(awaits_copy=True)) == TEXTS


def test_a_queue_of_which_the_log_has_no_record_any_more_keeps_its_end_without_the_checksums(stores: Stores):
    store = stores.open()
    for text in TEXTS:
        put(store, text, "Old")
    for text in TEXTS * 3:
        put(store, text * 5)
    store.checkpoint()
    first = store._log.row.files[3].begin
    store.close()
    for path in sorted(Path(store.settings.layout.commit_log).glob("0*"))[:3]:
        path.unlink()
    for path in Path(store.settings.layout.ends).iterdir():
        overwrite(path, 0, bytes(8))
    store = stores.open()
    assert store.begin == first
    assert put(store, b"next", "Old")[1] == len(TEXTS)
