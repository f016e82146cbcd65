"""A gRPC port: the methods of RocketMQ 5 in front of brokers, behind a server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from sparrowmq.core.descriptors import Share
from sparrowmq.grpc.brokers import Cluster
from sparrowmq.grpc.methods import Methods
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.server import GrpcServer
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Background
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.tls.tls_contexts import ServerTls

DRAIN_S: Final = 1.0


class ListenAddress(NamedTuple):
    """The place of a port.

    Attributes:
        host, port: to listen on; port 0 takes a free one.
        advertised_host: the host by which clients reach it.
        share: of the descriptors, for this port.
        is_behind_proxy: each connection begins with a PROXY header, which names the client.
    """

    host: str
    port: int
    advertised_host: str
    share: Share
    is_behind_proxy: bool = False


class OpenPort(NamedTuple):
    """A port that serves clients.

    Attributes:
        address: by which clients reach it.
        problem: returns why it closes new connections; "" if it does not.
    """

    address: str
    problem: Callable[[], str]


async def open_port(
    stack: AsyncExitStack,
    tasks: Background,
    cluster: Cluster,
    clock: Clock,
    tls: ServerTls,
    place: ListenAddress,
    turn: Turn | None = None,
    quotas: Quotas | None = None,
) -> OpenPort:
    """Serve clients until `stack` is closed.

    Raises:
        ConfigError: the port or the certificate cannot be used.
    """
    methods = Methods(cluster, clock, tasks)
    limits = Limits(connections=min(Limits.connections, place.share.connections), backlog=place.share.backlog)
    server = await stack.enter_async_context(
        GrpcServer(
            methods.by_path(),
            limits,
            tls=tls,
            is_behind_proxy=place.is_behind_proxy,
            clock=clock,
            turn=turn,
            quotas=quotas,
        )
    )
    port = await server.start(place.host, place.port)
    stack.push_async_callback(server.drain, DRAIN_S)
    methods.address = f"{place.advertised_host}:{port}"
    return OpenPort(methods.address, lambda: server.problem)
