import pytest

from sparrowmq.admin import brokers
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.history import History
from sparrowmq.console.samples import TopicCounts
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.testing import Cluster, ManualClock


@pytest.fixture
async def counted(tmp_path):
    """Two brokers under a clock, the console's look at them, and who counts."""
    clock = ManualClock()
    async with Cluster(tmp_path / "two", 2, clock) as cluster, ClusterView(cluster.namesrv) as look:
        yield cluster, clock, look, TopicCounts(look, History(SystemClock()), SystemClock())


async def test_topics_are_counted_over_all_brokers_and_the_greatest_come_first(counted):
    _, clock, look, counting = counted
    for topic in ("orders", "payments", "idle"):
        await look.admin.create_topic(topic, queues=1)
    await clock.advance(10)
    for topic, count in (("orders", 5), ("payments", 8)):
        for _ in range(count):
            await look.client.send(topic, b"x")
    await clock.advance(10)
    assert not counting.is_complete
    await counting.round()
    assert counting.is_complete and counting.failure is None
    assert counting.top(10) == [("payments", 8), ("orders", 5)], "of both brokers; none that took nothing"
    assert counting.top(1) == [("payments", 8)]
    masters = [each.address for each in await look.brokers()]
    assert len({name for name, _ in counting.top(10)} & {each.name for each in await look.brokers()}) == 0
    found = [await brokers.traffic(look.servers, at, "TOPIC_PUT_NUMS", "orders") for at in masters]
    assert sum(each.sum_of_day for each in found) == 5 and all(each.sum_of_day for each in found)


async def test_what_topics_take_in_a_second_goes_to_the_history(counted):
    _, clock, look, _ = counted
    history = History(SystemClock())
    counting = TopicCounts(look, history, SystemClock())
    await look.admin.create_topic("orders", queues=1)
    await clock.advance(10)
    for _ in range(6):
        await look.client.send("orders", b"x")
    await clock.advance(10)
    await counting.round()
    ((_, rate),) = history.points("topic", "orders", history.today())
    assert rate is not None and 0.0 < rate <= 0.6
    assert history.names("topic", history.today()) == ["orders"], "and not those of RocketMQ itself"


async def test_a_broker_that_does_not_answer_is_told_and_the_others_count(counted):
    cluster, clock, look, counting = counted
    await look.admin.create_topic("orders", queues=1)
    await clock.advance(10)
    for _ in range(4):
        await look.client.send("orders", b"x")
    await clock.advance(10)
    await look.topics()
    await cluster.brokers[1].__aexit__(None, None, None)
    gone = RegisterBroker("broker-1", "127.0.0.1:9", "DefaultCluster", "", 0)
    await look.servers.network.name_servers.call(gone, timeout_s=5.0)
    await counting.round()
    assert counting.top(10) == [("orders", 2)]
    assert isinstance(counting.failure, BrokerUnreachable)
