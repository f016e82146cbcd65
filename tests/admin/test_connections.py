"""Clients that are online, at two brokers; one of the brokers dies."""

from __future__ import annotations

from sparrowmq.admin.activity import online_clients
from sparrowmq.client.client import connect
from tests.client.conftest import until


async def test_each_client_is_shown_once_with_its_connections(admin, two):
    async with connect(two.namesrv) as mq:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        await admin.create_group("idle")
        async with mq.subscribe("orders", lambda _: None, group="billing") as consumer:
            await until(lambda: len(consumer.queues) >= 2)
            found, failures = await online_clients(admin.servers, None)
        assert failures == {}
        assert [(each.role, each.group, each.client_id, each.language) for each in found] == [
            ("producer", "CLIENT_INNER_PRODUCER", mq.client_id, "PYTHON"),
            ("consumer", "billing", mq.client_id, "PYTHON"),
        ]
        assert set(found[1].addresses) == {"broker-0", "broker-1"}
        assert len(set(found[1].addresses.values())) == 2 and all(":" in each for each in found[1].addresses.values())


async def test_a_broker_that_does_not_answer_is_missing_by_name(admin, two):
    async with connect(two.namesrv) as mq:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        async with mq.subscribe("orders", lambda _: None, group="billing") as consumer:
            await until(lambda: len(consumer.queues) >= 2)
            await two.brokers[1]._server.stop()
            found, failures = await online_clients(admin.servers, None)
    assert list(failures) == ["broker-1"]
    assert [(each.group, list(each.addresses)) for each in found] == [
        ("CLIENT_INNER_PRODUCER", ["broker-0"]),
        ("billing", ["broker-0"]),
    ]


async def test_a_namespace_shows_its_own_clients_only(two):
    async with connect(two.namesrv, namespace="shop") as mq, connect(two.namesrv) as other:
        await mq.admin.create_topic("orders", queues=1)
        await mq.admin.create_group("billing")
        await other.admin.create_group("foreign")
        await other.admin.create_topic("foreign", queues=1)
        async with (
            mq.subscribe("orders", lambda _: None, group="billing") as consumer,
            other.subscribe("foreign", lambda _: None, group="foreign") as second,
        ):
            await until(lambda: len(consumer.queues) >= 2 and len(second.queues) >= 2)
            inside, _ = await online_clients(mq.admin.servers, None)
            everywhere, _ = await online_clients(other.admin.servers, None)
    assert {each.group for each in inside} == {"billing"}
    assert {each.group for each in everywhere} == {"foreign", "shop%billing", "CLIENT_INNER_PRODUCER"}
