"""A gRPC port: the methods of RocketMQ 5 in front of brokers, behind a server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from sparrowmq.grpc.brokers import Cluster
from sparrowmq.grpc.methods import Methods
from sparrowmq.http2.server import GrpcServer
from sparrowmq.loop.background import Background
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.tls.tls_contexts import ServerTls

DRAIN_S: Final = 1.0


class Place(NamedTuple):
    """The place of a port.

    Attributes:
        host, port: to listen on; port 0 takes a free one.
        told: the host by which clients reach it.
    """

    host: str
    port: int
    told: str


async def open_port(
    stack: AsyncExitStack,
    tasks: Background,
    cluster: Cluster,
    clock: Clock,
    tls: ServerTls,
    place: Place,
    turn: Turn | None = None,
) -> str:
    """Serve clients until `stack` is closed. Return the address by which they reach the port.

    Raises:
        ConfigError: the port or the certificate cannot be used.
    """
    methods = Methods(cluster, clock, tasks)
    server = await stack.enter_async_context(GrpcServer(methods.by_path(), tls=tls, clock=clock, turn=turn))
    port = await server.start(place.host, place.port)
    stack.push_async_callback(server.drain, DRAIN_S)
    methods.address = f"{place.told}:{port}"
    return methods.address
