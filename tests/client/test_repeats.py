"""Messages whose answer gets lost: an idempotent producer's are stored once, also by a broker that is killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sparrowmq.sync
from sparrowmq import Message, ProducerSettings, connect
from sparrowmq.broker.broker import Broker
from sparrowmq.errors import ConfigError, RequestTimeout, SendFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.protocol.requests.headers import HeartBeatReply
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.scripted import Scripted, stored
from tests.crash.rounds import TOPIC, pull_all
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv

IDEMPOTENT = ProducerSettings(idempotent=True, timeout_s=10)
SEND = RequestCode.SEND_MESSAGE_V2


class Cutter:
    """Passes on what client and broker say, but not the next answers of the broker."""

    def __init__(self, broker: str) -> None:
        self._broker = broker.split(":")
        self.address = ""
        self.cuts = 0  # of the next answers: the connection ends instead
        self.drops = 0  # of the next answers: nothing comes instead
        self.is_mute = False  # no answer comes
        self.connections = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cutter]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError):
            from_broker, to_broker = await asyncio.open_connection(self._broker[0], int(self._broker[1]))
            there = asyncio.ensure_future(self._pass(reader, to_broker))
            await self._pass(from_broker, writer, is_answer=True)
            there.cancel()
            to_broker.close()
        writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if is_answer and self.cuts:
                    self.cuts -= 1
                    return
                if is_answer and self.is_mute:
                    continue
                if is_answer and self.drops:
                    self.drops -= 1
                    continue
                writer.write(data)
        writer.close()


@asynccontextmanager
async def behind_cutter(path: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Cutter, str]]:
    """A broker whose route leads to the cutter, the cutter, and the name server's address."""
    async with Cluster(path, **settings) as cluster, Scripted("broker-0") as namesrv:
        broker = cluster.brokers[0]
        async with Cutter(broker.address).running() as cutter:
            namesrv.has("orders", others={"broker-0": cutter.address})
            yield broker, cutter, namesrv.address


def bodies(broker: Broker) -> list[bytes]:
    """All messages of the topic."""
    broker.store.publish()
    found = []
    for queue_id in range(4):
        read = broker.store.read("orders", queue_id, 0, 10_000, 16 << 20)
        found += [record.decode(each).body for view in read.views for each in record.walk(view)]
    return found


@pytest.mark.parametrize("settings", [IDEMPOTENT, ProducerSettings()])
async def test_a_message_whose_answer_was_cut_off_is_stored_once(tmp_path: Path, settings: ProducerSettings) -> None:
    async with (
        behind_cutter(tmp_path) as (broker, cutter, namesrv),
        connect(namesrv, settings=settings) as mq,
    ):
        await mq.send("orders", b"first")
        cutter.cuts = 1
        result = await mq.send("orders", b"second")
        assert cutter.connections == 2
        assert Counter(bodies(broker)) == {b"first": 1, b"second": 1}
        at = broker.store.read("orders", result.queue.queue_id, result.offset, 1)
        [stored_at] = [record.decode(each) for view in at.views for each in record.walk(view)]
        assert (stored_at.body, stored_at.offset_id) == (b"second", result.offset_msg_id)


async def test_a_message_whose_answer_never_came_is_sent_again_on_the_same_connection(tmp_path: Path) -> None:
    async with (
        behind_cutter(tmp_path) as (broker, cutter, namesrv),
        connect(namesrv, settings=ProducerSettings(idempotent=True, timeout_s=3)) as mq,
    ):
        await mq.send("orders", b"first")
        cutter.drops = 1
        await mq.send("orders", b"second")
        assert Counter(bodies(broker)) == {b"first": 1, b"second": 1}


@pytest.mark.parametrize("how", ["batch", "fifo", "delay", "transaction", "soon"])
async def test_every_kind_of_send_is_stored_once(tmp_path: Path, how: str) -> None:
    settings = ProducerSettings(idempotent=True, timeout_s=10)
    async with (
        behind_cutter(tmp_path) as (broker, cutter, namesrv),
        connect(namesrv, settings=settings, group="payments") as mq,
    ):
        mq.check()(lambda message: None)
        await mq.send("orders", b"first")
        cutter.cuts = 1
        wanted = [b"second"]
        if how == "batch":
            wanted = [b"%d" % number for number in range(20)]
            results = await mq.send_many([Message("orders", body) for body in wanted])
            assert [each.offset for each in results] == list(range(results[0].offset, results[0].offset + 20))
        elif how == "fifo":
            await mq.send("orders", b"second", fifo="key")
        elif how == "delay":
            await mq.send("orders", b"second", delay=timedelta(milliseconds=300))
        elif how == "transaction":
            async with mq.transaction("orders", b"second"):
                pass
        else:
            wanted = [b"%d" % number for number in range(50)]
            futures = [mq.send_soon("orders", body) for body in wanted]
            await asyncio.gather(*futures)
        await until(lambda: set(bodies(broker)) == {b"first", *wanted})
        await asyncio.sleep(0.3)  # a second one would come later
        assert Counter(bodies(broker)) == Counter([b"first", *wanted])


