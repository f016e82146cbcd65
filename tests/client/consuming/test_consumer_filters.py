import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until


@pytest.fixture
async def filtering(tmp_path):
    """A client of a cluster whose broker filters by SQL92."""
    async with (
        Cluster(tmp_path / "filtering", property_filter=True) as cluster,
        connect(cluster.namesrv) as client,
    ):
        yield client


async def amounts(mq, *numbers):
    for number in numbers:
        await mq.send("t", b"%d" % number, properties={"amount": str(number)})


@pytest.mark.covers("S-CONS-16")
async def test_a_group_gets_what_its_expression_wants_and_the_expression_can_change(filtering):
    got: list[bytes] = []
    await amounts(filtering, *range(10))
    async with filtering.subscribe(
        "t",
        lambda message: got.append(message.body),
        group="g",
        where="amount BETWEEN 3 AND 5",
        start="earliest",
    ) as consumer:
        await until(lambda: sorted(got) == [b"3", b"4", b"5"])
        await consumer.subscribe("t", where="amount IS NOT NULL AND NOT (amount < 12)")
        await amounts(filtering, 11, 12, 13)
        await until(lambda: len(got) == 5)
    assert sorted(got[3:]) == [b"12", b"13"]


async def test_what_failed_comes_again_past_the_expression(filtering):
    """Its copy in the retry topic is not asked again."""
    deliveries: list[int] = []

    def fail_once(message):
        deliveries.append(message.reconsume_times)
        if len(deliveries) == 1:
            message.retry(delay="1s")

    async with filtering.subscribe("t", fail_once, group="g", where="amount = 5", start="earliest"):
        await amounts(filtering, 4, 5)
        await until(lambda: len(deliveries) == 2)
    assert deliveries == [0, 1]


@pytest.mark.parametrize("ask", [lambda consumer: anext(consumer), lambda consumer: consumer.closed()])
async def test_a_bad_expression_tells_its_place_to_the_caller(filtering, ask):
    await amounts(filtering, 1)
    with pytest.raises(ConfigError, match=r"the SQL92 expression 'amount > > 5' .*line 1, column 10, before '> 5'"):
        async with filtering.subscribe("t", group="g", where="amount > > 5") as consumer:
            await asyncio.wait_for(ask(consumer), 5)


async def test_a_pull_consumer_gets_what_its_expression_wants(filtering):
    await amounts(filtering, *range(10))
    async with filtering.pull_consumer(group="g", start="earliest") as reader:
        reader.assign(await reader.queues("t"), where="amount > 6")
        got: list[bytes] = []
        while len(got) < 3:
            got += [message.body for message in await reader.poll(timeout_s=5)]
    assert sorted(got) == [b"7", b"8", b"9"]
