"""The end of certificates that a server shows to other servers is a condition."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sparrowmq.broker.failover.etcd import EtcdAccess
from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.metrics.conditions import client_certificate_probe
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings
from sparrowmq.testing.clock import ManualClock
from tests.certificates import authority, signed


def test_certificates_for_other_servers_that_end_soon_are_named(tmp_path: Path) -> None:
    vouching = authority(tmp_path)
    pair, other = signed(tmp_path, "broker", vouching, days=20), signed(tmp_path, "member", vouching, days=20)
    of_brokers = client_context(ClientTlsSettings(client_certificate=pair.certificate, client_key=pair.key))
    of_etcd = EtcdAccess.of(FailoverSettings(etcd_tls=True, etcd_certificate=other.certificate, etcd_key=other.key)).tls
    clock = ManualClock(now_ms=int(datetime.now(UTC).timestamp() * 1000))
    start_ms = clock.now_ms()
    for shown, files in (
        ((of_brokers, None), [pair.certificate]),
        ((None, of_etcd), [other.certificate]),
        ((of_brokers, of_etcd), [pair.certificate, other.certificate]),
    ):
        kind, problem = client_certificate_probe(clock, *shown)
        assert kind.name == "client_certificate"
        for days, words in ((0, ""), (7, " ends at "), (21, "; other servers refuse it")):
            clock._start_ms = start_ms + days * 86_400_000
            said = problem()
            assert words in said and (not words or all(str(file) in said for file in files)), said
            assert words or not said


def test_a_server_that_shows_no_certificate_says_nothing() -> None:
    _, problem = client_certificate_probe(ManualClock(), None, client_context(ClientTlsSettings(checks_server=False)))
    assert problem() == ""
