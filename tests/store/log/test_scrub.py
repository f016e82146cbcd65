"""Rot is found wherever it is, told once, and not served from then on."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord
from sparrowmq.loop.slices import at_once
from sparrowmq.store import upkeep
from sparrowmq.store.log.scrub import STEP_BYTES, check_records_in_steps
from tests.store.stores import put


def rot(store, place):
    """Change a bit in the middle of a record, on the disk."""
    file = store._log.row.find(place.offset)
    with Path(file.path).open("r+b") as raw:
        raw.seek(place.offset - file.begin + 100)
        byte = raw.read(1)
        raw.seek(-1, 1)
        raw.write(bytes([byte[0] ^ 4]))


def scrub(store):
    """One round; how many bytes were looked at."""
    before = store.scrubber.checked_bytes
    while store.scrubber.step():
        pass
    return store.scrubber.checked_bytes - before


def test_a_sound_log_is_gone_through_from_its_begin_to_its_end(stores, caplog):
    store = stores.open()
    for _ in range(30):
        put(store, bytes(300))
    store.publish()
    assert scrub(store) == store.end and len(store._log.row.files) > 2
    assert (store.scrubber.rounds, store.scrubber.position, store.scrubber.damaged) == (1, 0, {})
    end = store.end
    put(store, b"more")
    assert scrub(store) == end  # what is not written yet waits for the next round
    assert not caplog.records


@pytest.mark.parametrize("number", [0, 7, 29])
def test_rot_is_told_once_and_not_served(stores, caplog, number):
    stores.leave_damaged()
    store = stores.open()
    places = [put(store, bytes(300)) for _ in range(30)]
    store.publish()
    rot(store, places[number])
    with caplog.at_level(logging.ERROR):
        scrub(store)
        scrub(store)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and f"from offset {places[number].offset} to" in told[0]
    assert "store repair FOLDER -c FILE --from HOST:PORT" in told[0]
    assert list(store.scrubber.damaged) == [places[number].offset]
    with pytest.raises(CorruptRecord, match="it is not served"):
        store.read("Orders", 0, number, 1)
    others = [store.read("Orders", 0, n, 1).count for n in range(30) if n != number]
    assert others == [1] * 29
    stores.leave_damaged()


def test_what_retention_took_is_no_damage(stores):
    store = stores.open()
    for _ in range(30):
        put(store, bytes(300))
    store.publish()
    assert store.scrubber.step()
    store._log.row.drop_first()
    store._log.row.drop_first()
    scrub(store)
    assert store.scrubber.damaged == {} and store.scrubber.position == store.begin > 0
    stores.leave_damaged()


def test_a_large_record_is_checked_in_steps(stores):
    stores.settings = stores.settings.__class__(stores.settings.path, commit_log_file_size=4 << 20)
    store = stores.open()
    places = [put(store, bytes(size)) for size in (3 << 20, 3 << 20, 100)]
    store.publish()
    count = 1
    while store.scrubber.step() and store.scrubber.position == 0:
        count += 1
    assert count == (3 << 20) // STEP_BYTES + 2
    assert scrub(store) + (3 << 20) < store.end and store.scrubber.damaged == {}
    rot(store, places[2])
    store.scrubber.step()
    store.scrubber.step()
    steps = check_records_in_steps(store._log, 0)
    next(steps)
    store._log.row.drop_first()  # meanwhile retention deletes the record that is being checked
    scrub(store)
    assert list(store.scrubber.damaged) == [places[2].offset]
    assert at_once(steps)[0] == 0
    stores.leave_damaged()


def test_damage_that_retention_took_is_not_to_be_repaired_any_more(stores):
    store = stores.open()
    places = [put(store, bytes(300)) for _ in range(30)]
    store.publish()
    store.scrubber.damaged = {places[1].offset: places[2].offset, places[25].offset: places[26].offset}
    store.scrubber.fenced = {places[3].offset: places[4].offset, places[20].offset: places[21].offset}
    store._log.row.drop_first()
    store.scrubber.review()
    assert list(store.scrubber.damaged) == [places[25].offset]
    assert list(store.scrubber.fenced) == [places[20].offset]
    stores.leave_damaged()


@pytest.mark.parametrize(("rate", "rounds"), [(1, 1), (0, 0)])
async def test_it_goes_at_its_rate_and_not_more_than_once_an_hour(stores, clock, monkeypatch, rate, rounds):
    monkeypatch.setattr(upkeep, "ROUND_S", 40.0)
    store = stores.open(clock=clock, scrub_mib_s=rate)
    for _ in range(10):
        put(store, bytes(300))
    store.publish()
    task = asyncio.create_task(store.run())
    await clock.advance(20)
    assert store.scrubber.rounds == rounds
    await clock.advance(30)
    assert store.scrubber.rounds == 2 * rounds
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
