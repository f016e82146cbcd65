"""The files and connections that outlive the brokers of a member. Its connections: test_member_start.py."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.group_state import OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.member import MemberStart
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics.condition_kinds import ACCOUNTS_NOT_LOADED, CERTIFICATE
from sparrowmq.metrics.metrics_settings import Exporter
from tests.broker.metrics.visits import visit
from tests.broker.test_member_start import no_peers, spawn
from tests.certificates import authority, settings_of, signed

ACCOUNTS = "accounts:\n- accessKey: administrator\n  secretKey: '12345678'\n  admin: true\n"
USERS = '{"username":"administrator","password":"12345678"}'


def of_member(folder: Path, **more: object) -> BrokerSettings:
    settings = {"port": 0, "ha_port": 0, "fast_port": 0, "broker_id": 2, "ha_secret": "s" * 48}
    return BrokerSettings(store_path=folder / "store", **settings, **more)  # type: ignore[arg-type]


async def spoiled(settings: BrokerSettings, spoil: Callable[[], object], first: BrokerRole) -> MemberStart:
    """A member that changes from the first role to another one, and then back, after a file was spoiled."""
    start = MemberStart(OwnEpoch.load(settings.config_path), SystemClock(), None, no_peers, spawn)
    for role in (first, *({BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER} - {first}), first):
        number = 2 if role is BrokerRole.SLAVE else 0
        await start.begin(replace(settings, role=role, broker_id=number), Term(2, 0))
        spoil()
    return start


def conditions(start: MemberStart) -> dict[str, str]:
    assert start.broker is not None
    return {each.kind.name: each.facts for each in start.broker._conditions.current()}


async def test_a_member_changes_its_role_with_the_accounts_it_had_if_their_file_is_broken(
    tmp_path: Path,
) -> None:
    file = tmp_path / "accounts.yml"
    file.write_text(ACCOUNTS)
    settings = of_member(tmp_path, acl=True, acl_file=file)
    start = await spoiled(settings, lambda: file.write_text("accounts: ["), BrokerRole.SLAVE)
    access = start._resources.accounts if start._resources is not None else None
    assert access is not None and set(access.current.by_key) == {"administrator"}
    access.poll()
    access.poll()
    assert str(file) in conditions(start)[ACCOUNTS_NOT_LOADED.name]
    await start.end()
    again = MemberStart(OwnEpoch.load(settings.config_path), SystemClock(), None, no_peers, spawn)
    with pytest.raises(ConfigError, match=str(file)):  # as at each start of a process
        await again.begin(replace(settings, role=BrokerRole.SLAVE), Term(2, 0))


async def test_a_member_changes_its_role_with_the_certificate_it_had_if_the_new_one_does_not_fit(
    tmp_path: Path,
) -> None:
    ours = authority(tmp_path)
    own, other = signed(tmp_path, "own", ours), signed(tmp_path, "other", ours)
    settings = of_member(tmp_path, **settings_of(ours, own))
    start = await spoiled(settings, lambda: shutil.copy(other.key, own.key), BrokerRole.SLAVE)
    assert start.broker is not None and start.broker._tls.context is not None
    for _ in range(2):
        if start.broker._tls._changed.has_changed():
            await start.broker._tls._load_again()
    assert "cannot be used" in conditions(start)[CERTIFICATE.name]
    await start.end()


async def test_an_elected_master_whose_old_accounts_cannot_be_read_has_the_users_it_had(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "accounts.yml"
    file.write_text(ACCOUNTS.replace("administrator", "application"))
    settings = of_member(tmp_path, authentication=True, first_user=USERS, migrates_accounts=True, acl_file=file)
    start = await spoiled(settings, lambda: file.write_text("accounts: ["), BrokerRole.ASYNC_MASTER)
    assert "are not created" in caplog.text and str(file) in caplog.text
    await start.end()


async def test_a_member_without_a_broker_answers_at_its_metrics_port_and_says_why(tmp_path: Path) -> None:
    settings = of_member(tmp_path, metrics=Exporter.PROM, metrics_port=0, role=BrokerRole.SLAVE)
    async with Background() as tasks:
        own = OwnEpoch.load(settings.config_path)
        start = MemberStart(own, SystemClock(), None, no_peers, tasks.spawn)
        await start.begin(settings, Term(2, 0))
        assert start.broker is not None
        address = start.broker.metrics_address
        assert "sparrowmq_time_seconds" in (await visit(address, "/metrics"))[1]
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(ConfigError, match="cannot listen"),
        ):
            await start.begin(replace(settings, port=taken.getsockname()[1]), Term(2, 0))
        start.problem = "this port is taken"
        for page in ("/metrics", "/readyz"):
            assert await visit(address, page) == (503, "this port is taken\n")
        assert await visit(address, "/healthz") == (200, "ok\n")
        await start.begin(settings, Term(2, 0))
        assert start.broker.metrics_address == address
        assert "sparrowmq_time_seconds" in (await visit(address, "/metrics"))[1]
        await start.end()
