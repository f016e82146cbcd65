"""The end of certificates that a broker shows to other servers is a condition."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.client_certificates import part
from sparrowmq.testing.clock import ManualClock
from tests.certificates import authority, signed


def said(days: int, **settings: Any) -> str:
    """Return what a broker says that has started so many days from now."""
    clock = ManualClock(now_ms=int(datetime.now(UTC).timestamp() * 1000) + days * 86_400_000)
    ((kind, probe),) = part(BrokerSettings(port=0, **settings), clock).probes
    assert kind.name == "client_certificate"
    return probe()


@pytest.mark.guards(
    "client_certificates._files: settings.talks_tls -> False",
    "client_certificates._files: settings.failover -> False",
)
def test_certificates_for_other_servers_that_end_soon_are_named(tmp_path: Path) -> None:
    pair = signed(tmp_path, "broker", authority(tmp_path), days=20)
    of_brokers = {"client_certificate": pair.certificate, "client_key": pair.key, "tls_enabled": True}
    of_etcd = {"etcd_certificate": pair.certificate, "etcd_key": pair.key, "etcd_tls": True}
    of_etcd |= {"failover": True, "etcd": ("127.0.0.1:2379",), "broker_id": 1}
    for settings in (of_brokers, of_etcd):
        assert said(0, **settings) == ""
        assert said(7, **settings).startswith(f"{pair.certificate} ends at ")
        assert said(21, **settings).endswith("; other servers refuse it")


def test_a_certificate_that_is_not_used_does_not_count(tmp_path: Path) -> None:
    pair = signed(tmp_path, "broker", authority(tmp_path), days=1)
    assert said(7, client_certificate=pair.certificate, client_key=pair.key) == ""
