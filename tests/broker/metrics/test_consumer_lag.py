"""How much each topic holds, and how far each group is."""

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients
from sparrowmq.broker.group_lags import GroupLags
from sparrowmq.broker.metrics.consumer_lag import GroupProgress, LagLookup
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.topics import Topics
from sparrowmq.loop.slices import run_to_end
from sparrowmq.testing import ManualClock
from tests.store.stores import Stores, put


@pytest.fixture
def stores(tmp_path):
    stores = Stores(tmp_path)
    yield stores
    stores.check()


@pytest.fixture
def offsets(tmp_path):
    return Offsets(tmp_path / "consumerOffset.json")


def progress_of(store, offsets, folder):
    clients = Clients(ManualClock())
    topics = Topics(folder / "topics.json", BrokerSettings(name="broker-a"), ManualClock())
    return LagLookup(store, offsets, GroupLags(store, topics, offsets, clients, PopTable()), clients)


async def test_a_topic_ends_where_all_of_its_queues_do(stores, offsets, tmp_path):
    store = stores.open()
    for queue_id in (0, 0, 1):
        put(store, topic="Orders", queue_id=queue_id)
    put(store, topic="Bills")
    store.publish()
    ends, sizes = await run_to_end(progress_of(store, offsets, tmp_path).of_topics())
    assert ends == {"Orders": 3, "Bills": 1}
    assert sizes.keys() == ends.keys() and sum(sizes.values()) == store.end


async def test_a_group_lags_by_what_it_has_not_consumed(stores, offsets, tmp_path):
    store = stores.open()
    for queue_id in (0, 0, 1):
        put(store, topic="Orders", queue_id=queue_id)
    store.publish()
    offsets.commit("g", "Orders", 0, 1)
    offsets.commit("g", "Orders", 1, 5)  # ahead of the queue, as after a power cut
    offsets.commit("other", "Gone", 0, 7)
    found = await run_to_end(progress_of(store, offsets, tmp_path).of_groups())
    assert found == [GroupProgress("g", "Orders", 6, 1), GroupProgress("other", "Gone", 7, 0)]


async def test_the_oldest_message_before_a_group_is_the_first_that_is_kept(stores, offsets, tmp_path):
    clock = ManualClock()
    store = stores.open(clock=clock)
    times = []
    for _ in range(3):
        put(store, topic="Orders")
        store.publish()
        times.append(clock.now_ms())
        await clock.advance(60)
    offsets.commit("first", "Orders", 0, 0)
    offsets.commit("second", "Orders", 0, 1)
    offsets.commit("done", "Orders", 0, 3)
    progress = progress_of(store, offsets, tmp_path)
    groups = await run_to_end(progress.of_groups())
    found = {each.group: when for each, when in await progress.waiting_since(groups, 10)}
    assert found == {"first": times[0], "second": times[1]}
    assert [each.group for each, _ in await progress.waiting_since(groups, 1)] == ["first"]


async def test_a_group_with_thousands_of_queues_is_looked_up_in_slices(stores, offsets, tmp_path):
    store = stores.open()
    for queue_id in range(1000):
        store.queues.obtain("Orders", queue_id)
        offsets.commit("g", "Orders", queue_id, 2)
    progress = progress_of(store, offsets, tmp_path)
    assert sum(1 for _ in progress.of_groups()) >= 1000
    [found] = await run_to_end(progress.of_groups())
    assert (found.committed, found.lag) == (2000, 0)
    assert sum(1 for _ in progress._oldest_ms(found)) >= 1000
