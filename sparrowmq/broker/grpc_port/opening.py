"""Opens the gRPC port of a broker whose settings have one. Only then are its modules and packages loaded."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session, SessionLimits
from sparrowmq.remoting.tls.tls_contexts import ServerTls

if TYPE_CHECKING:
    from sparrowmq.broker.access_control import AccessControl
    from sparrowmq.broker.state.kept_state import KeptState

PACKAGES: Final = ("google", "hpack")


@dataclass(frozen=True)
class Inside:
    """The parts of a broker that its gRPC port uses."""

    settings: BrokerSettings
    server: Server
    tls: ServerTls
    turn: Turn
    clock: Clock


async def open_grpc(stack: AsyncExitStack, broker: Inside, state: KeptState, access: AccessControl) -> str:
    """Open the port until `stack` is closed. Returns its address; "" without one, and slaves have none.

    Raises:
        ConfigError: it cannot be used, or a package is not installed.
    """
    settings = broker.settings
    if settings.grpc_port is None or settings.is_slave:
        return ""
    try:
        from sparrowmq.auth.grpc_signature import Freshness
        from sparrowmq.broker.grpc_port.local_brokers import Home
        from sparrowmq.broker.grpc_port.port import GrpcPort, account_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        raise ConfigError(
            f"grpcServerPort needs the package {error.name}: pip install 'sparrowmq[grpc]', or leave the port out"
        ) from None
    clock, port = broker.clock, broker.server.port
    host = settings.address(port).rpartition(":")[0]
    connect = partial(Session, broker.server.dispatch, clock, SessionLimits(), turn=broker.turn)
    where = (host.strip("[]"), port)
    home = Home(settings.cluster, settings.name, where, state.topics, state.groups, connect)
    at = (settings.bind_address, settings.grpc_port)
    opened = GrpcPort(home, clock, broker.tls, broker.turn, at, host)
    if access.guard is not None:
        opened.account_of = account_of(lambda: access.accounts, clock, Freshness(settings.grpc_signature_s))
    return (await stack.enter_async_context(opened)).address
