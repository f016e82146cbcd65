import itertools

import msgspec
import pytest

from examples.flights.cluster import DemoCluster
from examples.flights.flight_book import FlightBook
from examples.flights.replay import Replay, queue_of
from examples.flights.stages import Stage
from sparrowmq.client.client import connect
from sparrowmq.errors import NoRoute, SendFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.background import BackgroundCluster

COUNT = 3000
QUEUES = [MessageQueue("flights", "broker-0", number) for number in range(4)]


@pytest.fixture(scope="module")
def flights():
    return list(FlightBook(COUNT))


@pytest.fixture
def cluster(tmp_path):
    with DemoCluster(tmp_path) as cluster:
        cluster.create_topic("flights", 4)
        yield cluster


async def consumed(cluster, count):
    """The messages in the order of their queues, with one queue after the other."""
    messages = []
    async with (
        connect(cluster.namesrv) as mq,
        mq.subscribe("flights", group="readers", start="earliest") as consumer,
    ):
        async for message in consumer:
            message.ack()
            messages.append(message)
            if len(messages) == count:
                break
    return sorted(messages, key=lambda message: (message.queue.queue_id, message.offset))


@pytest.mark.slow
async def test_every_flight_is_stored_once_in_the_order_of_its_aircraft(cluster, flights):
    stage = Stage("sent")
    async with connect(cluster.namesrv) as mq:
        await Replay(mq, "flights", stage).run(flights)
    assert stage.done == cluster.stored("flights", 4) == COUNT
    assert stage.size_bytes == sum(len(flight.body()) for flight in flights)

    by_aircraft: dict[str, list[int]] = {}
    queues: dict[str, set[int]] = {}
    for message in await consumed(cluster, COUNT):
        row = message.json()
        by_aircraft.setdefault(row["aircraft"], []).append(row["sequence"])
        queues.setdefault(row["aircraft"], set()).add(message.queue.queue_id)
    assert all(sequences == sorted(sequences) for sequences in by_aircraft.values())
    assert all(len(numbers) == 1 for numbers in queues.values())
    assert sorted(itertools.chain(*by_aircraft.values())) == list(range(COUNT))


async def test_a_message_has_carrier_tail_number_and_delays(cluster, flights):
    nameless = next(flight for flight in FlightBook(20_000) if flight.tailnum is None)
    async with connect(cluster.namesrv) as mq:
        await Replay(mq, "flights", Stage("sent")).run([flights[0], nameless])
    messages = {message.json()["sequence"]: message for message in await consumed(cluster, 2)}
    first, without = messages[0], messages[nameless.sequence]
    assert (first.tag, first.keys) == ("UA", ["N14228"])
    assert (first.properties["dep_delay"], first.properties["arr_delay"]) == ("2", "11")
    assert without.keys == []
    assert "dep_delay" not in without.properties


async def set_topic(cluster, *, queues=4, perm=Perm.READ_WRITE):
    """What an operator may do at any moment."""
    pool = Pool(SystemClock())
    session = await pool.session(cluster.broker)
    await session.call(
        UpdateAndCreateTopic(
            topic="flights",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            default_topic="flights",
        )
    )
    pool.close()


async def test_a_flight_that_fails_ends_the_replay(tmp_path, flights):
    too_large = msgspec.structs.replace(flights[1500], dest="x" * 100_000)
    stage = Stage("sent")
    with DemoCluster(tmp_path, max_message_bytes=64 << 10) as cluster:
        cluster.create_topic("flights", 4)
        async with connect(cluster.namesrv) as mq:
            with pytest.raises(SendFailed, match=r"stopped after \d+ flights: .* maxMessageSize is") as failed:
                await Replay(mq, "flights", stage).run([*flights[:1500], too_large, *flights[1501:]])
        assert f"after {stage.done} flights" in str(failed.value)
        stored = cluster.stored("flights", 4)
        assert 0 < stage.done <= stored < COUNT
        found: dict[MessageQueue, list[int]] = {queue: [] for queue in QUEUES}
        for message in await consumed(cluster, stored):
            found[message.queue].append(message.json()["sequence"])
    for queue, sequences in found.items():
        wanted = [flight.sequence for flight in flights if queue_of(flight.aircraft, QUEUES) == queue]
        assert sequences == wanted[: len(sequences)], "nothing is missing before what was stored"


async def test_a_topic_that_takes_no_messages_is_told(cluster, flights):
    cluster.run(set_topic(cluster, perm=Perm.READ))
    async with connect(cluster.namesrv) as mq:
        with pytest.raises(SendFailed, match="no queue of topic flights takes messages"):
            await Replay(mq, "flights", Stage("sent")).run(flights)


async def test_an_unknown_topic_is_told(tmp_path, flights):
    with BackgroundCluster(tmp_path, auto_create_topic=False) as cluster:
        async with connect(cluster.namesrv) as mq:
            with pytest.raises(NoRoute, match="no route for topic 'flights'"):
                await Replay(mq, "flights", Stage("sent")).run(flights)


def test_aircraft_spread_over_all_queues_and_each_stays_on_one():
    chosen = [queue_of(f"N{number}", QUEUES) for number in range(100)]
    assert set(chosen) == set(QUEUES)
    assert chosen == [queue_of(f"N{number}", QUEUES) for number in range(100)]


def test_the_queue_of_an_aircraft_is_the_same_in_every_process():
    assert queue_of("N14228", QUEUES).queue_id == 2  # crc32 is 0x8505E96E
