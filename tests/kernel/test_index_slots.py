"""kernel.index_slots: entries are linked to their slots as Java does, and both forms of the kernel link alike."""

from __future__ import annotations

from struct import iter_unpack, pack

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.index_layout import ENTRY_BYTES, PART_BITS
from sparrowmq.kernel.index_slots import IndexSlots, count_used

COUNT = 7
HASHES = st.lists(st.integers(0, 0x7FFFFFFF) | st.integers(0, 20), max_size=40)


def link(slots: IndexSlots, hashes: list[int], first: int = 1) -> list[tuple[int, int, int, int]]:
    keys = b"".join([pack(">qqq", code, 100 * number, 5000 + number) for number, code in enumerate(hashes)])
    return list(iter_unpack(">iqii", slots.link(keys, first, 1000)))


@given(HASHES)
def test_each_entry_leads_to_the_one_before_it_in_its_slot(hashes: list[int]) -> None:
    slots, newest = IndexSlots(COUNT), dict[int, int]()
    for number, (entry, code) in enumerate(zip(link(slots, hashes), hashes, strict=True), start=1):
        assert entry == (code, 100 * (number - 1), 4, newest.get(code % COUNT, 0))
        newest[code % COUNT] = number
    assert [slots.newest(slot) for slot in range(COUNT)] == [newest.get(slot, 0) for slot in range(COUNT)]
    assert slots.used == len(newest) == count_used(slots.content())


@given(HASHES, HASHES)
def test_what_could_not_be_written_is_as_if_it_had_never_come(before: list[int], hashes: list[int]) -> None:
    slots, other = IndexSlots(COUNT), IndexSlots(COUNT)
    for each in (slots, other):
        link(each, before)
    keys = b"".join([pack(">qqq", code, 0, 0) for code in hashes])
    slots.unlink(slots.link(keys, len(before) + 1, 0))
    assert (slots.content(), slots.used) == (other.content(), other.used)


@given(st.lists(st.integers(-0x80000000, 0x7FFFFFFF), max_size=40))
def test_slots_are_found_again_from_entries_damaged_ones_too(hashes: list[int]) -> None:
    slots = IndexSlots(COUNT)
    entries = b"".join([pack(">iqii", code, 0, 0, 0) for code in hashes])
    assert len(entries) == ENTRY_BYTES * len(hashes)
    slots.link_again(entries, 1)
    newest = {code % COUNT: number for number, code in enumerate(hashes, start=1)}
    assert [slots.newest(slot) for slot in range(COUNT)] == [newest.get(slot, 0) for slot in range(COUNT)]


def test_parts_that_changed_are_told_once_and_again_if_they_come_back() -> None:
    slots = IndexSlots(3 << PART_BITS)
    link(slots, [0, 5, 2 << PART_BITS])
    assert slots.take_changed() == [0, 2] and slots.take_changed() == []
    slots.note_changed([2])
    assert slots.take_changed() == [2]
    assert count_used(slots.part(0)) == 2 and len(slots.part(0)) == 4 << PART_BITS
