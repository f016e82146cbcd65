"""Delayed messages of brokers that are killed: each is delivered, and none twice."""

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from sparrowmq import connect
from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from tests.crash.failover import QUEUES, FailoverRig
from tests.crash.rounds import TOPIC, pull_all
from tests.interop.apache import free_ports
from tests.interop.etcd import needs_etcd
from tests.interop.servers import OurBroker, OurNamesrv

pytestmark = pytest.mark.timeout(600)
_LIMIT_S = 30.0
_LEVELS = "1s 2s 3s"


async def _send(namesrv: str, number: int, count: int) -> set[bytes]:
    """Send delayed messages without a repeat; return the acknowledged ones."""
    acked = set()
    async with connect(namesrv) as mq:
        for at in range(count):
            body = b"%d-%d" % (number, at)
            with suppress(SparrowError):
                await mq.send(TOPIC, body, delay_level=1 + at % 3)
                acked.add(body)
    return acked


async def _delivered(address: str) -> Counter[bytes]:
    pool = Pool(SystemClock())
    try:
        session = await pool.session(address)
        return Counter([body for queue_id in range(QUEUES) for body in await pull_all(session, queue_id, 0)])
    finally:
        pool.close()


async def _all_once(address: str, acked: set[bytes]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not acked <= (found := await _delivered(address)).keys() and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    assert acked <= found.keys(), f"{len(acked - found.keys())} of {len(acked)} were lost"
    twice = [body for body, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} of {len(found)} were delivered twice or more"


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.nightly)])
async def test_a_killed_broker_delivers_each_delayed_message_once(tmp_path: Path, kills: int) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    settings = {"messageDelayLevel": _LEVELS, "defaultTopicQueueNums": QUEUES}
    port, acked = free_ports(1)[0], set[bytes]()
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv()).address
        for number in range(kills):
            with OurBroker(namesrv, tmp_path, settings, port) as broker:
                acked |= await _send(namesrv, number, 60)
                await asyncio.sleep(chance.uniform(0.5, 3))
                broker.kill()
        file = tmp_path / "config" / "delayOffset.json"
        assert not file.exists() or json.loads(file.read_text())["logOffset"]
        stack.enter_context(OurBroker(namesrv, tmp_path, settings, port))
        await _all_once(f"127.0.0.1:{port}", acked)


@needs_etcd
@pytest.mark.slow
@pytest.mark.parametrize("deaths", [2, pytest.param(20, marks=pytest.mark.nightly)])
async def test_a_failover_delivers_each_delayed_message_once(tmp_path: Path, deaths: int) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    with ExitStack() as stack:
        settings = {"masterLeaseTime": 2, "messageDelayLevel": _LEVELS, "slaveAck": "flushed"}
        rig = FailoverRig(tmp_path, seed, stack, settings=settings)
        for number in rig.numbers:
            await asyncio.to_thread(rig.start, number)
        acked, epoch = set[bytes](), 0
        for number in range(deaths):
            leader = await rig.all_in_sync(above=epoch)
            epoch = leader.epoch
            acked |= await _send(rig.namesrv, number, 120)
            await asyncio.sleep(chance.uniform(0.5, 3))
            rig.members[leader.member].kill()
            await asyncio.sleep(chance.uniform(0, 4))
            await asyncio.to_thread(rig.start, leader.member)
        await _all_once((await rig.all_in_sync(above=epoch)).address, acked)
