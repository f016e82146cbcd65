"""The port of `mqproxy` for clients of the remoting protocol."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from sparrowmq.grpc.port import DRAIN_S, ListenAddress, OpenPort
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Background, over
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.mqproxy.remoting.client_relay import Relay, Servers
from sparrowmq.mqproxy.room import Room
from sparrowmq.mqproxy.users import BrokerUsers
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.log_limit import LogLimit
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
    place: ListenAddress,
) -> OpenPort:
    """Serve clients until `stack` is closed. Connections to brokers have descriptors of the port's share, too.

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

    limits = limits_for(place.share)
    most_clients = limits.connections // DESCRIPTORS_EACH
    room = Room(most_clients * (DESCRIPTORS_EACH - 1))
    server = Server(
        dispatch,
        clock,
        place.host,
        place.port,
        replace(limits, connections=most_clients),
        tls=tls,
    )
    server.bind()
    address = f"{place.advertised_host}:{server.port}"
    servers = Servers(
        cluster=cluster,
        users=users,
        clock=clock,
        tasks=tasks,
        tls=broker_tls,
        address=address,
        room=room,
        lines=LogLimit(clock),
    )
    await stack.enter_async_context(server)
    stack.push_async_callback(drained, room)
    tasks.spawn(server.drop_silent_peers(), "silent remoting clients")
    return OpenPort(address, lambda: server.problem or room.problem)


async def drained(room: Room) -> None:
    """Take no more requests, and return when those before have their answers, or after `DRAIN_S`."""
    room.is_stopping = True
    await over(lambda: bool(room.requests), DRAIN_S)
