import pytest

from sparrowmq.broker.metrics.traffic import SAMPLE_PERIOD_S
from tests.broker.handlers.conftest import Desk


@pytest.fixture
def desk(tmp_path, clock):
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


def sums(traffic, name, key):
    found = traffic.of(name, key)
    return None if found is None else (found[0].sum, found[0].avgpt)


async def test_topics_groups_and_the_broker_are_measured(desk):
    """The figures of Apache's BrokerStatsManager, also of what came before the first look."""
    traffic, cluster = desk.traffic, desk.settings.cluster
    before = desk.store.end
    for number in range(6):
        desk.send(b"%d" % number, queue_id=number % 2)
    size = desk.store.end - before
    desk.send(b"later", DELAY="1")
    desk.consumption.count_received("g", "Orders", 3, 0, 300, 0.0025)
    desk.consumption.count_received("g", "Orders", 1, 0, 100, 0.0045)
    desk.consumption.count_received("g", "Orders", 2, 1, 200, 0.0001)
    desk.consumption.count_sent_back("g", "Orders")
    desk.received.value += 7
    await desk.clock.advance(10)
    for _ in range(3):  # the first time finds what was delivered before
        desk.delayed._deliver_levels()
    desk.store.publish()
    await traffic.sample()
    assert sums(traffic, "TOPIC_PUT_NUMS", "Orders") == (7, 1.0)
    orders, average = sums(traffic, "TOPIC_PUT_SIZE", "Orders")
    assert size < orders < 2 * size and average == orders / 7
    assert sums(traffic, "GROUP_GET_NUMS", "Orders@g") == (6, 2.0)
    assert sums(traffic, "GROUP_GET_SIZE", "Orders@g") == (600, 200.0)
    assert sums(traffic, "GROUP_GET_LATENCY", "0@Orders@g") == (6, 3.0)
    assert sums(traffic, "GROUP_GET_LATENCY", "1@Orders@g") == (0, 0.0), "known, and took no millisecond"
    assert sums(traffic, "SNDBCK_PUT_NUMS", "Orders@g") == (1, 1.0)
    assert sums(traffic, "BROKER_PUT_NUMS", cluster) == (8, 0.0), "with the delivery, without an average"
    assert sums(traffic, "BROKER_GET_NUMS", cluster) == (6, 0.0)
    assert sums(traffic, "QUEUE_PUT_NUMS", "SCHEDULE_TOPIC_XXXX@0") == (1, 1.0)
    assert sums(traffic, "QUEUE_PUT_NUMS", "Orders@0") is None, "as in Java"
    for name in ("pulls", "pulls of a queue", "GROUP_GET_FALL_SIZE"):
        assert sums(traffic, name, "Orders@g") is None
    (chore,) = traffic.part().chores
    assert (chore.period_s, chore.do) == (SAMPLE_PERIOD_S, traffic.sample)


async def test_what_was_stored_before_the_start_is_not_counted(tmp_path, clock):
    first = Desk(tmp_path, clock)
    first.send(b"before")
    first.store.close()
    desk = Desk(tmp_path, clock)
    await desk.clock.advance(10)
    await desk.traffic.sample()
    assert sums(desk.traffic, "TOPIC_PUT_NUMS", "Orders") is None
    assert sums(desk.traffic, "TOPIC_PUT_SIZE", "Orders") is None
    desk.store.close()


async def test_a_group_that_rested_and_took_more_is_counted_on(desk):
    await desk.traffic.sample()
    for _ in range(2):
        desk.consumption.count_received("g", "Orders", 5)
        for _ in range(12):
            await desk.clock.advance(10)
            desk.consumption.sample()  # which forgets the pair
            await desk.traffic.sample()
        assert not desk.consumption.counts()
    assert desk.traffic.of("GROUP_GET_NUMS", "Orders@g")[2].sum == 10
