"""A name server with accounts: strangers change nothing, and learn nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import Credentials, connect
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import AccessDenied, ConfigError, DenialKind, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.condition_kinds import ANY_BROKER_NAME
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_access import NamesrvAccess
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests import namesrv_headers as ask
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable, TopicRoute
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.requests.request_table import ROWS, Access, Role
from sparrowmq.protocol.requests.user_headers import (
    ENABLED,
    NORMAL,
    CreateUser,
    Policy,
    PolicyRule,
    UserEntry,
    UserTable,
)
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.remoting.tls.tls_settings import ClientAuth, ClientTlsSettings, TlsMode
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.auth.asked import received
from tests.certificates import authority, signed

ACCOUNTS = """
accounts:
  - {accessKey: administrator, secretKey: administrator-secret, admin: true}
  - {accessKey: broker-account, secretKey: broker-secret, broker: true, certificate: broker-a}
  - {accessKey: broker-b-account, secretKey: broker-secret, broker: true, brokerNames: [broker-b, broker-c]}
  - {accessKey: shop-website, secretKey: shop-secret, certificate: shop}
"""
ADMIN = ("administrator", "administrator-secret")
BROKER = ("broker-account", "broker-secret")
SHOP = ("shop-website", "shop-secret")
KEEPER = ("keeper", "keeper-secret")
WRONG = ("broker-account", "another-secret")
REFUSED = "brokerAccessKey and brokerSecretKey|broker: true|innerClientAuthentication|only Super users"


@dataclass
class Guarded:
    """A name server with accounts, and sessions to it by credentials."""

    namesrv: Namesrv
    pools: list[Pool] = field(default_factory=list)

    async def session(self, who: tuple[str, str] | None = None, tls: Any = None) -> Session:
        self.pools.append(Pool(SystemClock(), sign=signer(*who) if who else None, tls=tls))
        return await self.pools[-1].session(self.namesrv.address)


def with_accounts(path: Path, **given: Any) -> NamesrvSettings:
    (path / "accounts.yml").write_text(ACCOUNTS)
    return NamesrvSettings(port=0, kv_path=path / "kv.json", acl=True, acl_file=path / "accounts.yml", **given)


def with_users(path: Path, **given: Any) -> NamesrvSettings:
    """The accounts as users of ACL 2.0, and a user that may change everything of clusters."""
    users = {name: UserEntry(name, secret, NORMAL, ENABLED) for name, secret in (SHOP, KEEPER)}
    keeper = Policy("Custom", [PolicyRule("Cluster:*", ["All"], None, "Allow")])
    table = UserTable(users=users, policies={KEEPER[0]: [keeper]})
    (path / "users.json").write_bytes(table.encode())
    return NamesrvSettings(
        port=0,
        kv_path=path / "kv.json",
        authentication=True,
        users_file=path / "users.json",
        first_user=f'{{"username":"{ADMIN[0]}","password":"{ADMIN[1]}"}}',
        inner_credentials=f'{{"accessKey":"{BROKER[0]}","secretKey":"{BROKER[1]}"}}',
        **({"authorization": True} | given),
    )


@asynccontextmanager
async def guarded(
    path: Path, made: Callable[..., NamesrvSettings] = with_accounts, **given: Any
) -> AsyncIterator[Guarded]:
    settings = made(path, **given)
    async with Namesrv(settings, SystemClock()) as namesrv:
        running = Guarded(namesrv)
        try:
            yield running
        finally:
            for pool in running.pools:
                pool.close()
                await pool.wait_until_ended()


BOTH = pytest.mark.parametrize("made", [with_accounts, with_users])


async def register(session: Session, address: str = "10.0.0.1:10911") -> None:
    topics = TopicConfigTable(DataVersion(0, 1, 1), {"orders": TopicConfig("orders")})
    header = ask.RegisterBroker("broker-a", address, "shop", "", 0)
    await session.call(header, RegisterBrokerBody(topics).encode())


async def route(session: Session) -> dict[int, str]:
    answer = await session.call(ask.GetRoute("orders"))
    (broker,) = TopicRoute.decode(answer.body).broker_datas
    return dict(broker.broker_addrs)


@BOTH
async def test_strangers_take_over_no_route(tmp_path: Path, made: Any) -> None:
    async with guarded(tmp_path, made) as at:
        await register(await at.session(BROKER))
        for who in (None, SHOP, WRONG, ("nobody-known", "nobody-known")):
            stranger = await at.session(who)
            with pytest.raises(AccessDenied, match=REFUSED):
                await register(stranger, "6.6.6.6:10911")
            with pytest.raises(AccessDenied, match=REFUSED):
                await stranger.call(ask.UnregisterBroker("broker-a", "10.0.0.1:10911", "shop", 0))
        assert await route(await at.session(SHOP)) == {0: "10.0.0.1:10911"}


async def test_an_account_with_broker_names_registers_and_unregisters_only_these(tmp_path: Path) -> None:
    async with guarded(tmp_path) as at:
        await register(await at.session(BROKER))
        other = await at.session(("broker-b-account", "broker-secret"))
        with pytest.raises(AccessDenied, match=r"may register broker-b, broker-c and not broker-a.*brokerNames"):
            await register(other, "6.6.6.6:10911")
        for name in ("broker-a", "broker-b"):
            with suppress(AccessDenied):
                await other.call(ask.UnregisterBroker(name, "10.0.0.1:10911", "shop", 0))
        with pytest.raises(RemoteError, match="broker-a is registered at"):
            await other.call(ask.RegisterBroker("broker-b", "10.0.0.1:10911", "shop", "", 0))
        await other.call(ask.RegisterBroker("broker-b", "10.0.0.2:10911", "shop", "", 0))
        assert await route(await at.session(SHOP)) == {0: "10.0.0.1:10911"}


def test_accounts_that_may_register_every_broker_are_a_condition(tmp_path: Path) -> None:
    def told(made: Any, more: str = "") -> str:
        settings = made(tmp_path)
        if settings.acl:
            (tmp_path / "accounts.yml").write_text(ACCOUNTS + more)
        probes = NamesrvAccess(settings, SystemClock()).probes()
        return next(what() for kind, what in probes if kind is ANY_BROKER_NAME)

    assert told(with_accounts).endswith("they have no brokerNames: broker-account")
    account = "  - {{accessKey: broker-{}, secretKey: broker-secret, broker: true}}\n"
    more = "".join(map(account.format, range(3)))
    assert told(with_accounts, more).endswith(": broker-account, broker-0, broker-1 and 1 more")
    root = account.format("root").replace("broker: true", "broker: true, admin: true")
    assert told(with_accounts, root).endswith(": broker-account")
    assert told(with_users) == ""


@pytest.mark.parametrize("row", [row for row in ROWS if row.served_by & Role.NAMESRV], ids=lambda row: row.name)
async def test_each_request_needs_an_account(tmp_path: Path, row: Any) -> None:
    """A new request code is part of this test by its row in the table."""
    may = {
        Access.CLIENT: {None: False, SHOP: True, BROKER: True, ADMIN: True},
        Access.CLUSTER: {None: False, SHOP: False, BROKER: True, ADMIN: True},
        Access.ADMIN: {None: False, SHOP: False, BROKER: False, ADMIN: True},
    }[row.access]
    async with guarded(tmp_path) as at:
        await check_rights(at, row, may)


@pytest.mark.parametrize("has_policies", [True, False])
@pytest.mark.parametrize("row", [row for row in ROWS if row.served_by & Role.NAMESRV], ids=lambda row: row.name)
async def test_each_request_needs_a_user(tmp_path: Path, row: Any, has_policies: bool) -> None:
    """Only Super users register brokers, also where no policies count."""
    all_users = {SHOP: True, KEEPER: True, BROKER: True, ADMIN: True}
    may = {
        Access.CLIENT: all_users,
        Access.CLUSTER: all_users | {SHOP: False, KEEPER: False},
        Access.ADMIN: all_users | {SHOP: not has_policies},
    }[row.access]
    async with guarded(tmp_path, with_users, authorization=has_policies) as at:
        await check_rights(at, row, may | {None: False, WRONG: False})


async def check_rights(at: Guarded, row: Any, may: Mapping[Any, bool]) -> None:
    fields = {name: _sample(name) for name in row.header.__struct_fields__}
    for who, allowed in may.items():
        denied = False
        try:
            await (await at.session(who)).call(row.header(**fields), b"")
        except AccessDenied:
            denied = True
        except RemoteError:
            pass  # it was handled, and the sample is no good
        assert denied is not allowed, (who, row.name)


def _sample(name: str) -> Any:
    samples = {"broker_id": 0, "compressed": False, "body_crc32": 0}
    optional = {
        "heartbeat_timeout_millis": None,
        "enable_acting_master": None,
        "accept_standard_json_only": None,
    }
    return (samples | optional).get(name, "x")


@BOTH
async def test_routes_are_for_everybody_if_a_setting_says_so(tmp_path: Path, made: Any) -> None:
    async with guarded(tmp_path, made, public_routes=True) as at:
        await register(await at.session(BROKER))
        stranger = await at.session()
        assert await route(stranger) == {0: "10.0.0.1:10911"}
        with pytest.raises(AccessDenied):
            await stranger.call(ask.PutKVConfig("ORDER_TOPIC_CONFIG", "orders", "broker-a:1"))
        with pytest.raises(AccessDenied):
            await register(stranger, "6.6.6.6:10911")


@BOTH
async def test_apaches_brokers_register_by_their_address(tmp_path: Path, made: Any) -> None:
    async with guarded(tmp_path, made, broker_addresses="10.0.0.7,127.0.0.1") as at:
        stranger = await at.session()
        await register(stranger)
        assert await route(stranger) == {0: "10.0.0.1:10911"}
        with pytest.raises(AccessDenied):
            await stranger.call(ask.DeleteTopicInNamesrv("orders"))
    async with guarded(tmp_path, made, broker_addresses="10.0.0.7") as at:
        with pytest.raises(AccessDenied):
            await register(await at.session())


async def test_an_address_that_is_none_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aclBrokerAddresses"):
        async with guarded(tmp_path, broker_addresses="10.0.0"):
            raise AssertionError("it started")


async def test_a_cluster_with_users_has_them_at_its_name_server_too(tmp_path: Path) -> None:
    """The name server reads the users of a broker on its machine, so new ones count there, too."""
    operator = Credentials(*ADMIN)
    named: dict[str, Any] = {
        "authentication": True,
        "authorization": True,
        "first_user": f'{{"username":"{ADMIN[0]}","password":"{ADMIN[1]}"}}',
        "inner_credentials": f'{{"accessKey":"{BROKER[0]}","secretKey":"{BROKER[1]}"}}',
    }
    async with (
        Cluster(tmp_path, **named) as cluster,
        Network(cluster.namesrv, credentials=operator) as network,
    ):
        broker = await network.brokers.session(cluster.brokers[0].address)
        await broker.call(CreateUser(SHOP[0]), UserEntry(password=SHOP[1]).encode())
    there = named | {"users_file": tmp_path / "broker-0" / "config" / "users.json"}
    async with Cluster(tmp_path, namesrv_settings=there, **named) as cluster:
        async with connect(cluster.namesrv, credentials=operator) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.send("orders", b"hello")
        async with Network(cluster.namesrv, credentials=Credentials(*SHOP)) as shop:
            await shop.name_servers.call(ask.GetRoute("orders"))
        async with Network(cluster.namesrv) as stranger:
            with pytest.raises(AccessDenied):
                await stranger.name_servers.call(ask.GetRoute("orders"))


async def test_changed_accounts_take_effect(
    tmp_path: Path, eventually: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.namesrv.namesrv_access.POLL_S", 0.01)
    async with guarded(tmp_path) as at:
        session = await at.session(BROKER)
        await register(session)
        (tmp_path / "accounts.yml").write_text("accounts: []\n")
        denied = 0
        while not denied:
            try:
                await register(session)
            except AccessDenied:
                denied += 1


async def test_a_verified_certificate_stands_for_a_signature(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path), authority(tmp_path, "another authority")
    server = signed(tmp_path, "server", ours)

    def showing(name: str, by: Any = ours) -> Any:
        pair = signed(tmp_path, name, by)
        settings = ClientTlsSettings(
            client_trust=ours.certificate, client_certificate=pair.certificate, client_key=pair.key
        )
        return client_context(settings)

    tls: dict[str, Any] = {
        "tls_mode": TlsMode.ENFORCING,
        "certificate": server.certificate,
        "key": server.key,
        "trust": ours.certificate,
        "client_auth": ClientAuth.REQUIRE,
    }
    async with guarded(tmp_path, **tls) as at:
        await register(await at.session(tls=showing("broker-a")))
        shop = await at.session(tls=showing("shop"))
        assert await route(shop) == {0: "10.0.0.1:10911"}
        for who, stranger in (
            (None, showing("shop")),
            (None, showing("unknown")),
            (SHOP, showing("broker-a")),  # the signature counts, if there is one
            (WRONG, showing("broker-a")),
        ):
            with pytest.raises(AccessDenied, match=REFUSED):
                await register(await at.session(who, tls=stranger), "6.6.6.6:10911")
        with pytest.raises(Exception, match=r"(?i)unknown ca|closed"):
            await register(await at.session(tls=showing("broker-a", theirs)), "6.6.6.6:10911")


async def test_denials_are_counted_by_their_reason(tmp_path: Path) -> None:
    access = NamesrvAccess(
        NamesrvSettings(acl=True, acl_file=_accounts(tmp_path), kv_path=tmp_path / "kv.json"), ManualClock()
    )
    asked = ask.UnregisterBroker("broker-a", "10.0.0.1:10911", "shop", 0)
    kinds = []
    for who in (None, SHOP, WRONG):
        with pytest.raises(AccessDenied) as denied:
            access.check(*received(asked, b"", who))
        kinds.append(denied.value.kind)
    assert kinds == [DenialKind.UNKNOWN_ACCOUNT, DenialKind.NEEDS_ADMIN, DenialKind.WRONG_SIGNATURE]


def _accounts(folder: Path) -> Path:
    (folder / "accounts.yml").write_text(ACCOUNTS)
    return folder / "accounts.yml"


async def test_the_audit_log_has_administrators_and_denials_but_no_registrations(tmp_path: Path) -> None:
    async with guarded(tmp_path) as at:
        with pytest.raises(AccessDenied):
            await register(await at.session(SHOP))
        await register(await at.session(BROKER))
        await (await at.session(ADMIN)).call(ask.PutKVConfig("namespace", "key", "value"))
    files = [tmp_path / name for name in ("audit-denied.log", "audit.log")]
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(line["event"], line["account"], line["request"]) for line in lines] == [
        ("denied", SHOP[0], "REGISTER_BROKER"),
        ("admin", ADMIN[0], "PUT_KV_CONFIG"),
    ]
    assert lines[0]["reason"] == "needs_admin"
