"""An etcd with TLS and users, real ones, and who may ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.failover.etcd import Etcd, EtcdAccess, _post, wants_new_token
from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.errors import ConfigError, EtcdFailed
from sparrowmq.loop.clock import SystemClock
from tests.broker.members import Members
from tests.certificates import Pair, authority, signed
from tests.interop.etcd import LiveEtcd, needs_etcd

TLS = FailoverSettings(etcd_tls=True)


@contextmanager
def encrypting(folder: Path) -> Iterator[tuple[LiveEtcd, Pair]]:
    """An etcd that talks TLS, and who vouches for it."""
    trusted = authority(folder)
    shown = signed(folder, "etcd", trusted)
    with LiveEtcd(certificate=shown.certificate, key=shown.key) as etcd:
        yield etcd, trusted


def asking(etcd: LiveEtcd, settings: FailoverSettings) -> Etcd:
    return Etcd([etcd.endpoint], SystemClock(), 5.0, EtcdAccess.of(settings))


@needs_etcd
async def test_an_etcd_is_asked_by_tls_and_has_to_show_who_it_is(tmp_path: Path) -> None:
    with encrypting(tmp_path) as (etcd, trusted):
        assert await asking(etcd, replace(TLS, etcd_trust=trusted.certificate)).grant(60) > 0
        stranger = authority(tmp_path, "stranger").certificate
        for settings in (TLS, replace(TLS, etcd_trust=stranger)):
            with pytest.raises(EtcdFailed, match="certificate verify failed"):
                await asking(etcd, settings).grant(60)
        with pytest.raises(EtcdFailed):
            await asking(etcd, FailoverSettings()).grant(60)


@needs_etcd
async def test_the_end_of_the_certificate_for_etcd_is_a_condition(tmp_path: Path) -> None:
    with encrypting(tmp_path) as (etcd, trusted):
        pair = signed(tmp_path, "member", trusted, days=5)
        members = Members(tmp_path, etcd, "group")
        shown = {
            "etcd_trust": trusted.certificate,
            "etcd_certificate": pair.certificate,
            "etcd_key": pair.key,
        }
        try:
            member = await members.start(1, etcd_tls=True, **shown)
            await members.leader(1)
            assert member.broker is not None
            conditions = member.broker._conditions
            conditions.poll()
            assert f"{pair.certificate} ends at " in conditions.as_properties()["condition.client_certificate"]
            renewed = signed(tmp_path, "renewed", trusted)
            renewed.key.replace(pair.key)
            renewed.certificate.replace(pair.certificate)
            conditions.poll()
            assert "condition.client_certificate" not in conditions.as_properties()
        finally:
            await members.stop_all()


async def _give_it_users(etcd: LiveEtcd) -> None:
    for what, question in (
        ("auth/user/add", b'{"name": "root", "password": "secret"}'),
        ("auth/role/add", b'{"name": "root"}'),
        ("auth/user/grant", b'{"user": "root", "role": "root"}'),
        ("auth/enable", b"{}"),
    ):
        status, answer = await _post(etcd.endpoint, what, question, EtcdAccess())
        assert status == 200, answer


@needs_etcd
async def test_an_etcd_with_users_is_asked_as_one_of_them_again_and_again() -> None:
    known = FailoverSettings(etcd_user="root", etcd_password="secret")
    with LiveEtcd() as live:
        await _give_it_users(live)
        with pytest.raises(EtcdFailed, match="user name is empty"):
            await asking(live, FailoverSettings()).below("/a/")
        with pytest.raises(EtcdFailed, match="invalid user ID or password"):
            await asking(live, replace(known, etcd_password="guessed")).below("/a/")
        etcd = asking(live, known)
        assert await etcd.change({}, {"/a/leader": b"x"})
        etcd._token = "ended.1"  # as after its five minutes; behind the dot is a place in the log of etcd
        assert set(await etcd.below("/a/")) == {"/a/leader"}


def test_a_token_from_before_rights_were_changed_is_replaced_and_other_refusals_are_told() -> None:
    assert wants_new_token({"error": "etcdserver: revision of auth store is old", "code": 3})
    assert not wants_new_token({"error": "etcdserver: permission denied", "code": 7})


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdAccess(None, "root", "secret"))


def test_a_file_that_cannot_be_used_is_told_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"etcd\.tls\.trustCertPath = .* holds no certificate"):
        EtcdAccess.of(replace(TLS, etcd_trust=tmp_path / "no.pem"))
    with pytest.raises(ConfigError, match=r"etcd\.tls\.certPath = .* cannot be read"):
        EtcdAccess.of(replace(TLS, etcd_certificate=tmp_path / "none.pem", etcd_key=tmp_path / "none.key"))
