"""Damaged records are taken from a copy of the log that has them whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparrowmq.errors import LogsDiffer, StoreLocked
from sparrowmq.protocol.messages import record as records
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.repair import repair
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.record_repair import advance, take_from
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from tests.store.stores import Stores, bodies, put

DISK = Disk()
COUNT = 80


class Slave:
    """A copy of the log as it was, asked by offsets.

    Attributes:
        spoils: what becomes of each record that it gives.
    """

    def __init__(self, settings: StoreSettings, spoils: Callable[[bytes], bytes | None] = bytes) -> None:
        folder = Path(settings.path).parent / "slave"
        shutil.copytree(settings.path, folder)
        self.store = MessageStore.open(
            StoreSettings(
                folder,
                commit_log_file_size=settings.commit_log_file_size,
                consume_queue_file_entries=settings.consume_queue_file_entries,
                index_slots=settings.index_slots,
                index_entries=settings.index_entries,
            )
        )
        self.asked: list[int] = []
        self.spoils = spoils

    def record_at(self, offset: int) -> bytes | None:
        self.asked.append(offset)
        found = self.store.copy_at(offset)
        return None if found is None else self.spoils(found)


@pytest.fixture
def places(stores: Stores) -> list[tuple[int, int]]:
    """Where the messages of a closed store lie: three log files, two queues."""
    store = stores.open()
    found = [put(store, b"%d" % n, "Orders", n % 2, key=f"k{n}") for n in range(COUNT)]
    store.close()
    assert found[-1].end > 2 * 4096
    return [(place.offset, place.end) for place in found]


@pytest.fixture
def slave(stores: Stores, places: list[tuple[int, int]]) -> Iterator[Slave]:
    slave = Slave(stores.settings)
    yield slave
    slave.store.close()


def damage(settings: StoreSettings, offset: int, size: int = 1) -> None:
    """Turn bytes of the log over."""
    path = Path(settings.layout.commit_log, f"{offset // 4096 * 4096:020d}")
    content = bytearray(path.read_bytes())
    for at in range(offset % 4096, offset % 4096 + size):
        content[at] ^= 0xFF
    path.write_bytes(content)


def sound(stores: Stores) -> None:
    """The store is what it was, and goes on where it ended."""
    assert list(verify(stores.settings)) == []
    store = stores.open()
    for queue_id in (0, 1):
        assert bodies(store, "Orders", queue_id) == [b"%d" % n for n in range(queue_id, COUNT, 2)]
        assert put(store, b"more", "Orders", queue_id)[1] == COUNT // 2
    assert len(store.query("Orders", "k17", 9, 0, 1 << 60)) == 1


def middle_of(places: list[tuple[int, int]], number: int) -> int:
    return places[number][0] + 60


@pytest.mark.parametrize(
    "numbers", [[0], [7], [3, 4, 5], [1, 20, 40], [COUNT - 1], [COUNT - 2, COUNT - 1], [0, COUNT - 1]]
)
def test_damaged_records_are_what_they_were(stores, places, slave, numbers):
    for number in numbers:
        damage(stores.settings, middle_of(places, number))
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (len(numbers), [])
    sound(stores)
    assert len(slave.asked) <= 4 * len(numbers)  # the rest of the log is not asked for


def test_the_end_of_a_file_and_the_beginning_of_the_next_one_are_what_they_were(stores, places, slave):
    last = max(number for number, (begin, _) in enumerate(places) if begin < 4096)
    damage(stores.settings, places[last - 1][0], 4096 - places[last - 1][0])  # the blank, too
    damage(stores.settings, 4096, places[last + 2][0] - 4096)
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (3, [])
    sound(stores)


def test_what_a_start_fenced_off_is_taken_from_the_copy_later(stores, places, slave):
    for number in (5, 6, 30):
        damage(stores.settings, middle_of(places, number))
    repair(stores.settings, DISK)
    assert len(bodies(stores.open(), "Orders", 1)) == COUNT // 2 - 1
    stores._open.pop().close()
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (3, [])
    sound(stores)


def test_damaged_bytes_are_kept(stores, places, slave):
    damage(stores.settings, middle_of(places, 7))
    (begin, end), path = places[7], Path(stores.settings.layout.commit_log, f"{0:020d}")
    before = path.read_bytes()[begin:end]
    repair(stores.settings, DISK, slave)
    (kept,) = Path(stores.settings.layout.set_aside).iterdir()
    assert kept.read_bytes() == before


def lacking(number: int, places: list[tuple[int, int]]) -> Callable[[bytes], bytes | None]:
    return lambda found: None if records.physical_offset(found) == places[number][0] else found


def spoilt(number: int, places: list[tuple[int, int]]) -> Callable[[bytes], bytes | None]:
    def spoil(found: bytes) -> bytes:
        return found[:60] + b"?" + found[61:] if records.physical_offset(found) == places[number][0] else found

    return spoil


@pytest.mark.parametrize("fault", [lacking, spoilt])
def test_what_the_copy_has_not_or_not_whole_is_fenced_off_and_told(stores, places, slave, fault):
    for number in (7, 8):
        damage(stores.settings, middle_of(places, number))
    slave.spoils = fault(8, places)
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (1, [(places[8][0], places[8][1])])
    assert list(verify(stores.settings)) == []
    store = stores.open()
    assert len(bodies(store, "Orders", 0)) == COUNT // 2 - 1 and len(bodies(store, "Orders", 1)) == COUNT // 2


@pytest.mark.parametrize("spoils", [lambda found: found[:-1] + b"?", lambda found: None], ids=["other", "none"])
def test_another_log_is_no_copy_and_nothing_changes(stores, places, slave, spoils):
    damage(stores.settings, middle_of(places, 7))
    before = {path: path.read_bytes() for path in Path(stores.settings.layout.commit_log).iterdir()}
    slave.spoils = spoils
    with pytest.raises(LogsDiffer, match="no slave or master of this one"):
        repair(stores.settings, DISK, slave)
    assert {path: path.read_bytes() for path in before} == before
    stores.leave_damaged()


def part(slave: Slave, place: int, texts: list[bytes]) -> None:
    """Let the other log go on differently from a place on."""
    slave.store.close()
    slave.store = MessageStore.open(slave.store.settings, cut_at=place)
    for text in texts:
        put(slave.store, text, "Orders", 1, key="k7")


@pytest.mark.parametrize("texts", [[b"7"], [b"7", b"8"], [b"%d" % n for n in range(7, COUNT)], [b""] * 9])
@pytest.mark.parametrize("last", [7, 8, 12, COUNT - 1])
def test_records_of_a_log_that_parted_from_this_one_at_the_damage_are_not_taken(stores, places, slave, last, texts):
    """The record before the damage is the same in both logs, and the other log has none where ours goes on."""
    part(slave, places[7][0], texts)
    for number in range(7, last + 1):
        damage(stores.settings, middle_of(places, number))
    before = {path: path.read_bytes() for path in Path(stores.settings.layout.commit_log).iterdir()}
    with pytest.raises(LogsDiffer, match="no slave or master of this one"):
        repair(stores.settings, DISK, slave)
    assert {path: path.read_bytes() for path in before} == before
    stores.leave_damaged()


@pytest.mark.parametrize("at", [20, 60, 110])
@pytest.mark.parametrize("end", [8, 9])
def test_copy_that_ends_beside_the_damage_has_records_of_which_a_part_is_left_here(stores, places, slave, at, end):
    part(slave, places[end][0], [])
    for number in range(7, end):
        damage(stores.settings, places[number][0] + at)
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (end - 7, [])
    sound(stores)


def test_records_after_the_last_one_of_which_a_part_is_left_are_not_taken(stores, places, slave):
    part(slave, places[9][0], [])
    damage(stores.settings, middle_of(places, 7))
    damage(stores.settings, places[8][0], places[8][1] - places[8][0])
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (1, [places[8]])


def test_blank_after_the_last_record_of_which_a_part_is_left_is_not_written(stores, places, slave):
    last = max(number for number, (begin, _) in enumerate(places) if begin < 4096)
    part(slave, places[last + 2][0], [])
    damage(stores.settings, middle_of(places, last - 1))
    damage(stores.settings, places[last][0], 4096 - places[last][0])
    damage(stores.settings, 4096, places[last + 1][1] - 4096)
    replaced = repair(stores.settings, DISK, slave)
    left = [(places[last][0], places[last + 1][1])]
    assert (replaced.count, replaced.blank_count, replaced.remaining_damage) == (1, 0, left)


def test_end_of_the_log_that_is_zeros_is_taken_from_the_copy(stores, places, slave):
    for begin in range(0, places[-1][1], 4096):
        path = Path(stores.settings.layout.commit_log, f"{begin:020d}")
        kept = max(min(places[70][0] - begin, 4096), 0)
        path.write_bytes(path.read_bytes()[:kept].ljust(4096, b"\0"))
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, replaced.remaining_damage) == (COUNT - 70, [])
    sound(stores)


def test_damage_that_the_copy_cannot_repair_does_not_hold_up_the_repair_of_other_damage(stores, places, slave):
    slave.spoils = lambda found: found if records.physical_offset(found) >= places[20][0] else None
    before = {path: path.read_bytes() for path in Path(stores.settings.layout.commit_log).iterdir()}
    store = stores.open()
    for number in (3, 30):
        damage(stores.settings, middle_of(places, number))
    while store.scrubber.step():
        pass
    assert set(store.scrubber.damaged) == {places[3][0], places[30][0]}
    with pytest.raises(LogsDiffer):
        take_from(slave, store.replace_damaged(1 << 20))
    assert set(store.scrubber.damaged) == {places[3][0]}
    slave.spoils = bytes
    take_from(slave, store.replace_damaged(1 << 20))
    assert not store.scrubber.damaged
    assert {path: path.read_bytes() for path in before} == before


def test_a_sound_store_asks_nobody(stores, places, slave):
    replaced = repair(stores.settings, DISK, slave)
    assert (replaced.count, slave.asked) == (0, [])


def test_a_store_that_a_broker_has_open_is_left_alone(stores, places, slave):
    stores.open()
    with pytest.raises(StoreLocked):
        repair(stores.settings, DISK, slave)


def test_messages_stored_and_files_deleted_while_records_are_asked_for_are_left_alone(stores, places, slave):
    store = stores.open()
    for number in (3, COUNT - 1):
        damage(stores.settings, middle_of(places, number))
    while store.scrubber.step():
        pass
    requests = store.replace_damaged(1 << 20)
    step = advance(requests)
    place = put(store, b"more", "Orders", 0)
    store._log.row.drop_first()
    while isinstance(step, int):
        step = advance(requests, slave.record_at(step))
    assert step.count == 1  # the other one's file is gone
    assert bodies(store, "Orders", 1)[-1] == b"%d" % (COUNT - 1)
    assert b"more" in (store.copy_at(place.offset) or b"")
    stores.leave_damaged()
