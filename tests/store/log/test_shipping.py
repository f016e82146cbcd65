"""What leaves to a slave is sound, wherever it begins, and what was just written is not looked at again."""

import random

from sparrowmq.errors import CorruptRecord
from sparrowmq.store.log.scrub import STEP_BYTES
from sparrowmq.store.log.shipping import Shipping
from tests.store.log.test_scrub import rot
from tests.store.stores import put


def shipped(store, begin, size=700):
    """What a slave gets from an offset on, and where damage ends that, if any does."""
    shipping, content = Shipping(store.scrubber), b""
    try:
        while begin + len(content) < store.end:
            at = begin + len(content)
            content += bytes(store.log_bytes(at, reach(shipping, at, size)))
    except CorruptRecord as damage:
        return content, damage.offset
    return content, None


def reach(shipping, offset, size):
    while not (count := shipping.reach(offset, size)):
        pass
    return count


def filled(stores, sizes):
    """A store of which nobody has looked at what is in it since its start, and where its records lie."""
    store = stores.open()
    places = [put(store, bytes(size)) for size in sizes]
    store.publish()
    store._log.distrust()
    return store, [place.offset for place in places], places


def whole(store):
    content = b""
    while len(content) < store.end:
        content += bytes(store.log_bytes(len(content), 1 << 30))
    return content


def test_a_sound_log_leaves_from_wherever_a_slave_begins(stores):
    store, offsets, _ = filled(stores, [300] * 40)
    log = whole(store)
    for begin in [0, 1, offsets[7], offsets[7] - 1, offsets[20] + 50, 4096, 4095, 4097, store.end - 1]:
        assert shipped(store, begin) == (log[begin:], None)
    assert store.scrubber.damaged == {}


def test_what_lies_before_damage_leaves_and_nothing_of_it(stores, caplog):
    store, offsets, places = filled(stores, [300] * 40)
    rot(store, places[20])
    log = whole(store)
    for begin in [0, 1, offsets[19], offsets[19] + 3]:
        assert shipped(store, begin) == (log[begin : offsets[20]], offsets[20])
    for begin in [offsets[20], offsets[20] + 1, offsets[21] - 1]:
        assert shipped(store, begin) == (b"", offsets[20])
    for begin in [offsets[21], offsets[21] + 9]:  # a slave that has it, from before it rotted
        assert shipped(store, begin) == (log[begin:], None)
    assert list(store.scrubber.damaged) == [offsets[20]]
    assert sum("is damaged from offset" in record.getMessage() for record in caplog.records) == 1
    stores.leave_damaged()


def test_records_larger_than_a_look_are_compared_whole(stores):
    stores.settings = stores.settings.__class__(stores.settings.path, commit_log_file_size=32 << 20)
    store, offsets, places = filled(stores, [100, 3 << 20, 100, 3 << 20, 100])
    log = whole(store)
    for begin in [0, offsets[1] + (2 << 20), offsets[3], offsets[3] + 5]:
        assert shipped(store, begin, 1 << 20) == (log[begin:], None)
    rot(store, places[3])
    assert shipped(store, offsets[1] + 9, 1 << 20) == (log[offsets[1] + 9 : offsets[3]], offsets[3])
    stores.leave_damaged()


def test_a_large_record_is_compared_in_many_calls_and_may_be_deleted_meanwhile(stores):
    stores.settings = stores.settings.__class__(stores.settings.path, commit_log_file_size=4 << 20)
    store, offsets, _ = filled(stores, [3 << 20, 100, 3 << 20, 100])
    shipping = Shipping(store.scrubber)
    calls = 1
    while not shipping.reach(0, 700):
        calls += 1
    assert calls == (3 << 20) // STEP_BYTES + 2
    shipping = Shipping(store.scrubber)
    assert shipping.reach(offsets[1] - 9, 700) == 0
    assert reach(shipping, offsets[2] + 5, 1 << 30) == offsets[3] - offsets[2] - 5, "another place"
    shipping = Shipping(store.scrubber)
    assert shipping.reach(offsets[1] - 9, 700) == 0
    store._log.row.drop_first()
    assert shipping.reach(offsets[1] - 9, 700) == 700, "the owner sees that it is gone"
    assert store.scrubber.damaged == {}
    stores.leave_damaged()


def test_what_was_written_since_the_start_leaves_without_a_look_until_it_is_distrusted(stores):
    store, _, _ = filled(stores, [300])
    begin = store._log.verified_from = store.end
    places = [put(store, bytes(300)) for _ in range(40)]
    store.publish()
    shipping = Shipping(store.scrubber)
    assert shipping.reach(begin + 5, 1 << 30) == 1 << 30
    rot(store, places[30])
    store._log.distrust()
    assert reach(shipping, begin + 5, 400) == 400
    assert shipped(store, begin)[1] == places[30].offset
    stores.leave_damaged()


def test_any_place_of_any_record_may_rot_and_is_never_shipped(stores):
    store, _, places = filled(stores, [50, 700, 300, 1200, 20] * 6)
    log, seed = whole(store), random.randrange(1 << 30)
    dice = random.Random(seed)
    for _ in range(60):
        place, at = dice.choice(places), dice.randrange(70)
        file = store._log.row.find(place.offset)
        old = file.read(place.offset - file.begin + at, 1)
        file.write(place.offset - file.begin + at, bytes([old[0] ^ (1 << dice.randrange(8))]))
        begin = dice.randrange(place.offset + 1)
        content, damage = shipped(store, begin, dice.randrange(1, 3000))
        assert (content, damage) == (log[begin : place.offset], place.offset), (seed, place.offset, at)
        file.write(place.offset - file.begin + at, old)


def test_what_retention_took_is_no_damage(stores):
    store, offsets, _ = filled(stores, [300] * 40)
    store._log.row.drop_first()
    assert Shipping(store.scrubber).reach(offsets[0], 700) == 700
    assert store.log_bytes(offsets[0], 700) is None and store.scrubber.damaged == {}
    stores.leave_damaged()
