"""The port of `mqproxy` for clients of the remoting protocol."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from sparrowmq import descriptors
from sparrowmq.loop.background import Background
from sparrowmq.loop.clock import Clock
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.mqproxy.remoting.client_relay import Relay, Servers
from sparrowmq.mqproxy.users import BrokerUsers
from sparrowmq.protocol.wire.command import Command
from sparrowmq.proxy.port import Place
from sparrowmq.remoting.server import Server, limits_for
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.tls_contexts import ServerTls

DESCRIPTORS_EACH: Final = 4  # of a client: its connection, and its own ones to brokers


async def open_remoting_port(
    stack: AsyncExitStack,
    tasks: Background,
    cluster: ClusterBrokers,
    users: BrokerUsers | None,
    clock: Clock,
    tls: ServerTls,
    broker_tls: ssl.SSLContext | None,
    place: Place,
) -> str:
    """Serve clients until `stack` is closed. Return the address by which they reach the port.

    Raises:
        ConfigError: the port or the certificate cannot be used.
    """
    relays: dict[Session, Relay] = {}

    def dispatch(session: Session, command: Command) -> None:
        relay = relays.get(session)
        if relay is None:
            relay = relays[session] = Relay(session, servers)
            session.on_end(relays.pop)
        relay.take(command)

    limits = limits_for(descriptors.share(descriptors.limit(), with_store=False))
    server = Server(
        dispatch,
        clock,
        place.host,
        place.port,
        replace(limits, connections=limits.connections // DESCRIPTORS_EACH),
        tls=tls,
    )
    server.bind()
    address = f"{place.told}:{server.port}"
    servers = Servers(cluster=cluster, users=users, clock=clock, tasks=tasks, tls=broker_tls, address=address)
    await stack.enter_async_context(server)
    tasks.spawn(server.drop_silent_peers(), "silent remoting clients")
    return address
