"""Searches by key in a store; `test_query_handler.py` shows their limits."""

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages.record import physical_offset
from sparrowmq.store import key_search
from sparrowmq.store.key_search import find_by_unique_id, search_steps
from tests.store.stores import put


def test_a_search_finds_the_newest_records_of_a_key_and_none_without_an_index(stores):
    store = stores.open()
    places = [put(store, b"%d" % number, key="red" if number % 2 else "blue") for number in range(6)]
    store._queue_builder.index_keys()

    def found(index, count):
        steps = search_steps(index, store.record_at, "Orders", "red", count, 0, 1 << 62)
        return [physical_offset(each) for each in at_once(steps)]

    assert found(store._index, 2) == [places[5].offset, places[3].offset]
    assert found(store._index, 9) == [places[at].offset for at in (5, 3, 1)]
    assert found(store._index, 0) == found(None, 9) == []


@pytest.mark.parametrize("limit", ["MOST_READ_AT_ONCE", "MOST_BYTES_AT_ONCE", "MOST_AT_ONCE"])
def test_a_search_without_a_pause_is_short_or_refuses(stores, monkeypatch, limit):
    store = stores.open()
    places = [put(store, b"%d" % number, unique_key="id") for number in range(6)]

    def found():
        return [physical_offset(each) for each in store.find_by_unique_id("Orders", "id", 0, 1 << 62)]

    assert found() == [each.offset for each in reversed(places)]
    assert store.find_by_unique_id("Orders", "other", 0, 1 << 62) == []
    monkeypatch.setattr(key_search, limit, 5)
    with pytest.raises(BadStore, match="too many messages have ids with the hash of id"):
        found()


def test_a_unique_id_is_no_key_and_needs_an_index(stores):
    store = stores.open()
    put(store, b"x", key="id")
    assert store.find_by_unique_id("Orders", "id", 0, 1 << 62) == []
    with pytest.raises(BadStore, match="messageIndexEnable is false"):
        find_by_unique_id(None, store.record_at, "Orders", "id", 0, 1 << 62)
