"""Our client with a master and its slave: what results say, and where messages come from when the master is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparrowmq import ProducerSettings, RemoteError, SendFailed, SendStatus, SparrowError, connect
from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.replication import ha_slave
from sparrowmq.broker.replication import state_mirror as mirror
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.store.store_settings import Flush
from tests.broker.conftest import until
from tests.broker.replication.pairs import Pair, pair
from tests.broker.replication.slaves import slave_at
from tests.broker.test_safety import Held


@pytest.mark.covers("S-HA-01")
@pytest.mark.covers("S-PROD-13")
async def test_a_result_says_how_safely_its_message_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"slave_timeout_ms": 300, "safety_timeout_ms": 300, "flush": Flush.SYNC}
    async with pair(tmp_path, **settings) as both, connect(both.namesrv) as mq:
        master = await both.start("master", role=BrokerRole.SYNC_MASTER)
        assert (await mq.send("orders", b"1")).status is SendStatus.SLAVE_NOT_AVAILABLE
        async with slave_at(master.ha_address) as lazy:
            lazy.report(0)
            await lazy.piece()
            assert (await mq.send("orders", b"2")).status is SendStatus.FLUSH_SLAVE_TIMEOUT
        await both.start("slave")
        await both.same()
        await until(lambda: both.log("slave") == both.log("master"))
        assert (await mq.send("orders", b"3")).status is SendStatus.OK
        disk = Held(monkeypatch)
        assert (await mq.send("orders", b"4")).status is SendStatus.FLUSH_DISK_TIMEOUT
        disk.may_go_on.set()
        await both.same()


@pytest.fixture(autouse=True)
def short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_slave, "PAUSE_S", 0.1)
    monkeypatch.setattr(mirror, "PERIOD_S", 0.1)


async def consumed(namesrv: str, group: str, count: int) -> list[bytes]:
    """The bodies of the first messages that a new group gets, in small pulls, so that each queue needs several."""
    bodies: list[bytes] = []
    async with (
        connect(namesrv) as mq,
        mq.subscribe("orders", group=group, start="earliest", pull_batch=10) as messages,
    ):
        async for message in messages:
            bodies.append(message.body)
            message.ack()
            if len(set(bodies)) == count:
                break
    return sorted(bodies)


@pytest.mark.covers("S-HA-01")
@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
async def test_a_slave_serves_reads_without_its_master_and_takes_no_messages(tmp_path: Path, role: BrokerRole) -> None:
    async with pair(tmp_path) as both:
        await both.start("master", role=role)
        await both.start("slave")
        async with connect(both.namesrv) as mq:
            for number in range(8):
                await mq.send("orders", b"%d" % number)
        await both.same()
        await is_mirrored(both)
        await both.stop("master")
        got = await asyncio.wait_for(consumed(both.namesrv, "late", 8), 30)
        assert got == [b"%d" % number for number in range(8)]


async def test_a_consumer_goes_on_from_the_slave_when_its_master_goes(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        async with connect(both.namesrv) as mq:
            for number in range(8):
                await mq.send("orders", b"%d" % number)
            await both.same()
            await is_mirrored(both)
            got: list[bytes] = []
            async with mq.subscribe("orders", group="readers", start="earliest") as messages:
                async for message in messages:
                    got.append(message.body)
                    message.ack()
                    if len(got) == 2:
                        await both.stop("master")
                        async with connect(both.namesrv) as other:  # It is gone, and takes nothing.
                            with pytest.raises(SparrowError):
                                await other.producer("p", ProducerSettings(timeout_s=0.5)).send("orders", b"x")
                    if len(set(got)) == 8:
                        break
        assert sorted(set(got)) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("key", [None, "key"])
async def test_sends_wait_for_a_master_that_is_away_and_keep_their_order(tmp_path: Path, key: str | None) -> None:
    async with pair(tmp_path) as both, connect(both.namesrv) as mq:
        await both.start("master")
        await both.start("slave")
        await mq.admin.create_topic("orders")  # so that name servers know it, whoever goes
        await mq.send("orders", b"0", fifo=key)
        await both.same()
        await both.stop("master")
        await until(lambda: not mq.unanswered)
        producer = mq.producer("patient", ProducerSettings(timeout_s=30))
        sending = [producer.send_soon("orders", b"%d" % number, fifo=key) for number in range(1, 20)]
        await asyncio.sleep(1.5)  # until its route names no master any more
        sending += [producer.send_soon("orders", b"%d" % number, fifo=key) for number in range(20, 30)]
        assert not any(each.done() for each in sending)
        with pytest.raises(SendFailed, match="no route names its master now"):
            await mq.producer("impatient", ProducerSettings(timeout_s=0.4)).send("orders", b"late")
        await both.start("master")
        assert all([(await each).status is SendStatus.OK for each in sending])
        if key:
            queue = (await sending[0]).queue.queue_id
            bodies = await both.bodies("master", queue_id=queue, max_msg_nums=32)
            assert bodies == [b"%d" % number for number in range(30)]


async def test_who_is_far_behind_is_served_by_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, memory_percent=0) as both:
        await both.start("master", slave_reads=True)
        await both.start("slave")
        async with connect(both.namesrv) as mq:
            for number in range(200):
                await mq.send("orders", b"%d" % number)
        await both.same()
        await is_mirrored(both)
        got = await asyncio.wait_for(consumed(both.namesrv, "late", 200), 30)
        told = (await (await both.session("slave")).call(GetBrokerRuntime())).body
        assert len(set(got)) == 200 and int(KVTable.decode(told).table["msgGetTotalTodayNow"]) >= 50


async def is_mirrored(both: Pair) -> None:
    """Return when the slave knows the topic, and the group of `bodies`."""
    for _ in range(200):
        try:
            await both.bodies("slave")
            return
        except RemoteError:  # The topic has not come yet.
            await asyncio.sleep(0.1)