@pytest.mark.slow
async def test_an_idempotent_producer_takes_no_doubtful_message_to_another_broker(peer: Scripted) -> None:
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(repeat_window_ms=1000))
    settings = ProducerSettings(idempotent=True, timeout_s=2.5)
    async with Scripted("broker-b") as other, connect(peer.address, settings=settings) as mq:
        other.usual[RequestCode.HEART_BEAT] = peer.usual[RequestCode.HEART_BEAT]
        peer.has("t", queues=2, others={other.name: other.address})
        for each in (peer, other):
            each.script(SEND, None)
        await mq.send("t", b"x")
        asked = peer if peer.sent else other
        assert len(asked.sent) == 2 and len((other if asked is peer else peer).sent) == 0
        first, second = (command.ext_fields() for command in asked.sent)
        assert first.get("MAY_BE_STORED") is None and second["MAY_BE_STORED"] == "true"
        assert (first["e"], first["i"]) == (second["e"], second["i"])  # queue and properties
        for each in (peer, other):
            each.received.clear()
            each.script_anew(SEND, *[None] * 9)
        with pytest.raises(SendFailed, match="consumers must expect it twice") as failed:
            await mq.send("t", b"y")
        assert failed.value.is_in_doubt and isinstance(failed.value.cause, RequestTimeout)
        assert bool(peer.sent) != bool(other.sent)


async def test_a_plain_producer_takes_a_doubtful_message_to_another_broker(peer: Scripted) -> None:
    async with Scripted("broker-b") as other, connect(peer.address) as mq:
        for each in (peer, other):
            each.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(repeat_window_ms=1000))
        peer.has("t", queues=2, others={other.name: other.address})
        for each in (peer, other):
            each.script(SEND, None)
        sending = asyncio.ensure_future(mq.send("t", b"x"))
        await until(lambda: peer.sent or other.sent)
        asked, second = (peer, other) if peer.sent else (other, peer)
        for each in (asked, second):
            while not each.sent:
                await asyncio.sleep(0.001)
            for session in each.sessions:
                session.abort()
        await sending
        assert (len(asked.sent), len(second.sent)) == (2, 1)
        assert second.sent[0].ext_fields()["MAY_BE_STORED"] == "true"


async def test_at_a_broker_of_apache_an_idempotent_producer_sends_as_any_other(peer: Scripted) -> None:
    peer.has("t")
    async with connect(peer.address, settings=ProducerSettings(idempotent=True, timeout_s=1.5)) as mq:
        peer.script(SEND, None)
        with pytest.raises(SendFailed) as failed:
            await mq.send("t", b"x")
        assert failed.value.is_in_doubt and len(peer.sent) == 1
        for session in peer.sessions:
            session.abort()
        peer.script(SEND, Reply(2, remark="[TIMEOUT_CLEAN_QUEUE]broker busy"), stored())
        await mq.send("t", b"x")
        assert all("MAY_BE_STORED" not in command.ext_fields() for command in peer.sent)


def test_idempotent_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="idempotent='yes': give True or False"):
        ProducerSettings(idempotent="yes")  # type: ignore[arg-type]


def test_the_blocking_client_has_it_too(tmp_path: Path) -> None:
    with (
        OurNamesrv() as namesrv,
        OurBroker(namesrv.address, tmp_path),
        sparrowmq.sync.connect(namesrv.address, settings=IDEMPOTENT) as mq,
    ):
        assert mq.send("orders", b"x", timeout_s=10).offset == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("how", ["single", "batch"])
async def test_a_killed_broker_loses_and_doubles_no_message(tmp_path: Path, kills: int, how: str) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    port, is_over = free_ports(1)[0], asyncio.Event()
    async with AsyncExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv()).address
        cutter = await stack.enter_async_context(Cutter(f"127.0.0.1:{port}").running())
        route = await stack.enter_async_context(Scripted("broker-a"))
        route.has(TOPIC, others={"broker-a": cutter.address})

        def start() -> OurBroker:
            return stack.enter_context(OurBroker(namesrv, tmp_path, {"brokerName": "broker-a"}, port))

        producing = None
        for _ in range(kills):
            broker = await asyncio.to_thread(start)
            cutter.is_mute = False
            producing = producing or asyncio.ensure_future(produce(route.address, how, is_over))
            await asyncio.sleep(chance.uniform(0.5, 2))
            cutter.is_mute = True  # what is stored from now on is not answered
            await asyncio.sleep(chance.uniform(0, 0.2))
            broker.kill()
        await asyncio.to_thread(start)
        cutter.is_mute = False
        assert producing is not None
        is_over.set()
        sent = await producing
        pool = Pool(SystemClock())
        session = await pool.session(f"127.0.0.1:{port}")
        found = Counter([body for queue_id in range(4) for body in await pull_all(session, queue_id, 0)])
        table = KVTable.decode((await session.call(GetBrokerRuntime())).body).table
        pool.close()
    doubled = [body for body, count in found.items() if count > 1]
    lost = {b"%d" % number for number in range(sent)} - found.keys()
    print(f"{sent} messages, {len(lost)} lost, {len(doubled)} doubled; {table['repeatedSends']}")
    assert sent > 100 and not lost and not doubled


async def produce(namesrv: str, how: str, is_over: asyncio.Event) -> int:
    """Send numbered messages. Returns how many."""
    number = 0
    settings = ProducerSettings(idempotent=True, timeout_s=60, window=64)
    async with connect(namesrv, settings=settings) as mq:
        while not is_over.is_set():
            wanted = [b"%d" % each for each in range(number, number + 100)]
            if how == "batch":
                await mq.send_many([Message(TOPIC, body) for body in wanted])
            else:
                await asyncio.gather(*[mq.send_soon(TOPIC, body) for body in wanted])
            number += len(wanted)
    return number
