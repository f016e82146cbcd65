"""Brokers that died are remembered, those that were stopped are not."""

import asyncio

import pytest

from sparrowmq.namesrv import namesrv, route_table
from sparrowmq.namesrv.kv import KeyValues
from sparrowmq.namesrv.namesrv import DeadBrokers
from sparrowmq.namesrv.route_table import Routes
from sparrowmq.protocol.names import LOST_BROKERS
from sparrowmq.protocol.requests.bodies import LostBroker
from sparrowmq.testing.clock import ManualClock
from tests.namesrv.test_route_table import A_SLAVE, A, B, announce


@pytest.fixture
def routes():
    return Routes()


@pytest.fixture
def values(tmp_path):
    return KeyValues(tmp_path / "kv.json")


async def remembered(routes, values):
    """What a name server that starts now with these values knows, too."""
    await DeadBrokers(routes, values, ManualClock()).write_changes()
    kept = KeyValues(values.path).namespace(LOST_BROKERS)
    return {name: LostBroker.decode(text.encode()) for name, text in kept.items()}


async def test_a_broker_whose_connection_ended_is_lost_with_its_topics(routes, values):
    announce(routes, A, "orders", "invoices")
    announce(routes, B, "orders")
    routes.forget_connection(A)
    lost = (await remembered(routes, values))["broker-a"]
    assert (lost.cluster, lost.address, set(lost.topics)) == ("East", A.address, {"orders", "invoices"})
    assert lost.since_ms == ManualClock().now_ms()


async def test_only_so_many_lost_brokers_and_topics_are_remembered(routes, values, monkeypatch):
    monkeypatch.setattr(route_table, "MAX_LOST_BROKERS", 3)
    monkeypatch.setattr(namesrv, "MAX_LOST_BROKERS", 2)
    monkeypatch.setattr(route_table, "MAX_LOST_TOPICS", 3)
    for number in range(5):
        broker = A._replace(name=f"broker-{number}", address=f"10.0.1.{number}:1")
        announce(routes, broker, "orders", "invoices")
        routes.forget_connection(broker)
    assert [len(gone.topics) for gone in routes.vanished_brokers.values()] == [2, 1, 0]
    assert list(await remembered(routes, values)) == ["broker-0", "broker-1"]
    assert list(await remembered(routes, values)) == ["broker-0", "broker-1"]


async def test_a_silent_broker_is_lost(routes, values):
    announce(routes, A, "orders")
    routes.expire(lambda heard_s: 1000.0)
    assert list(await remembered(routes, values)) == ["broker-a"]


async def test_a_broker_that_was_stopped_is_not_lost(routes, values):
    announce(routes, A, "orders")
    routes.unregister(A)
    routes.forget_connection(A)
    assert await remembered(routes, values) == {}


async def test_a_dead_master_is_lost_though_its_slave_was_stopped_later(routes, values):
    announce(routes, A, "orders")
    announce(routes, A_SLAVE)
    routes.forget_connection(A)
    assert await remembered(routes, values) == {}, "the slave shows that it has no master"
    routes.unregister(A_SLAVE)
    assert (await remembered(routes, values))["broker-a"].address == A.address


async def test_a_broker_that_is_back_is_forgotten_also_by_the_next_name_server(routes, values):
    announce(routes, A, "orders")
    routes.forget_connection(A)
    assert await remembered(routes, values)
    later = Routes()
    announce(later, B, "orders")
    assert list(await remembered(later, values)) == ["broker-a"]
    announce(later, A, "orders")
    assert await remembered(later, values) == {}


async def test_a_broker_that_an_operator_forgot_stays_forgotten(routes, values):
    announce(routes, A, "orders")
    routes.forget_connection(A)
    watch = DeadBrokers(routes, values, ManualClock())
    await watch.write_changes()
    await values.delete(LOST_BROKERS, "broker-a")
    await watch.write_changes()
    assert values.namespace(LOST_BROKERS) == {}
    announce(routes, A, "orders")
    await watch.write_changes()
    routes.forget_connection(A)
    await watch.write_changes()
    assert list(values.namespace(LOST_BROKERS)) == ["broker-a"]


async def test_the_topics_of_a_large_lost_broker_are_written_in_slices(routes, tmp_path):
    turn, put_at = 0, []

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    class Noted(KeyValues):
        async def put(self, namespace: str, key: str, value: str) -> None:
            put_at.append(turn)
            await super().put(namespace, key, value)

    announce(routes, A, *(f"topic-{number}" for number in range(50_000)))
    routes.forget_connection(A)
    beside = asyncio.create_task(count())
    found = await remembered(routes, Noted(tmp_path / "kv.json"))
    beside.cancel()
    assert len(found["broker-a"].topics) == 50_000
    assert put_at[0] > 3  # it takes 20 ms or more
