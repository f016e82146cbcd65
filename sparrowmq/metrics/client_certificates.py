"""The condition of certificates that a server shows to other servers: to name servers and brokers, and to an etcd."""

from __future__ import annotations

import ssl

from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import CLIENT_CERTIFICATE, Probe
from sparrowmq.remoting.tls.contexts import ClientContext


def ending(clock: Clock, *shown: ssl.SSLContext | None) -> Probe:
    """Return the probe of certificates that end soon, or whose changed files cannot be used.

    Args:
        shown: the contexts of connections to other servers. Those of a program's own making are left out.
    """
    contexts = [each for each in shown if isinstance(each, ClientContext)]
    return CLIENT_CERTIFICATE, lambda: "; ".join(filter(None, (each.problem(clock.now_ms()) for each in contexts)))
