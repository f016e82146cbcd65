"""The certificates that a broker shows to other servers: to name servers and brokers, and to an etcd.

They are loaded when the broker starts, so their ends are read then, too. A renewed file counts after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.part import Part
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import CLIENT_CERTIFICATE
from sparrowmq.remoting.tls.expiry import ends_at, ends_soon


def part(settings: BrokerSettings, clock: Clock) -> Part:
    return Part(probes=((CLIENT_CERTIFICATE, _probe(settings, clock)),))


def _probe(settings: BrokerSettings, clock: Clock) -> Callable[[], str]:
    ends = [(file, ends_at(file)) for file in _files(settings)]
    effect = "other servers refuse it"
    return lambda: "; ".join(
        filter(None, (ends_soon(file, end, clock.now_ms(), effect) for file, end in ends))
    )


def _files(settings: BrokerSettings) -> Iterator[Path]:
    if settings.talks_tls and settings.client_certificate is not None:
        yield settings.client_certificate
    if settings.failover and settings.etcd_certificate is not None:
        yield settings.etcd_certificate
