"""Opens the gRPC port of a broker whose settings have one. Only then are its modules and packages loaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.core.descriptors import Share
from sparrowmq.grpc import packages
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.budget import SessionLimits
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.tls.tls_contexts import ServerTls

if TYPE_CHECKING:
    from sparrowmq.broker.access_control import AccessControl
    from sparrowmq.broker.state.kept_state import KeptState


@dataclass(frozen=True)
class Inside:
    """The parts of a broker that its gRPC port uses."""

    settings: BrokerSettings
    server: Server
    tls: ServerTls
    turn: Turn
    clock: Clock
    share: Share


def has_port(settings: BrokerSettings) -> bool:
    """Whether a broker has the port. Slaves have none."""
    return settings.grpc_port is not None and not settings.is_slave


async def open_grpc(
    stack: AsyncExitStack, broker: Inside, state: KeptState, access: AccessControl
) -> tuple[str, Callable[[], str]]:
    """Open the port until `stack` is closed, if the broker has one.

    Returns: its address, and the function that says why it closes new connections; "" without the port.
    Raises: ConfigError, it cannot be used, or a package is not installed.
    """
    settings = broker.settings
    if not has_port(settings):
        return "", str
    assert settings.grpc_port is not None
    packages.demand("grpcServerPort")
    from sparrowmq.auth.grpc_signature import Freshness
    from sparrowmq.broker.grpc_port.local_brokers import Home
    from sparrowmq.broker.grpc_port.port import GrpcPort, account_of, counting
    from sparrowmq.grpc.port import ListenAddress
    from sparrowmq.remoting.linked_session import LinkedSession

    clock, port, quotas = broker.clock, broker.server.port, broker.server.quotas
    host = settings.address(port).rpartition(":")[0]
    server = broker.server
    connect = partial(LinkedSession, server.dispatch, clock, SessionLimits(), turn=broker.turn, budget=server.budget)
    where = (host.strip("[]"), port)
    home = Home(settings.cluster, settings.name, where, state.topics, state.groups, connect)
    place = ListenAddress(settings.bind_address, settings.grpc_port, host, broker.share, settings.grpc_is_behind_proxy)
    opened = GrpcPort(home, clock, broker.tls, broker.turn, place, quotas)
    if access.guard is not None:
        freshness = Freshness(settings.grpc_signature_s)
        find = account_of(lambda: access.accounts, clock, freshness, access.has_users)
        assert quotas is not None and access.audit is not None, "the broker has set them"
        opened.account_of = counting(find, quotas, clock, access.audit)
    await stack.enter_async_context(opened)
    return opened.address, opened.problem
