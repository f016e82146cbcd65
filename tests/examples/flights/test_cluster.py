import pytest

from examples.flights.cluster import DemoCluster
from sparrowmq.client import blocking_client as sync
from sparrowmq.store.store_settings import Flush


@pytest.fixture
def cluster(tmp_path):
    with DemoCluster(tmp_path) as cluster:
        yield cluster


def test_the_broker_syncs_before_it_confirms(cluster):
    assert cluster.cluster.brokers[0].settings.flush is Flush.SYNC


def test_a_topic_has_its_queues_at_once(cluster):
    cluster.create_topic("flights", 4)
    with sync.connect(cluster.namesrv) as mq:
        assert [queue.queue_id for queue in mq.queues("flights")] == [0, 1, 2, 3]


def test_stored_counts_the_messages_of_all_queues(cluster):
    cluster.create_topic("flights", 4)
    assert cluster.stored("flights", 4) == 0
    with sync.connect(cluster.namesrv) as mq:
        for _ in range(10):
            mq.send("flights", b"x")
    assert cluster.stored("flights", 4) == 10


def test_addresses_are_of_this_machine(cluster):
    assert cluster.namesrv.startswith("127.0.0.1:")
    assert cluster.broker.startswith("127.0.0.1:")
    assert cluster.broker != cluster.namesrv
