"""Records as consumers that pop see them."""

import pytest

from sparrowmq.broker.pop.popper import with_deliveries, with_handle
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from tests.store.conftest import stores

__all__ = ["stores"]

V4, V6 = bytes((127, 0, 0, 1, 0, 0, 10, 0)), bytes(16) + bytes((0, 0, 10, 0))


def stored(topic="%RETRY%g_orders", host=V4, **properties):
    return Entry(topic, 3, b"body", Properties(render(properties)), 7, host, reconsume_times=2)


@pytest.fixture(params=[V4, V6], ids=["IPv4", "IPv6"])
def view(request, stores):
    return _record(stores, stored(host=request.param, TAGS="a"))


def _record(stores, entry):
    store = stores.open()
    store.append(entry)
    store.publish()
    return store.read(entry.topic, 3, 0, 1).views[0]


def test_a_record_counts_its_deliveries(view):
    assert with_deliveries(view, 0) is view
    again = record.decode(with_deliveries(view, 3))
    assert again.reconsume_times == 5
    assert (again.body, again.topic) == (b"body", "%RETRY%g_orders")
    assert record.decode(view).reconsume_times == 2


@pytest.mark.parametrize("topic", ["orders", "o" * 127])
def test_a_record_gets_another_topic_and_a_handle(view, topic):
    shown = with_handle(view, topic, "1 2 3 4 1 b 0 9")
    before, after = record.decode(view), record.decode(shown)
    assert after.topic == topic
    assert after.properties["POP_CK"] == "1 2 3 4 1 b 0 9"
    assert after.properties["TAGS"] == "a"
    assert (after.body, after.queue_id, after.queue_offset) == (b"body", 3, before.queue_offset)
    assert [len(each) for each in record.walk(bytes(shown))] == [len(shown)]


def test_a_record_without_properties_gets_a_handle(stores):
    assert record.decode(with_handle(_record(stores, stored()), "t", "h")).properties["POP_CK"] == "h"
