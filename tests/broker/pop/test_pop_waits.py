"""Bells of pops that wait."""

import asyncio

from sparrowmq.broker.pop import popper
from sparrowmq.broker.pop.popper import PopWakeups
from tests.store.conftest import stores
from tests.store.stores import message

__all__ = ["stores"]


def rung(waits, topic, group, heard):
    watermark = waits.watermark(topic, group)
    watermark.when(watermark.value + 1, lambda _: heard.append(group))


def test_a_message_rings_all_groups_of_its_topic_once(stores):
    with stores.open() as store:
        waits = PopWakeups(store)
        heard: list[str] = []
        waits.watch("orders")
        for topic, group in (("orders", "a"), ("orders", "b"), ("bills", "c")):
            rung(waits, topic, group, heard)
        store.append(message(topic="orders", queue_id=2))
        store.publish()
        assert sorted(heard) == ["a", "b"]
        rung(waits, "orders", "a", heard)
        store.append(message(topic="orders", queue_id=2))
        store.publish()
        assert len(heard) == 2  # the queue is not watched again yet
        waits.watch("orders")
        store.append(message(topic="orders", queue_id=2))
        store.publish()
        assert heard[2:] == ["a"]


def test_a_group_can_be_rung_alone(stores):
    with stores.open() as store:
        waits = PopWakeups(store)
        heard: list[str] = []
        rung(waits, "orders", "a", heard)
        rung(waits, "orders", "b", heard)
        waits.wake("orders", "b")
        waits.wake("orders", "unknown")
        assert heard == ["b"]


def test_watching_a_topic_makes_no_queues_and_new_queues_ring(stores):
    with stores.open() as store:
        waits = PopWakeups(store)
        heard: list[str] = []
        waits.watch("orders")
        assert store.queues.ids("orders") == []
        rung(waits, "orders", "a", heard)
        store.append(message(topic="orders", queue_id=65_534))
        store.publish()
        assert heard == ["a"]
        assert waits.queues_of("orders", 65_535) == [65_534]
        assert waits.queues_of("orders", 8) == []


async def test_many_queues_are_watched_in_slices_and_ring_at_the_end(stores, monkeypatch):
    monkeypatch.setattr(popper, "_SLICE_S", 0.0)
    with stores.open() as store:
        waits = PopWakeups(store)
        heard: list[str] = []
        for queue_id in range(3):
            store.queues.obtain("orders", queue_id)
        rung(waits, "orders", "a", heard)
        waits.watch("orders")
        waits.watch("orders")
        assert heard == []
        while not heard:
            await asyncio.sleep(0)
        rung(waits, "orders", "a", heard)
        for queue_id in range(3):
            store.append(message(topic="orders", queue_id=queue_id))
        store.publish()
        assert heard == ["a", "a"]
