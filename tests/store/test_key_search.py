"""Searches by key in a store; `test_query_handler.py` shows their limits."""

from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages.record import physical_offset
from sparrowmq.store.key_search import searching
from tests.store.stores import put


def test_a_search_finds_the_newest_records_of_a_key_and_none_without_an_index(stores):
    store = stores.open()
    places = [put(store, b"%d" % number, key="red" if number % 2 else "blue") for number in range(6)]
    store.intake.index_keys()

    def found(index, count):
        steps = searching(index, store.record_at, "Orders", "red", count, 0, 1 << 62)
        return [physical_offset(each) for each in at_once(steps)]

    assert found(store._index, 2) == [places[5].offset, places[3].offset]
    assert found(store._index, 9) == [places[at].offset for at in (5, 3, 1)]
    assert found(store._index, 0) == found(None, 9) == []
