"""What a broker does at the same time, for many, and by itself."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.client import connect
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import live_broker, pull_request, send_request


@pytest.mark.covers("S-THR-02")
async def test_who_pulls_without_end_starves_nobody(tmp_path: Path) -> None:
    """One peer asks for 100 MB at once; others are answered while most of that is still to come."""
    async with live_broker(tmp_path) as live:
        for _ in range(32):
            await live.send(bytes(8000))
        pool = Pool(SystemClock())
        other = await pool.session(live.broker.address)
        pulls = [live.session.call(pull_request("orders"), timeout_s=60) for _ in range(400)]
        await asyncio.gather(
            other.call(HeartBeat(), Heartbeat("c@1").encode()), other.call(send_request("others"), b"x")
        )
        figures = KVTable.decode((await other.call(GetBrokerRuntime())).body).table
        given = int(figures["msgGetTotalTodayNow"])
        assert given < 32 * 20, "heartbeat, send and question waited for somebody else's pulls"
        assert [(await pull).code for pull in pulls] == [0] * 400
        pool.close()


@pytest.mark.covers("S-THR-03")
@pytest.mark.covers("S-THR-03")
async def test_a_broker_does_its_periodic_work_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    async with live_broker(tmp_path, clock=clock) as live:
        await live.send()
        await live.pull(sys_flag=4 | 1, commit_offset=1)
        held = asyncio.ensure_future(live.pull(offset=1, sys_flag=4 | 2, suspend_timeout_millis=3000))
        await live.session.call(HeartBeat(), Heartbeat("c@1").encode())
        saved = tmp_path / "broker-0" / "config" / "consumerOffset.json"
        assert not saved.exists()
        await clock.advance(6)
        assert (await held).code == 19, "a held pull is answered in its time"
        async with asyncio.timeout(10):
            while not saved.exists():
                await clock.advance(5)
                await asyncio.sleep(0.01)
        assert json.loads(saved.read_text())["offsetTable"] == {"orders@consumers": {"0": 1}}
        await clock.advance(5)  # the window of 10 s is full from here on, even if the first look found the file
        for _ in range(20):
            await live.send()
        await clock.advance(2)
        figures = KVTable.decode((await live.session.call(GetBrokerRuntime())).body).table
        assert float(figures["putTps"].split()[0]) == 2.0, "20 in the last 10 s"


async def test_a_group_that_was_ahead_of_the_log_gets_what_is_stored_next(tmp_path: Path) -> None:
    """As a power cut leaves it that took the last messages of the log, and not what was noted of them."""
    saved = tmp_path / "broker-0" / "config" / "consumerOffset.json"
    async with live_broker(tmp_path) as live:
        await live.send()
        await live.pull(sys_flag=4 | 1, commit_offset=1)
    saved.write_text(json.dumps({"offsetTable": {"orders@consumers": {"0": 5}}}))
    async with live_broker(tmp_path) as live:
        await live.send()
    assert json.loads(saved.read_text())["offsetTable"] == {"orders@consumers": {"0": 1}}


async def test_the_store_and_its_log_lie_where_they_are_put(tmp_path: Path) -> None:
    folders: dict[str, Any] = {"store_path": tmp_path / "here", "commit_log_path": tmp_path / "there"}
    async with live_broker(tmp_path, **folders) as live:
        await live.send()
    assert list((tmp_path / "there").rglob("0" * 20)) and not (tmp_path / "here" / "commitlog").exists()
    assert (tmp_path / "here" / "config" / "topics.json").exists()


@pytest.mark.covers("S-CFG-03")
async def test_producers_consumers_and_operators_of_one_client_share_its_connections(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        before = len(live.broker._server.sessions)
        named = partial(connect, live.cluster.namesrv, instance="of-one-name")
        async with named() as mq, named() as other:
            await mq.send("orders", b"x")
            async with (
                mq.subscribe("orders", group="g", start="earliest") as messages,
                mq.pull_consumer(group="audit", start="earliest"),
            ):
                await mq.producer(group="another").send("orders", b"y")
                await messages.take(1)
                await mq.admin.topics()
                assert len(live.broker._server.sessions) == before + 1
            await other.send("orders", b"z")
            assert len(live.broker._server.sessions) == before + 2, "another client has its own"
            assert mq._network.client_id != other._network.client_id
