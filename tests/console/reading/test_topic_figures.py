import asyncio

import pytest

from sparrowmq.admin import brokers
from sparrowmq.admin.groups import GroupLag
from sparrowmq.console.cluster_view import TimedCache, TopicFigures, figures_of
from sparrowmq.errors import BrokerUnreachable, NoGroup
from sparrowmq.protocol.requests.bodies import BrokerStats, StatsSpan
from sparrowmq.testing import ManualClock


async def test_a_topic_is_counted_at_all_its_masters(look):
    await look.admin.create_topic("orders", queues=1)
    for _ in range(6):
        await look.client.send("orders", b"x")
    found = await figures_of(look.servers, "orders", await look.servers.all_masters())
    assert found.messages == 6


async def test_the_size_is_that_of_the_messages_of_a_day_and_unknown_without_them(monkeypatch, look):
    spans = {"TOPIC_PUT_NUMS": StatsSpan(sum=4, tps=0.5), "TOPIC_PUT_SIZE": StatsSpan(sum=1000)}

    async def traffic(servers, address, name, key):
        return BrokerStats(stats_minute=spans[name], stats_day=spans[name])

    monkeypatch.setattr(brokers, "traffic", traffic)
    await look.admin.create_topic("orders", queues=1)
    for _ in range(6):
        await look.client.send("orders", b"x")
    found = await figures_of(look.servers, "orders", await look.servers.all_masters())
    assert found == TopicFigures(6, 1.0, 250.0) and found.size == 1500
    spans["TOPIC_PUT_SIZE"] = StatsSpan()
    assert (await figures_of(look.servers, "orders", await look.servers.all_masters())).size is None


async def test_a_value_is_read_again_once_it_is_too_old():
    clock, read = ManualClock(), []
    kept = TimedCache[str](clock)

    async def reading(name):
        read.append(name)
        return name.upper()

    assert await kept.read(["a", "b"], 20, reading) == {"a": "A", "b": "B"}
    await clock.advance(15)
    await asyncio.gather(*(kept.read(["b", "c"], 20, reading) for _ in range(3)))
    await clock.advance(10)
    assert await kept.read(["a", "c"], 20, reading) == {"a": "A", "c": "C"}
    assert read == ["a", "b", "c", "a"]
    kept.forget()
    await kept.read(["a"], 300, reading)
    assert read[-1] == "a" and len(read) == 5


@pytest.mark.parametrize(("error", "asked"), [(NoGroup("g"), 100), (BrokerUnreachable("b", "away"), 35)])
async def test_a_refusal_leaves_one_value_out_and_a_broker_that_is_away_is_not_waited_for_again(error, asked):
    read = []

    async def reading(name):
        read.append(name)
        await asyncio.sleep(0)
        raise error

    names = [str(number) for number in range(100)]
    assert await TimedCache[int](ManualClock()).read(names, 20, reading) == dict.fromkeys(names)
    assert len(read) == asked


async def test_the_lags_of_many_groups_cost_one_request_to_each_master(look):
    await look.admin.create_topic("orders", queues=1)
    names = [f"group-{number}" for number in range(40)]
    for name in names[:30]:
        await look.admin.create_group(name)
    for _ in range(3):
        await look.client.send("orders", b"x")
    for name in names[:20]:
        await look.admin.reset(name, "orders", "earliest")
    await look.groups(hidden=True)
    before = look.servers.calls
    found = await look.lags(names)
    assert look.servers.calls - before == 3, "the name server, and each master"
    assert [lag.lag for lag in found.values() if isinstance(lag, GroupLag)] == [3] * 20 + [0] * 10
    assert sum(isinstance(lag, NoGroup) for lag in found.values()) == 10
    single = await look.lags(names[:2])
    assert {name: lag.lag for name, lag in single.items()} == {name: found[name].lag for name in names[:2]}


async def test_members_are_counted_for_the_groups_that_are_shown(look):
    await look.admin.create_group("billing")
    await look.admin.create_topic("orders", queues=1)

    async def handle(message):
        pass

    found: dict[str, int | None] = {}
    async with look.new_client() as mq, mq.subscribe("orders", handle, group="billing"):
        for _ in range(100):
            found = await look.members(["billing"], 0.0)
            if found == {"billing": 1}:
                break
            await asyncio.sleep(0.1)
    assert found == {"billing": 1}


async def test_a_page_of_topics_costs_a_few_requests_for_each_row_and_none_when_it_is_drawn_again(look):
    for number in range(60):
        await look.admin.create_topic(f"topic-{number}", queues=1)
    names = [f"topic-{number}" for number in range(50)]
    await look.topics()
    before = look.servers.calls
    await look.topic_figures(names, 20.0)
    first = look.servers.calls - before
    await look.topic_figures(names, 20.0)
    assert first == 1 + 50 * 2 * 2, "of each master the queues, and what it has received"
    assert look.servers.calls - before - first == 1, "the masters"
