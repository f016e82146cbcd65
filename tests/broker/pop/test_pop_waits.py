"""Bells of pops that wait."""

from sparrowmq.broker.pop.pop_waits import PopWaits
from tests.store.conftest import stores
from tests.store.stores import message

__all__ = ["stores"]


def rung(waits, topic, group, heard):
    bell = waits.bell(topic, group)
    bell.when(bell.value + 1, lambda _: heard.append(group))


def test_a_message_rings_all_groups_of_its_topic_once(stores):
    with stores.open() as store:
        waits = PopWaits(store)
        heard: list[str] = []
        waits.watch("orders", 4)
        for topic, group in (("orders", "a"), ("orders", "b"), ("bills", "c")):
            rung(waits, topic, group, heard)
        store.append(message(topic="orders", queue_id=2))
        store.dispatch()
        assert sorted(heard) == ["a", "b"]
        rung(waits, "orders", "a", heard)
        store.append(message(topic="orders", queue_id=2))
        store.dispatch()
        assert len(heard) == 2  # the queue is not watched again yet
        waits.watch("orders", 4)
        store.append(message(topic="orders", queue_id=2))
        store.dispatch()
        assert heard[2:] == ["a"]


def test_a_group_can_be_rung_alone(stores):
    with stores.open() as store:
        waits = PopWaits(store)
        heard: list[str] = []
        rung(waits, "orders", "a", heard)
        rung(waits, "orders", "b", heard)
        waits.ring("orders", "b")
        waits.ring("orders", "unknown")
        assert heard == ["b"]
