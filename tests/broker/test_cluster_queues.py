"""The queues of a topic at all brokers, asked of real name servers."""

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.broker.handlers import assignment_handler
from sparrowmq.broker.handlers.assignment_handler import ClusterQueues, queues_of
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import BrokerRoute, QueueRoute, TopicRoute
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster


@pytest.fixture
async def pool():
    pool = Pool(SystemClock())
    yield pool
    pool.close()
    await pool.wait_until_ended()


def test_only_queues_that_can_be_read_count():
    brokers = [BrokerRoute("c", "b", {0: "h:1"}), BrokerRoute("c", "a", {1: "h:2"}), BrokerRoute("c", "gone")]
    rows = [
        QueueRoute("b", 2, 9, 6),
        QueueRoute("a", 1, 1, 4),
        QueueRoute("gone", 4, 4, 6),
        QueueRoute("b", 4, 4, 2),
    ]
    assert queues_of("T", TopicRoute(brokers, rows)) == [
        MessageQueue("T", "a", 0),
        MessageQueue("T", "b", 0),
        MessageQueue("T", "b", 1),
    ]


async def test_queues_of_all_brokers_are_found_and_kept_for_a_while(tmp_path, pool):
    clock = ManualClock()
    async with Cluster(tmp_path, brokers=2) as cluster, Admin(cluster.namesrv) as admin:
        await admin.create_topic("orders", queues=2)
        queues = ClusterQueues(["127.0.0.1:1", cluster.namesrv], pool, clock)
        both = [MessageQueue("orders", f"broker-{broker}", queue) for broker in range(2) for queue in range(2)]
        assert await queues.readable("orders") == both
        assert await queues.readable("missing") is None
        await admin.change_topic("orders", queues=3)
        assert await queues.readable("orders") == both
        await clock.advance(assignment_handler.CACHE_S)
        assert len(await queues.readable("orders") or ()) == 6
    await clock.advance(assignment_handler.CACHE_S)
    assert len(await queues.readable("orders") or ()) == 6, "no name server answers any more"
    assert await queues.readable("other") is None
