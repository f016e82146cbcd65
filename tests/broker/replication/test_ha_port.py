"""Where slaves come, and which settings do not fit to which role."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.replication.ha_master import check_role, ha_door, ha_master_rules
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.settings.settings import build
from tests.broker.replication.pairs import Pair, pair
from tests.certificates import Pair as Certificate
from tests.certificates import authority, settings_of, signed
from tests.interop.apache import free_ports


def settings(**given: Any) -> BrokerSettings:
    return BrokerSettings(**given)


def port_of(given: BrokerSettings, port: int = 0) -> int | None:
    door = ha_door(given, port or given.port)
    if door is None:
        return None
    door.close()
    return door.port


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"role": BrokerRole.SLAVE}, "brokerId = 0 is a master's"),
        ({"ha_silence_ms": 5000}, "haHousekeepingInterval = 5000 ms would end each connection"),
        ({"broker_id": 1}, "brokerId = 1 is a slave's: set brokerRole=SLAVE"),
        ({"role": BrokerRole.SYNC_MASTER, "ha_port": 0}, "haListenPort=off lets none come"),
        ({"failover": True, "acl": True}, "none may follow without a secret: set haSecret"),
        ({"ha_bind": "0.0.0.0"}, "listening on 0.0.0.0 would let everybody"),
    ],
)
async def test_settings_that_do_not_fit_to_the_role_are_told_before_anything_is_opened(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        async with Broker(settings(port=0, store_path=tmp_path / "store", **given)):
            raise AssertionError("it started")
    assert not (tmp_path / "store").exists()


def test_the_port_is_one_above_the_brokers_own_unless_another_is_set() -> None:
    own, _, another = free_ports(3)
    assert port_of(settings(port=own)) == own + 1
    assert port_of(settings(port=own, ha_port=another)) == another
    off, _ = build(BrokerSettings, {"haListenPort": "off"}, "broker.conf")
    assert port_of(off) is None and off.as_properties()["haListenPort"] == "off"


def test_with_a_free_port_it_is_a_free_one_too() -> None:
    assert port_of(settings(port=0), 12_345) not in (None, 12_346)


def test_a_taken_one_is_a_warning_unless_it_has_to_be(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port_of(settings(port=port - 1)) is None
        assert "slaves cannot follow this master" in caplog.text and "haListenPort=off" in caplog.text
        for given in ({"port": 1, "ha_port": port}, {"port": port - 1, "role": BrokerRole.SYNC_MASTER}):
            with pytest.raises(ConfigError, match="choose another haListenPort"):
                port_of(settings(**given))


def test_a_slave_has_none() -> None:
    port = free_ports(2)[0]
    assert port_of(settings(port=port, role=BrokerRole.SLAVE, broker_id=1)) is None


@pytest.mark.parametrize(
    ("given", "secret"),
    [
        ({}, None),
        ({"ha_secret": ""}, None),
        ({"acl": True}, ""),
        ({"authentication": True, "ha_secret": ""}, ""),
        ({"tls_mode": TlsMode.ENFORCING}, ""),
        ({"acl": True, "ha_secret": "Xq3"}, "Xq3"),
    ],
)
def test_a_master_with_access_control_or_enforced_tls_needs_a_secret(given: dict[str, Any], secret: str | None) -> None:
    assert ha_master_rules(settings(**given)).shipping.secret == secret


def test_the_port_listens_at_an_address_of_its_own() -> None:
    door = ha_door(settings(port=0, ha_bind="127.0.0.2"), 1)
    assert door is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", door.port))
    door.close()


@dataclass
class Encrypted:
    """A master and a slave that take encrypted connections only, from clients with a certificate."""

    both: Pair
    tls: dict[str, Any]
    files: Path

    def stranger(self, *, shows: Certificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.tls["trust"])
        if shows is not None:
            context.load_cert_chain(shows.certificate, shows.key)
        return context


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[Encrypted]:
    ours = authority(tmp_path)
    server = signed(tmp_path, "server", ours)
    tls = settings_of(ours, server) | {"tls_enabled": True, "ha_secret": "Xq3", "namesrv": ()}
    async with pair(tmp_path, **tls) as both:
        both.pool = Pool(SystemClock(), tls=client_context(both.slave_settings))
        yield Encrypted(both, tls, tmp_path)


async def test_a_slave_takes_the_log_by_tls_and_strangers_get_nothing(encrypted: Encrypted) -> None:
    both = encrypted.both
    master = await both.start("master")
    await both.send(b"secret")
    await both.start("slave", ha_master=master.ha_address)
    await both.same()
    assert await said(master.ha_address, bytes(8)) == b""  # the whole log, without TLS and haSecret
    assert await said(master.ha_address, b"SMQ-HA-1" + bytes(32)) == b""
    with pytest.raises(ssl.SSLError, match="certificate required"):
        await said(master.ha_address, bytes(8), encrypted.stranger())
    known = signed(encrypted.files, "reader", Certificate(encrypted.tls["trust"], encrypted.files / "authority.key"))
    assert await said(master.ha_address, bytes(8), encrypted.stranger(shows=known)) == b""


async def said(address: str, words: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """The bytes that a server answers, up to the end of the connection."""
    reader, writer = await asyncio.open_connection(*address.split(":"), ssl=context)
    writer.write(words)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.transport.abort()


def test_the_highest_port_has_none_above_it() -> None:
    assert port_of(settings(port=0, ha_port=None), 65535) != 65536


def test_what_is_set_is_what_a_master_does() -> None:
    given = {
        "brokerRole": "SYNC_MASTER",
        "slaveTimeout": "1500",
        "haSlaveFallbehindMax": "1m",
        "haTransferBatchSize": "2k",
        "haSendHeartbeatInterval": "70ms",
        "haHousekeepingInterval": "90s",
        "haSecret": "Xq3",
    }
    rules = ha_master_rules(build(BrokerSettings, given, "broker.conf")[0])
    assert (rules.is_sync, rules.timeout_s, rules.nearest_bytes) == (True, 1.5, 1 << 20)
    shipping = rules.shipping
    assert (shipping.batch_bytes, shipping.heartbeat_s, shipping.silence_s) == (2048, 0.07, 90)
    assert shipping.secret == "Xq3" and "Xq3" not in repr(shipping)


def test_a_role_that_fits_is_let_through() -> None:
    check_role(settings(role=BrokerRole.SYNC_MASTER))
    check_role(settings())
