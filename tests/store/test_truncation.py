"""A log that is cut to what it has in common with another one: the rest is put aside, and what spoke of it is gone."""

import random

import pytest

from sparrowmq.errors import CorruptRecord, LogsDiffer
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.store.crash_states import Disk, RecordVfs
from tests.store.mutated import verifying_little
from tests.store.stores import bodies, put
from tests.store.timers.test_timers import NOW, due, save, timer

COUNT = 40


def filled(store):
    """Messages in two queues and some files, with keys; where each lies."""
    places = []
    for number in range(COUNT):
        places.append(put(store, b"%03d" % number, queue_id=number % 2, key=f"k{number}").offset)
        if number % 10 == 0:
            store.publish()
    return places


def shown(store):
    return sorted(bodies(store) + bodies(store, queue_id=1))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kept", [0, 17, COUNT - 1])
def test_what_lies_behind_is_gone_from_log_queues_and_index_and_put_aside(stores, is_clean, kept):
    store = stores.open()
    places = filled(store)
    end, whole = store.end, [bytes(store.record_at(place)) for place in places]
    if is_clean:
        store.close()
    else:
        store.checkpoint()
        stores.crash(store)
    store = stores.open(cut_at=places[kept])
    assert store.end == places[kept]
    assert shown(store) == [b"%03d" % number for number in range(kept)]
    for number in range(0, COUNT, 3):
        assert bool(store.query("Orders", f"k{number}", 9, 0, 1 << 60)) == (number < kept)
    (aside,) = (stores.settings.path / "set-aside").glob("*.forked")
    assert aside.name == f"{places[kept]:020d}-{end:020d}.forked"
    assert all(record in aside.read_bytes() for record in whole[kept:])
    put(store, b"new", queue_id=kept % 2, key=f"k{kept}")
    store.close()
    assert shown(stores.open()) == [b"%03d" % number for number in range(kept)] + [b"new"]


@pytest.mark.parametrize("has_message", [True, False])
def test_the_state_of_a_broker_alone_is_no_forked_message(stores, has_message):
    store = stores.open()
    filled(store)
    end = store.end
    for number in range(3):
        put(store, b"{}", STATE_TOPIC)
        if has_message and number == 1:
            put(store, b"later")
    stores.crash(store)
    store = stores.open(cut_at=end)
    assert store.end == end
    (aside,) = (stores.settings.path / "set-aside").iterdir()
    assert aside.suffix == (".forked" if has_message else ".cut")


def test_a_log_that_ends_before_is_left_as_it_is(stores):
    store = stores.open()
    filled(store)
    end = store.end
    store.close()
    for cut_at in (end, end + 1, end + 100_000):
        store = stores.open(cut_at=cut_at)
        assert (store.end, len(shown(store))) == (end, COUNT)
        store.close()
    assert not (stores.settings.path / "set-aside").exists()


def test_logs_that_differ_before_that_are_not_cut(stores):
    store = stores.open()
    places = filled(store)
    end = store.end
    store.close()
    with pytest.raises(LogsDiffer, match="move the store away"):
        stores.open(cut_at=places[9] + 4)
    assert stores.open().end == end


def test_a_killed_log_whose_records_lie_across_is_not_cut(stores):
    store = stores.open()
    places = filled(store)
    end = store.end
    stores.crash(store)
    with pytest.raises(LogsDiffer, match="move the store away"):
        stores.open(cut_at=places[9] + 4)
    assert stores.open().end == end


def test_timers_that_were_delivered_by_what_is_gone_are_pending_again(stores):
    store = stores.open()
    kept = timer(store, NOW)
    timers = store.timers()
    assert due(timers, NOW + 200) == [kept]
    delivered = timer(store, NOW, offset=kept)
    timer(store, NOW + 1)
    timers.read_new()
    assert save(store, timers) is not None
    timers.close()
    store.close()
    timers = stores.open(cut_at=delivered).timers()
    assert due(timers, NOW + 200) == [kept]
    timers.close()


def test_a_power_cut_at_any_moment_leaves_what_both_have_and_the_cut_can_be_made_again():
    settings = StoreSettings(
        "/store", commit_log_file_size=4096, consume_queue_file_entries=16, index_slots=16, index_entries=16
    )
    vfs = RecordVfs()
    store = MessageStore.open(settings, vfs=vfs)
    places = filled(store)
    store.close()
    before, kept = len(vfs.effects), 17
    MessageStore.open(settings, vfs=vfs, cut_at=places[kept]).close()
    disk, rng, looked = Disk(vfs.start), random.Random(1), 0
    common = [b"%03d" % number for number in range(kept)]
    for number, effect in enumerate(vfs.effects):
        disk.apply(effect)
        if number < before:
            continue
        for state in disk.states(4, rng):
            looked += 1
            uncut = MessageStore.open(settings, vfs=RecordVfs(state))
            assert shown(uncut)[:kept] == common and uncut.end >= places[kept]
            again = MessageStore.open(settings, vfs=RecordVfs(state), cut_at=places[kept])
            assert (shown(again), again.end) == (common, places[kept])
    assert looked > 50


def test_a_damaged_queue_file_is_rebuilt_although_the_part_to_cut_is_damaged_too(stores):
    store = stores.open()
    places = filled(store)
    store.close()
    last = store._log.row.find(places[COUNT - 2])
    with open(store.queues.get("Orders", 0).paths[0], "r+b") as file:
        file.seek(10)  # the size in the first entry: 256 bytes more
        file.write(b"\1")
    with open(last.path, "r+b") as file:
        file.seek(places[COUNT - 2] - last.begin + 60)
        file.write(b"rot")
    store = stores.open(cut_at=places[COUNT - 4])
    assert shown(store) == [b"%03d" % number for number in range(COUNT - 4)]


def test_damage_before_the_cut_is_reported_although_a_queue_file_is_damaged_too(stores):
    """The error of the queue file has the damage as its cause: the log is repaired from another broker first."""
    with verifying_little():
        store = stores.open()
        places = []
        for number in range(2 * COUNT):
            places.append(put(store, b"%03d" % number * 9).offset)
            if number % 10 == 0:  # so that a start need not check the older ones
                store.checkpoint()
        store.close()
        with open(store.queues.get("Orders", 0).paths[0], "r+b") as file:
            file.seek(15 * 20 + 15)  # the tags code of an entry
            file.write(b"\1")
        with open(store._log.row.files[0].path, "r+b") as file:
            file.seek(places[3] + 60)
            file.write(b"rot")
        with pytest.raises(CorruptRecord) as damage:
            stores.open(cut_at=places[2 * COUNT - 4], awaits_copy=True)
        assert damage.value.offset == places[3]
    stores.leave_damaged()
