"""An index for which the disk has no room: messages are taken, and their keys are added from the log later."""

import logging

import pytest

from sparrowmq.errors import BadStore
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import bodies, put

EVER = (9, 0, 1 << 62)


def fill(store):
    return store.fill_index()


def keys(store, names):
    return [len(store.query("Orders", name, *EVER)) for name in names]


async def test_an_index_without_room_stops_no_message_and_is_filled_later(stores, clock, caplog):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, clock=clock)
    put(store, b"before", key="before")
    store._queue_builder.index_keys()
    disk.full_for = ("/index/",)
    for number in range(100):  # a file has room for 63
        put(store, b"%d" % number, key=f"k{number}")
    put(store, bytes(2000), key="large")
    store.publish()
    assert len(bodies(store)) == 102
    with pytest.raises(BadStore, match="no room for its next file"):
        store.query("Orders", "k99", *EVER)
    assert store.index_lacks_from_ms == clock.now_ms()
    store.checkpoint()
    assert not fill(store)
    disk.full_for = ()
    while fill(store):
        put(store, b"meanwhile", key="meanwhile") if store.end < 60_000 else None
    assert store.index_lacks_from_ms == 0
    put(store, b"after", key="after")
    wanted = ["before", "large", "after", *(f"k{number}" for number in range(100))]
    assert keys(store, wanted) == [1] * len(wanted)
    texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [text.split(" (")[0] for text in texts] == [
        "the index has no room for its next file, of 0.0 MiB",
        "the index has all keys again",
    ]


async def test_a_store_whose_index_lacked_keys_opens_and_finds_them_or_says_so(stores, clock):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, clock=clock)
    for number in range(60):
        put(store, b"%d" % number, key=f"k{number}")
    store._queue_builder.index_keys()
    disk.full_for = ("/index/",)
    for number in range(60, 200):
        put(store, b"%d" % number, key=f"k{number}")
    store.close()
    store = stores.open(vfs=disk, clock=clock)
    assert len(bodies(store)) == 200
    with pytest.raises(BadStore, match="no room for its next file"):
        keys(store, ["k199"])
    put(store, b"taken", key="taken")
    stores.crash(store)
    disk.full_for = ()
    store = stores.open(vfs=disk, clock=clock)
    assert set(keys(store, [f"k{number}" for number in range(200)])) == {1} == set(keys(store, ["taken"]))


async def test_a_checkpoint_that_began_while_keys_were_missing_does_not_cover_them(stores, clock):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, clock=clock)
    put(store, b"first", key="first")
    store._queue_builder.index_keys()
    disk.full_for = ("/index/",)
    for number in range(100):
        put(store, b"%d" % number, key=f"k{number}")
    end, now_ms = store.prepare_checkpoint()
    store.flush()
    write = store.begin_checkpoint(end, now_ms)
    disk.full_for = ()
    while fill(store):
        pass
    write()
    stores.crash(store)
    store = stores.open(vfs=disk, clock=clock)
    assert set(keys(store, [f"k{number}" for number in range(100)])) == {1}
