"""Clients that start, or go on, while name server or brokers are down: they wait, and work when those are there."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import sparrowmq.sync
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.client.blocking_client import SyncPullConsumer
from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import NameServerUnreachable, SendFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.codes import RequestCode
from tests.client.conftest import until
from tests.client.consuming.test_consumer import cluster_on
from tests.client.scripted import Scripted
from tests.interop.apache import free_ports

SOON_S = 20.0


@pytest.fixture
def ports() -> range:
    return free_ports(2)


@pytest.mark.covers("S-START-09")
async def test_a_producer_that_waits_is_served_when_everything_comes_up(tmp_path, ports):
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        sending = asyncio.ensure_future(mq.send("t", b"early", timeout_s=SOON_S))
        await asyncio.sleep(0.3)
        async with cluster_on(tmp_path, *ports):
            assert (await sending).offset == 0


async def test_a_producer_that_does_not_wait_is_told_what_is_down(tmp_path, ports):
    async with connect(f"127.0.0.1:{ports[0]}") as mq:
        with pytest.raises(SendFailed, match=r"cannot ask name server 127.0.0.1.*It is not stored") as caught:
            await mq.send("t", b"x", timeout_s=0.3)
        assert isinstance(caught.value.cause, NameServerUnreachable) and not caught.value.is_in_doubt


@pytest.mark.covers("S-START-09")
async def test_with_a_name_server_alone_both_wait_for_the_first_broker(tmp_path, ports):
    got: list[bytes] = []
    settings = NamesrvSettings(port=ports[0], kv_path=tmp_path / "kv.json")
    async with connect(f"127.0.0.1:{ports[0]}") as mq, AsyncExitStack() as stack:
        await stack.enter_async_context(Namesrv(settings, SystemClock()))
        consumer = mq.subscribe("t", lambda message: got.append(message.body), group="g", start="earliest")
        await stack.enter_async_context(consumer)
        with pytest.raises(SendFailed, match=r"cannot connect to any broker \(none is registered at 127.0.0.1"):
            await mq.send("t", b"x", timeout_s=0.3)
        sending = asyncio.ensure_future(mq.send("t", b"x", timeout_s=SOON_S))
        await asyncio.sleep(0.3)
        assert not sending.done()
        broker = BrokerSettings(
            name="broker-0", port=ports[1], namesrv=(f"127.0.0.1:{ports[0]}",), store_path=tmp_path / "store"
        )
        await stack.enter_async_context(Broker(broker))
        await sending
        await until(lambda: got == [b"x"], SOON_S)


@pytest.mark.covers("S-START-09")
def test_the_blocking_client_starts_while_everything_is_down_and_recovers(tmp_path, ports, monkeypatch):
    monkeypatch.setattr("sparrowmq.client.consuming.consumer.FIRST_ROUND_LIMIT_S", 0.5)
    got: list[bytes] = []
    namesrv = f"127.0.0.1:{ports[0]}"
    with (
        sparrowmq.sync.connect(namesrv) as mq,
        mq.subscribe("t", lambda message: got.append(message.body), group="g", start="earliest"),
        mq.pull_consumer(group="h", start="earliest") as reader,
    ):
        reader.subscribe("t")
        assert reader.poll(timeout_s=0.1) == []
        with pytest.raises(SendFailed, match="cannot ask name server"):
            mq.send("t", b"x", timeout_s=0.2)
        waiting = mq.send_soon("t", b"x", timeout_s=SOON_S)
        with Elsewhere(tmp_path, ports):
            assert waiting.result(SOON_S).offset == 0
            assert [message.body for message in poll(reader)] == [b"x"]
            deadline = time.monotonic() + SOON_S
            while got != [b"x"]:
                assert time.monotonic() < deadline, "the handler was never called"
                time.sleep(0.01)


def poll(reader: SyncPullConsumer) -> list[ReceivedMessage]:
    deadline = time.monotonic() + SOON_S
    while not (messages := reader.poll(timeout_s=1)):
        assert time.monotonic() < deadline, "nothing came"
    return messages


class Elsewhere:
    """A cluster on known ports, in a thread of its own."""

    def __init__(self, path: Path, ports: range) -> None:
        self._made = (path, *ports)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave = asyncio.Event()
        self._there = threading.Event()

    def __enter__(self) -> Elsewhere:
        self._thread.start()
        assert self._there.wait(SOON_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join(SOON_S)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with cluster_on(*self._made):
            self._there.set()
            await self._leave.wait()


async def test_the_successor_of_a_master_that_hangs_is_found_soon_after_a_send_had_no_answer():
    async with Scripted() as hanging, Scripted() as after, Scripted() as names:
        hanging.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: None
        for master in (hanging, after):
            master.has("t")
        names.routes["t"] = hanging.routes["t"]
        async with connect(names.address) as mq:
            with pytest.raises(SendFailed):
                await mq.send("t", b"x", timeout_s=0.3)
            names.routes["t"] = after.routes["t"]
            await until(lambda: mq._network.routes.master("broker-a") == after.address)
            await mq.send("t", b"y")
        assert len(after.sent) == 1


async def test_a_send_that_waits_for_a_master_that_hangs_goes_to_its_successor_as_soon_as_that_is_named():
    async with Scripted() as hanging, Scripted() as after, Scripted() as names:
        hanging.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: None
        for master in (hanging, after):
            master.has("t")
        names.routes["t"] = hanging.routes["t"]
        async with connect(names.address) as mq:
            sending = asyncio.ensure_future(mq.send("t", b"x", timeout_s=30))
            await until(lambda: hanging.sent)
            names.routes["t"] = after.routes["t"]
            await asyncio.wait_for(sending, 10)
        assert len(after.sent) == 1
