"""A real name server on a free port, and a real session to it."""

import asyncio

import pytest

from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.remoting.pool import Pool


@pytest.fixture
def settings(tmp_path):
    return NamesrvSettings(port=0, kv_path=tmp_path / "kvConfig.json")


@pytest.fixture
async def namesrv(settings):
    async with Namesrv(settings, SystemClock()) as running:
        yield running


@pytest.fixture
async def connect(namesrv):
    """Makes one more connection to the name server."""
    pools = []

    async def session():
        pools.append(Pool(SystemClock()))
        return await pools[-1].session(namesrv.address)

    yield session
    for pool in pools:
        pool.close()


@pytest.fixture
async def session(connect):
    return await connect()


@pytest.fixture
def eventually():
    """Waits until a condition holds, for at most five seconds."""

    async def wait(condition):
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)

    return wait
