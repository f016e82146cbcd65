"""The condition of certificates that a server shows to other servers: to name servers and brokers, and to an etcd."""

from __future__ import annotations

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import CLIENT_CERTIFICATE, Probe
from sparrowmq.remoting.tls.client_tls import ClientContext


def ending(clock: Clock, *shown: ClientContext | None) -> Probe:
    """Return the probe of certificates that end soon, or whose changed files cannot be used."""
    contexts = [each for each in shown if each is not None]
    return CLIENT_CERTIFICATE, lambda: "; ".join(
        filter(None, (each.problem(clock.now_ms()) for each in contexts))
    )
