"""Queues and index that a crash or a missing file left without entries are made again from the log."""

import shutil
from pathlib import Path

import pytest

from tests.store.stores import Stores, bodies, put
from tests.store.test_recovery import FIVE, FOREVER, fill, log_file, lose, overwrite, queue_file


@pytest.mark.parametrize("killed", [False, True])
def test_lost_queues_are_made_anew(stores: Stores, killed: bool):
    store = stores.open()
    fill(store)
    put(store, b"elsewhere", "Bills", 3)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    shutil.rmtree(store.settings.layout.consume_queue)
    store = stores.open()
    assert bodies(store) == FIVE and bodies(store, "Bills", 3) == [b"elsewhere"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_lost_index_is_made_anew(stores: Stores, killed: bool):
    store = stores.open()
    fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    shutil.rmtree(store.settings.layout.index)
    store = stores.open()
    assert len(store.query("Orders", "message-0", *FOREVER)) == 1
    assert len(list(Path(store.settings.layout.index).iterdir())) == 1


def test_an_index_that_knows_less_than_the_checkpoint_says_is_made_anew(stores: Stores):
    store = stores.open()
    fill(store)
    store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    overwrite(path, 0, bytes(path.stat().st_size))
    store = stores.open()
    assert len(store.query("Orders", "message-0", *FOREVER)) == 1


def test_the_index_forgets_records_that_were_cut(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    store._queue_builder.index_keys()
    stores.crash(store)
    overwrite(log_file(store), offsets[3] + 60, bytes(40))
    store = stores.open()
    assert store.query("Orders", "message-3", *FOREVER) == []
    assert store.indexed[1] == offsets[2]


def test_a_queue_whose_last_entries_are_gone_gets_them_back(stores: Stores):
    store = stores.open()
    fill(store)
    store.close()
    overwrite(queue_file(store), 3 * 20, bytes(2 * 20))
    assert bodies(stores.open()) == FIVE


def test_a_queue_that_lacks_entries_before_a_new_record_is_made_anew(stores: Stores):
    store = stores.open()
    fill(store)
    store.checkpoint()
    put(store, b"after the checkpoint")
    store.publish()
    stores.crash(store)
    overwrite(queue_file(store), 20, bytes(5 * 20))
    assert bodies(stores.open()) == [*FIVE, b"after the checkpoint"]


def test_half_an_entry_of_a_queue_is_no_entry(stores: Stores):
    store = stores.open()
    fill(store)
    stores.crash(store)
    overwrite(queue_file(store), 4 * 20 + 8, bytes(12))  # the sector ended behind the offset
    assert bodies(stores.open()) == FIVE


@pytest.mark.parametrize("torn", [False, True])
def test_the_later_half_of_an_entry_is_no_entry_either(stores: Stores, torn: bool):
    store = stores.open()
    fill(store)
    store.checkpoint()
    offset = put(store, b"elsewhere", "Bills")[0]
    store.publish()
    stores.crash(store)
    overwrite(queue_file(store, "Bills"), 0, bytes(7))  # the sector began with the offset's last byte
    assert 0 < int.from_bytes(queue_file(store, "Bills").read_bytes()[:8]) < offset
    if torn:
        lose(log_file(store), offset + 60)
    assert bodies(stores.open(), "Bills") == ([] if torn else [b"elsewhere"])


def test_a_deleted_topic_stays_deleted_after_a_kill(stores: Stores):
    store = stores.open()
    fill(store)
    put(store, b"stays", "Bills")
    store.checkpoint()
    store.delete_topic("Orders")
    stores.crash(store)
    store = stores.open()
    assert store.queues.get("Orders", 0) is None and bodies(store, "Bills") == [b"stays"]


def test_a_topic_that_was_made_anew_begins_at_0_after_a_kill(stores: Stores):
    store = stores.open()
    fill(store)
    store.checkpoint()
    store.delete_topic("Orders")
    fill(store, [b"new 0", b"new 1"])
    stores.crash(store)
    assert bodies(stores.open()) == [b"new 0", b"new 1"]


# Checkpoints
