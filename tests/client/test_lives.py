"""What our client, brokers and name server do for each other as time passes: routes, heartbeats, offsets, delays.

Each has a clock of its own or shares one, so that a test says whose time passes.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError, InvalidName, NoRoute, SendFailed
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.test_deaths import makers, owned
from tests.interop.servers import OurBroker


async def committed(mq: Client, group: str) -> int:
    return sum(each.committed for each in (await mq.admin.lag(group, "orders")).queues)


@pytest.mark.covers("S-ROUTE-06", "S-THR-01")
async def test_a_broker_that_says_nothing_is_forgotten_and_found_again(tmp_path: Path) -> None:
    """Stopped as by a debugger: its connection is there, and nothing comes."""
    clock = ManualClock()
    async with (
        Namesrv(NamesrvSettings(port=0, kv_path=tmp_path / "kv.json"), clock) as namesrv,
        connect(namesrv.address) as mq,
    ):
        started = await asyncio.to_thread(OurBroker(namesrv.address, tmp_path / "store").__enter__)
        assert started.process is not None
        try:
            await mq.send("orders", b"x")
            await until(lambda: namesrv.routes.route("orders"))
            started.process.send_signal(signal.SIGSTOP)
            await clock.advance(115)
            assert namesrv.routes.route("orders")
            await clock.advance(20)
            async with connect(namesrv.address) as other:
                with pytest.raises(SendFailed, match="none is registered"):
                    await other.send("orders", b"x", timeout_s=0.2)
            started.process.send_signal(signal.SIGCONT)
            await until(lambda: namesrv.routes.route("orders"))
            await mq.send("orders", b"x")
        finally:
            started.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(started.__exit__)


@pytest.mark.covers("S-CFG-05")
@pytest.mark.covers("S-ROUTE-11")
@pytest.mark.covers("S-START-05")
async def test_a_client_learns_of_new_queues_within_30_s_and_reads_them(cluster: Cluster, mq: Client) -> None:
    clock, bodies = ManualClock(), list[bytes]()
    await mq.admin.create_topic("orders", queues=2)
    async with (
        connect(cluster.namesrv, clock=clock) as other,
        other.subscribe("orders", lambda message: bodies.append(message.body), group="g", start="earliest"),
    ):
        assert len(await other.queues("orders")) == 2
        await mq.admin.change_topic("orders", queues=5)
        await mq.send("orders", b"x", queue=MessageQueue("orders", "broker-0", 4))
        await clock.advance(29)
        assert len(await other.queues("orders")) == 2 and not bodies, "nobody pushes"
        await clock.advance(1)
        async with asyncio.timeout(10):
            while len(await other.queues("orders")) != 5:
                await asyncio.sleep(0.001)
        await until(lambda: bodies == [b"x"])


@pytest.mark.covers("S-CONS-12")
async def test_queues_are_shared_out_every_20_s_whoever_forgets_to_tell(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=4)
    clock, bodies = ManualClock(), list[bytes]()
    session = await mq._network.brokers.session(cluster.brokers[0].address)
    mute = GroupConfig("g", notify_consumer_ids_changed_enable=False)
    await session.call(UpdateAndCreateSubscriptionGroup(), mute.encode())
    async with (
        connect(cluster.namesrv, clock=clock) as other,
        other.subscribe("orders", lambda message: bodies.append(message.body), group="g") as first,
    ):
        await until(lambda: owned(first) == 4)
        async with mq.subscribe("orders", group="g"):
            for _ in range(60):  # The last round was some seconds ago, and this one takes a while of real time.
                await clock.advance(1)
                await asyncio.sleep(0.01)
                if owned(first) == 2:
                    break
            assert owned(first) == 2
            (mine, _) = [queue for queue in first.queues if queue.topic == "orders"]
            await mq.send("orders", b"x", queue=mine)
            await until(lambda: bodies == [b"x"])  # Nobody asked it to pull again.


@pytest.mark.covers("S-CONS-10")
async def test_a_pull_brings_as_many_messages_as_are_asked_for(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=1)
    for answer in [mq.send_soon("orders", b"x") for _ in range(70)]:
        await answer
    async with mq.pull_consumer(group="g", start="earliest", pull_batch=32) as reader:
        reader.assign(await reader.queues("orders"))
        counts: list[int] = []
        while sum(counts) < 70:
            counts.append(len(await reader.poll()))
    assert counts[0] == 32 and sum(counts) == 70


@pytest.mark.covers("S-CFG-06", "S-START-03", "S-START-06", "S-CONS-13")
async def test_who_beats_every_30_s_stays_and_who_does_not_is_gone_after_two_minutes(tmp_path: Path) -> None:
    clock, stopped = ManualClock(), ManualClock()
    async with (
        Cluster(tmp_path, clock=clock) as cluster,
        connect(cluster.namesrv, client_id="1.1.1.1@living", clock=clock) as living,
        connect(cluster.namesrv, client_id="1.1.1.1@silent", clock=stopped) as silent,
        connect(cluster.namesrv) as mq,
    ):
        await mq.admin.create_topic("orders")
        async with living.subscribe("orders", group="g"), silent.subscribe("orders", group="g"):
            assert len((await mq.admin.group("g")).members) == 2, "the first beat was sent at the start"
            for _ in range(4):
                await clock.advance(30)
                assert "1.1.1.1@living" in (await mq.admin.group("g")).members
            await clock.advance(30)
            assert list((await mq.admin.group("g")).members) == ["1.1.1.1@living"]


def reached(handled: list[bytes], count: int) -> bool:
    return len(handled) == count


@pytest.mark.covers("S-CFG-07", "S-START-07")
async def test_offsets_are_committed_every_5_s(cluster: Cluster, mq: Client) -> None:
    clock = ManualClock()
    await mq.admin.create_topic("orders", queues=1)
    handled: list[bytes] = []
    async with (
        connect(cluster.namesrv, clock=clock) as other,
        other.subscribe("orders", lambda message: handled.append(message.body), group="g", start="earliest"),
    ):
        for count in (1, 2):
            await mq.send("orders", b"x")
            await until(partial(reached, handled, count))
            await clock.advance(5)
            async with asyncio.timeout(10):
                while await committed(mq, "g") != count:
                    await asyncio.sleep(0.001)


@pytest.mark.covers("S-ROUTE-01", "S-PROD-08", "S-PROD-09")
@pytest.mark.covers("S-ROUTE-02")
@pytest.mark.covers("S-START-02")
@pytest.mark.parametrize(("most", "made"), [(8, 4), (2, 2)])
async def test_a_topic_made_by_a_send_has_the_lesser_of_both_counts(tmp_path: Path, most: int, made: int) -> None:
    async with Cluster(tmp_path, topic_queues=most) as cluster, connect(cluster.namesrv) as mq:
        assert len(await mq.queues("TBW102")) == most
        await mq.send("made", b"x")
        await until(lambda: cluster._namesrv.routes.route("made"))
        assert len((await mq.admin.topic("made")).queues) == made


@pytest.mark.covers("S-ROUTE-05")
async def test_without_automatic_topics_a_client_is_told_that_there_is_none(tmp_path: Path) -> None:
    async with Cluster(tmp_path, auto_create_topic=False) as cluster, connect(cluster.namesrv) as mq:
        with pytest.raises(NoRoute, match="orders"):
            await mq.send("orders", b"x")
        await mq.admin.create_topic("orders")
        await mq.send("orders", b"x")


@pytest.mark.covers("S-ROUTE-07", "S-ROUTE-08")
async def test_a_topic_shrinks_without_loss_by_being_written_to_less_first(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=4)
    for number, queue in enumerate(await mq.queues("orders")):
        await mq.send("orders", b"%d" % number, queue=queue)
    await mq.admin.change_topic("orders", write_queues=2)
    async with connect(cluster.namesrv) as other:
        assert {(await other.send("orders", b"new")).queue.queue_id for _ in range(8)} == {0, 1}
        async with other.subscribe("orders", group="g", start="earliest") as consumer:
            bodies = [(await anext(aiter(consumer))).body for _ in range(12)]
    assert sorted(bodies) == [b"0", b"1", b"2", b"3"] + [b"new"] * 8


@pytest.mark.covers("S-ROUTE-09")
async def test_a_topics_permission_is_to_write_to_read_or_both(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=1)
    await mq.send("orders", b"x")
    perms: list[tuple[Literal["r", "w", "rw"], bool, bool]] = [
        ("r", False, True),
        ("w", True, False),
        ("rw", True, True),
    ]
    for perm, writes, reads in perms:
        await mq.admin.change_topic("orders", perm=perm)
        async with connect(cluster.namesrv) as other:
            if writes:
                await other.send("orders", b"x")
            else:
                with pytest.raises((SendFailed, NoRoute)):
                    await other.send("orders", b"x")
            async with other.pull_consumer(group=f"of-{perm}", start="earliest") as reader:
                queues = await reader.queues("orders")
                assert bool(queues) == reads
                if reads:
                    reader.assign(queues)
                    assert [each.body for each in await reader.poll()][:1] == [b"x"]


@pytest.mark.covers("S-RETRY-03")
@pytest.mark.covers("S-RETRY-04")
async def test_a_group_has_its_retry_topic_with_its_first_heartbeat(cluster: Cluster, mq: Client) -> None:
    await mq.admin.create_topic("orders")
    assert cluster._namesrv.routes.route("%RETRY%g") is None
    async with mq.subscribe("orders", group="g") as consumer:
        assert cluster._namesrv.routes.route("%RETRY%g")
        await until(lambda: any(queue.topic == "%RETRY%g" for queue in consumer.queues))
    assert [group for group in await mq.admin.groups() if group == "g"] == ["g"]


@pytest.mark.covers("S-START-11")
@pytest.mark.covers("S-PROD-02")
async def test_a_producer_group_is_one_producers_of_a_client_and_known_to_brokers(cluster: Cluster, mq: Client) -> None:
    for name in ("", "DEFAULT_PRODUCER"):
        with pytest.raises(InvalidName):
            mq.producer(group=name)
    assert await makers(cluster) == 0
    async with connect(cluster.namesrv) as other:
        await other.producer(group="makers").send("orders", b"x")
        with pytest.raises(ConfigError, match="has a producer of group makers already"):
            other.producer(group="makers")
        assert await makers(cluster) == 1
    await until_async(lambda: makers(cluster), 0)


async def until_async(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    async with asyncio.timeout(10):
        while await count() != wanted:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def delivered(cluster: Cluster, bodies: list[bytes]) -> AsyncIterator[Client]:
    """A client whose consumer keeps what it is given."""

    def keep(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    async with (
        connect(cluster.namesrv) as mq,
        mq.subscribe("orders", keep, group="g", start="earliest"),
    ):
        yield mq


@pytest.mark.covers("S-DELAY-02", "S-DELAY-06")
@pytest.mark.covers("S-DELAY-04")
async def test_messages_of_a_level_come_at_their_times_in_their_order(tmp_path: Path) -> None:
    clock, bodies = ManualClock(), list[bytes]()
    async with Cluster(tmp_path, clock=clock) as cluster:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with delivered(cluster, bodies) as mq:
            await mq.send("orders", b"10 s", delay_level=3)
            await mq.send("orders", b"5 s", delay_level=2)
            await clock.advance(2)
            await mq.send("orders", b"5 s, two later", delay_level=2)
            await mq.send("orders", b"now")
            for wait_s, expected in ((0, b"now"), (3, b"5 s"), (2, b"5 s, two later"), (3, b"10 s")):
                if wait_s:
                    await clock.advance(wait_s - 1)
                    assert expected not in bodies
                    await clock.advance(1.5 if wait_s < 3 else 1)
                await until(partial(bodies.__contains__, expected))
    assert bodies == [b"now", b"5 s", b"5 s, two later", b"10 s"]


@pytest.mark.covers("S-DELAY-05")
async def test_how_far_each_level_came_is_saved_every_10_s(tmp_path: Path) -> None:
    clock, file = ManualClock(), tmp_path / "broker-0" / "config" / "delayOffset.json"
    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("orders", b"x", delay_level=2)
        await clock.advance(9)
        assert not file.exists()
        await clock.advance(1)
        await until(file.exists)
        await until(lambda: json.loads(file.read_text())["offsetTable"] == {"2": 1})


@pytest.mark.covers("S-DELAY-05")
async def test_what_waits_outlasts_a_restart_and_comes_once(tmp_path: Path) -> None:
    clock, bodies = ManualClock(), list[bytes]()
    async with Cluster(tmp_path, clock=clock) as cluster:
        async with connect(cluster.namesrv) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with delivered(cluster, bodies) as mq:
            await mq.send("orders", b"before", delay_level=2)
            await mq.send("orders", b"after", delay_level=3)
            await clock.advance(6)
            await until(lambda: bodies == [b"before"])
    async with Cluster(tmp_path, clock=clock) as cluster, delivered(cluster, bodies) as mq:
        await clock.advance(5)
        await until(lambda: b"after" in bodies)
        await mq.send("orders", b"last")
        await until(lambda: b"last" in bodies)
    assert bodies == [b"before", b"after", b"last"]
