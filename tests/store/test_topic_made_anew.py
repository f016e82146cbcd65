"""A topic that was deleted and made anew, and restarts: its new messages are there, and no old one."""

from pathlib import Path

import pytest

from tests.store.stores import bodies, message, put


@pytest.mark.parametrize("checkpoint", ["none", "between", "all"])
@pytest.mark.parametrize(("old", "new"), [(3, 40), (40, 3)])
@pytest.mark.parametrize("fewer_queues", [False, True])
@pytest.mark.parametrize("leave", ["close", "crash"])
def test_only_what_was_stored_since_is_there(stores, checkpoint, old, new, fewer_queues, leave):
    store = stores.open()
    for number in range(old):
        put(store, b"old %d" % number)
        put(store, b"old %d" % number, queue_id=1)
    put(store, b"neighbour", "Flights")
    store.publish()
    if checkpoint in ("before", "all"):
        store.checkpoint()
    store.delete_topic("Orders")
    if checkpoint in ("between", "all"):
        store.checkpoint()
    for number in range(new):
        assert put(store, b"new %d" % number).queue_offset == number
        if not fewer_queues:
            put(store, b"new %d" % number, queue_id=1)
    store.publish()
    if checkpoint in ("after", "all"):
        store.checkpoint()
    for _ in range(3):  # what one start writes down is believed by the next
        store.close() if leave == "close" else stores.crash(store)
        store = stores.open()
        wanted = [b"new %d" % number for number in range(new)]
        assert bodies(store) == wanted
        assert bodies(store, queue_id=1) == ([] if fewer_queues else wanted)
        assert bodies(store, "Flights") == [b"neighbour"]
    assert put(store, b"next").queue_offset == new
    store.append(message(b"first", queue_id=2))


def test_deleted_twice_in_one_life_it_begins_at_0_each_time(stores):
    store = stores.open()
    for life in range(3):
        for number in range(20):
            assert put(store, b"%d %d" % (life, number)).queue_offset == number
        store.publish()
        if life < 2:
            store.delete_topic("Orders")
    stores.crash(store)
    assert bodies(stores.open()) == [b"2 %d" % number for number in range(20)]


def test_what_is_stored_after_a_power_cut_that_the_deletion_outlived_is_there(stores):
    store = stores.open()
    put(store, b"old")
    store.flush()
    flushed = store.end
    for _ in range(5):
        put(store, b"in memory alone")
    store.delete_topic("Orders")  # on disk at once: all before the log's end is gone
    stores.crash(store)
    path = Path(store.settings.layout.commit_log, f"{0:020d}")
    content = path.read_bytes()
    path.write_bytes(content[:flushed] + bytes(len(content) - flushed))
    store = stores.open()
    assert put(store, b"new").queue_offset == 0  # where the tail was that the power cut took
    for _ in range(2):
        stores.crash(store)
        store = stores.open()
        assert bodies(store) == [b"new"]
