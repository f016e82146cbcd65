"""Damage behind the last checkpoint is not taken for the torn tail of a crash."""

from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord
from sparrowmq.store.layout import LOCK_OF_JAVA, SECTOR
from sparrowmq.store.log.set_aside import list_pieces
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy
from sparrowmq.store.vfs import Disk
from tests.store.stores import Stores, bodies
from tests.store.test_recovery import FIVE, fill, flip, log_file, lose, overwrite, snapshot


def killed_store(stores: Stores, *, synced: bool, texts: list[bytes] = FIVE) -> tuple[MessageStore, list[int]]:
    """A store whose process was killed. The checkpoint knows none of its messages."""
    store = stores.open()
    offsets = fill(store, texts)
    if synced:
        store.flush()
    stores.crash(store)
    return store, offsets


@pytest.mark.parametrize("number", range(5))
def test_damage_before_the_last_sync_is_refused_and_nothing_is_changed(stores: Stores, number: int):
    store, offsets = killed_store(stores, synced=True)
    overwrite(log_file(store), offsets[number] + 60, bytes(40))  # as a crash leaves it, or a disk
    before = snapshot(Path(store.settings.path))
    with pytest.raises(CorruptRecord, match="these bytes had been on disk, so this is no torn tail") as refused:
        stores.open()
    assert refused.value.offset == offsets[number]
    assert snapshot(Path(store.settings.path)) == before
    stores.leave_damaged()


def test_a_tail_of_synced_messages_that_became_zeros_is_missed(stores: Stores):
    store, offsets = killed_store(stores, synced=True)
    overwrite(log_file(store), offsets[3], bytes(offsets[5] - offsets[3]))
    with pytest.raises(CorruptRecord) as refused:
        stores.open()
    assert refused.value.offset == offsets[3]
    opened = stores.open(corrupt_policy=CorruptPolicy.QUARANTINE)
    assert bodies(opened) == FIVE[:3]
    (piece,) = list_pieces(Disk(), opened.settings.layout)
    assert (piece.reason, piece.end, piece.size) == ("lost", offsets[5], offsets[5] - offsets[3])


def test_a_flipped_bit_that_no_sync_covered_is_not_taken_for_a_torn_tail(stores: Stores):
    texts = [b"%d" % number * 700 for number in range(8)]
    store, offsets = killed_store(stores, synced=False, texts=texts)
    assert offsets[4] == 4096  # the fourth record is the last one of its file, and the blank comes after it
    missed = []
    for number, begin in enumerate(offsets[:4]):
        head = 8 if number == 3 else 0  # its size and magic number
        for position in range(begin + head, begin + 700, 23):
            flip(log_file(store), position, position % 8)
            try:
                stores.open().close()
                missed.append(position)
            except CorruptRecord as found:
                assert found.offset == begin
            flip(log_file(store), position, position % 8)
    assert missed == []


def test_a_lost_sector_of_a_record_is_a_torn_tail(stores: Stores):
    texts = [b"%d" % number * 700 for number in range(5)]
    store, offsets = killed_store(stores, synced=False, texts=texts)
    lose(log_file(store), (offsets[1] // SECTOR + 1) * SECTOR)
    store = stores.open()
    assert bodies(store) == texts[:1] and store.end == offsets[1]


def test_a_lost_sector_that_holds_only_a_zero_of_the_next_record_is_a_torn_tail(stores: Stores):
    """The next record begins with the last byte of the sector, which is zero in any case, so it is sound."""
    store = stores.open()
    offsets = fill(store, [b"a" * 600])
    overhead = offsets[1] - 600
    last_byte = (offsets[1] + overhead) // SECTOR * SECTOR + 2 * SECTOR - 1
    offsets = fill(store, [b"b" * (last_byte - offsets[1] - overhead), b"c" * 50])
    assert offsets[1] == last_byte
    stores.crash(store)
    lose(log_file(store), last_byte - SECTOR + 1)
    store = stores.open()
    assert bodies(store) == [b"a" * 600] and store.end == offsets[0]


def test_another_broker_may_have_cut_what_was_synced(stores: Stores):
    store, offsets = killed_store(stores, synced=True)
    overwrite(log_file(store), offsets[3], bytes(offsets[5] - offsets[3]))
    overwrite(Path(store.settings.layout.lock), 0, LOCK_OF_JAVA)
    assert bodies(stores.open()) == FIVE[:3]
