"""The activity of two brokers, as they report it."""

from __future__ import annotations

import pytest

from sparrowmq.admin import activity as activity_module
from sparrowmq.admin.activity import activity
from sparrowmq.client.client import connect
from sparrowmq.errors import NoBroker
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import BrokerStats, StatsSpan

QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-0", "broker-1")]


@pytest.fixture
async def mq(two):
    async with connect(two.namesrv) as client:
        yield client


async def test_the_greatest_lag_comes_first_over_all_brokers(admin, mq):
    await admin.create_topic("orders", queues=1)
    for name in "ahead", "behind":
        await admin.create_group(name)
        await admin.reset(name, "orders", "latest")
    for queue in QUEUES:
        for _ in range(3):
            await mq.send("orders", b"x", queue=queue)
    await admin.reset("ahead", "orders", "latest")
    found = await activity(admin.servers, None)
    assert [(each.group, each.lag, len(each.queues)) for each in found.groups] == [
        ("behind", 6, 2),
        ("ahead", 0, 2),
    ]
    assert [each.broker for each in found.brokers] == ["broker-0", "broker-1"]
    assert found.missing == {}


async def test_the_busiest_topic_comes_first_with_the_sum_of_its_brokers(admin, monkeypatch):
    for name in "calm", "busy":
        await admin.create_topic(name, queues=1)
    asked = []

    async def traffic(servers, address, name, key):
        asked.append((address, name, key))
        return BrokerStats(StatsSpan(tps=2.5 if key == "busy" else 0.5), stats_day=StatsSpan(sum=7))

    monkeypatch.setattr(activity_module, "traffic", traffic)
    found = await activity(admin.servers, None)
    assert [(each.topic, each.per_second, each.within_a_day) for each in found.topics] == [
        ("busy", 5.0, 14),
        ("calm", 1.0, 14),
    ]
    assert len(asked) == 4 and {name for _, name, _ in asked} == {"TOPIC_PUT_NUMS"}


async def test_a_broker_that_does_not_answer_is_missing_and_the_others_are_shown(admin, two):
    await admin.create_topic("orders", queues=1)
    await two.brokers[1]._server.stop()
    found = await activity(admin.servers, None)
    assert list(found.missing) == ["broker-1"] and found.missing["broker-1"]
    assert [each.is_silent for each in found.brokers] == [False, True]
    assert [each.topic for each in found.topics] == ["orders"]


async def test_another_cluster_is_an_error_of_the_caller(admin):
    with pytest.raises(NoBroker, match="no cluster 'nowhere'"):
        await activity(admin.servers, "nowhere")
