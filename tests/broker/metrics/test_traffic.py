import pytest

from sparrowmq.broker.metrics.spans import SAMPLE_PERIOD_S
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path, clock):
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


async def test_topics_groups_and_the_broker_are_measured_without_counting_messages(desk):
    traffic, cluster = desk.traffic, desk.settings.cluster
    desk.send(b"before")
    await traffic.sample()
    for number in range(6):
        desk.send(b"%d" % number, queue_id=number % 2)
    desk.consumption.took("g", "Orders", 4)
    desk.received.value += 6
    await desk.clock.advance(10)
    await traffic.sample()
    asked = [
        ("TOPIC_PUT_NUMS", "Orders"),
        ("GROUP_GET_NUMS", "Orders@g"),
        ("BROKER_PUT_NUMS", cluster),
        ("BROKER_GET_NUMS", cluster),
    ]
    assert [traffic.of(name, key)[2].sum for name, key in asked] == [6, 4, 6, 4]
    assert traffic.of("TOPIC_PUT_SIZE", "Orders") is None
    (chore,) = traffic.part().chores
    assert (chore.period_s, chore.do) == (SAMPLE_PERIOD_S, traffic.sample)


async def test_a_group_that_rested_and_took_more_is_counted_on(desk):
    await desk.traffic.sample()
    for _ in range(2):
        desk.consumption.took("g", "Orders", 5)
        for _ in range(12):
            await desk.clock.advance(10)
            desk.consumption.sample()  # which forgets the pair
            await desk.traffic.sample()
        assert not desk.consumption.counts()
    assert desk.traffic.of("GROUP_GET_NUMS", "Orders@g")[2].sum == 10
