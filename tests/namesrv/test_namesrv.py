import asyncio

import pytest

from sparrowmq.errors import BadStore, ConfigError, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.namesrv.namesrv import Namesrv, _run_later
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests import namesrv_headers as ask
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import ManualClock

BODY = RegisterBrokerBody(TopicConfigTable(DataVersion(1), {"Orders": TopicConfig("Orders", 4, 4)})).encode()
REGISTRATION = ask.RegisterBroker("broker-a", "127.0.0.1:10911", "DefaultCluster", "127.0.0.1:10912", 0)


async def test_a_broker_is_gone_as_soon_as_its_connection_ends(namesrv, session, connect, eventually):
    broker = await connect()
    await broker.call(REGISTRATION, BODY)
    await session.call(ask.GetRoute("Orders"))
    broker.close()
    await eventually(lambda: namesrv.routes.route("Orders") is None)
    with pytest.raises(RemoteError):
        await session.call(ask.GetRoute("Orders"))


async def test_a_broker_that_goes_while_the_name_server_ends_by_a_failed_task_breaks_nothing():
    async def fail():
        raise ZeroDivisionError

    def nothing():
        yield

    tasks = Background()
    with pytest.raises(ZeroDivisionError):
        async with tasks:
            tasks.spawn(fail())
            try:
                await asyncio.sleep(60)
            finally:
                _run_later(tasks, nothing())
    _run_later(tasks, nothing())


@pytest.mark.covers("S-ROUTE-06")
@pytest.mark.covers("S-THR-01")
async def test_a_silent_broker_is_dropped_after_two_minutes_and_its_connection_closed(settings, eventually):
    clock = ManualClock()
    async with Namesrv(settings, clock) as namesrv:
        pool = Pool(clock)
        broker = await pool.session(namesrv.address)
        await broker.call(REGISTRATION, BODY)
        for _ in range(11):
            await clock.advance(seconds=10)
            await broker.call(ask.GetBrokerCluster())  # It talks, but says nothing about its topics.
        assert namesrv.routes.route("Orders") is not None
        await clock.advance(seconds=20)
        assert namesrv.routes.route("Orders") is None
        await eventually(lambda: broker.closed)
        pool.close()


async def test_a_pause_of_the_name_server_is_no_silence_of_brokers(settings):
    clock = ManualClock()
    async with Namesrv(settings, clock) as namesrv:
        pool = Pool(clock)
        broker = await pool.session(namesrv.address)
        await broker.call(REGISTRATION, BODY)
        await clock.pause(600)
        assert namesrv.routes.route("Orders") is not None
        assert not broker.closed
        pool.close()


async def test_two_brokers_on_one_machine_do_not_disturb_each_other(namesrv, session, connect):
    other = await connect()
    await session.call(REGISTRATION, BODY)
    await other.call(ask.RegisterBroker("broker-b", "127.0.0.1:10921", "DefaultCluster", "127.0.0.1:10922", 0), BODY)
    assert len(namesrv.routes.route("Orders").queue_datas) == 2


@pytest.mark.covers("S-ROUTE-12")
async def test_it_starts_anew_without_routes_and_with_its_values(settings):
    async with Namesrv(settings, SystemClock()) as namesrv:
        pool = Pool(SystemClock())
        session = await pool.session(namesrv.address)
        await session.call(ask.PutKVConfig("N", "k", "v"))
        await session.call(REGISTRATION, BODY)
        pool.close()
    async with Namesrv(settings, SystemClock()) as namesrv:
        pool = Pool(SystemClock())
        session = await pool.session(namesrv.address)
        assert (await session.call(ask.GetKVConfig("N", "k"))).header.value == "v"
        assert namesrv.routes.route("Orders") is None
        pool.close()


async def test_a_taken_port_is_told(namesrv, settings):
    port = int(namesrv.address.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        async with Namesrv(NamesrvSettings(port=port, kv_path=settings.kv_path), SystemClock()):
            pass


async def test_it_does_not_listen_for_everybody_unless_told(settings):
    public = {"port": 0, "bind_address": "0.0.0.0", "kv_path": settings.kv_path}
    with pytest.raises(ConfigError, match="--insecure"):
        async with Namesrv(NamesrvSettings(**public), SystemClock()):
            pass
    async with Namesrv(NamesrvSettings(**public, insecure=True), SystemClock()) as namesrv:
        assert namesrv.address.startswith("0.0.0.0:")


async def test_a_damaged_value_file_is_told_before_anything_is_listened_on(settings):
    settings.kv_path.write_text("{")
    with pytest.raises(BadStore, match=r"kvConfig\.json"):
        async with Namesrv(settings, SystemClock()):
            pass


async def test_stopping_ends_the_connections(settings, eventually):
    pool = Pool(SystemClock())
    async with Namesrv(settings, SystemClock()) as namesrv:
        session = await pool.session(namesrv.address)
        await session.call(ask.GetBrokerCluster())
    await eventually(lambda: session.closed)
    pool.close()


async def test_serving_lasts_until_it_is_cancelled(namesrv):
    serving = asyncio.ensure_future(namesrv.serve())
    await asyncio.sleep(0)
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
