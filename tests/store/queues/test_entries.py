"""Entries of a queue, as they were read."""

import pytest

from sparrowmq.store.layout import ENTRY, GAP_ENTRY
from sparrowmq.store.queues.entries import GAP_SIZE, Entries, Entry, pack

THREE = [Entry(0, 100, -1), Entry(1 << 40, 200, 2**62), Entry(1 << 41, 300, -(2**63))]


def test_entries_are_what_was_packed():
    content = pack([number for entry in THREE for number in entry])
    assert content == b"".join(ENTRY.pack(*entry) for entry in THREE)
    entries = Entries(content)
    assert (len(entries), list(entries)) == (3, THREE)
    assert [entries.offset(i) for i in range(3)] == [entry.offset for entry in THREE]
    assert [entries.size(i) for i in range(3)] == [100, 200, 300]
    assert [entries.tags_code(i) for i in range(3)] == [entry.tags_code for entry in THREE]
    assert (entries.begin, entries.end, entries.size_bytes) == (0, (1 << 41) + 300, 600)
    assert entries.columns() == ((0, 1 << 40, 1 << 41), (100, 200, 300))


def test_no_entries_are_false_and_have_no_first_one():
    none = Entries(b"")
    assert not none
    assert (len(none), list(none), none.size_bytes) == (0, [], 0)
    with pytest.raises(IndexError):
        none[0]


def test_an_entry_without_a_message_is_a_gap():
    entries = Entries(pack([7, 100, 0]) + GAP_ENTRY)
    assert [entries.is_gap(i) for i in range(2)] == [False, True] == [entry.is_gap for entry in entries]
    assert entries.size_bytes >= GAP_SIZE
