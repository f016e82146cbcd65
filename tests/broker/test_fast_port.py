"""The second port, for clients that send by the VIP channel."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.ports import VIP_PORT_BELOW, bind_vip_port
from sparrowmq.broker.replication.ha_master import PORTS_ABOVE
from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.remoting.listener import Listener
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.settings.settings import build
from sparrowmq.testing import Cluster
from tests.broker.live import pull_request, send_request
from tests.interop.apache import free_ports


@asynccontextmanager
async def session_to(port: int) -> AsyncIterator[Session]:
    pool = Pool(SystemClock())
    try:
        yield await pool.session(f"127.0.0.1:{port}")
    finally:
        pool.close()


async def test_all_but_pulls_is_served_two_below_the_port(tmp_path: Path) -> None:
    port = free_ports(3)[2]
    async with Cluster(tmp_path, port=port), session_to(port - 2) as fast, session_to(port) as usual:
        await fast.call(send_request("T"), b"by the fast port")
        await fast.call(GetBrokerRuntime())
        with pytest.raises(RemoteError, match="pull at the broker's own port") as refused:
            await fast.call(pull_request("T"))
        assert refused.value.code == 3
        pulled = await usual.call(pull_request("T"), accept={19, 20, 21})
        assert pulled.header.max_offset == 1


@pytest.mark.covers("S-PORT-01")
def test_the_ports_are_those_of_apache_unless_they_are_changed() -> None:
    broker = BrokerSettings()
    assert (NamesrvSettings().port, broker.port) == (9876, 10911)
    assert (broker.port - VIP_PORT_BELOW, broker.port + PORTS_ABOVE) == (10909, 10912)


@pytest.mark.covers("S-PORT-01")
async def test_the_other_ports_follow_the_port_of_the_broker(tmp_path: Path) -> None:
    port = free_ports(3)[2]
    async with Cluster(tmp_path, port=port) as cluster, session_to(port - 2) as fast:
        await fast.call(send_request("T"), b"x")
        assert cluster.brokers[0].ha_address.endswith(f":{port + 1}")


@pytest.mark.covers("S-PORT-01")
async def test_every_port_can_be_changed(tmp_path: Path) -> None:
    namesrv, fast, port, slaves = free_ports(4)
    ports: dict[str, Any] = {"port": port, "fast_port": fast, "ha_port": slaves}
    async with Cluster(tmp_path, namesrv_settings={"port": namesrv}, **ports) as cluster:
        assert cluster.namesrv == f"127.0.0.1:{namesrv}"
        async with connect(cluster.namesrv) as mq:
            sent = await mq.send("T", b"x")
        async with session_to(fast) as second:
            await second.call(send_request("T"), b"y")
        async with Admin(cluster.namesrv) as admin:
            (broker,) = await admin.brokers()
        assert broker.addresses[0] == f"127.0.0.1:{port}" and sent.queue.topic == "T"
        assert cluster.brokers[0].ha_address == f"127.0.0.1:{slaves}"


def test_as_apaches_the_ports_are_by_default() -> None:
    assert (BrokerSettings().port, VIP_PORT_BELOW, PORTS_ABOVE) == (10911, 2, 1)


async def test_without_a_fixed_port_or_switched_off_there_is_none(tmp_path: Path) -> None:
    assert bind_vip_port(BrokerSettings(port=0)) is None
    off, _ = build(BrokerSettings, {"fastListenPort": "off", "listenPort": str(free_ports(3)[2])}, "broker.conf")
    assert bind_vip_port(off) is None and off.as_properties()["fastListenPort"] == "off"


async def test_a_taken_one_is_a_warning_unless_it_was_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = free_ports(3)
    door = Listener("127.0.0.1", ports[0])
    await door.open(asyncio.Protocol, 1)
    async with Cluster(tmp_path, port=ports[2]) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("T", b"x")
    assert f"VIP channel, as Java's before 4.5 do, are not served (cannot listen on 127.0.0.1:{ports[0]}" in caplog.text
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{ports[0]} .*another fastListenPort"):
        async with Cluster(tmp_path, port=ports[2], fast_port=ports[0]):
            pass
    door.close()
    await door.wait_until_closed()


@pytest.mark.parametrize("value", ["0", "65536", "on", "-2"])
def test_what_is_no_port_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"fastListenPort = .* must be a port from 1 to 65535, or off"):
        build(BrokerSettings, {"fastListenPort": value}, "broker.conf")
