"""The ports of a broker beside its own: the one of the VIP channel, and the one for gRPC.

Java's clients before 4.5 send their messages to the port two below the first (the VIP channel). That port takes every
request but pulls. No server gives out its address: a client with `vipChannelEnabled` subtracts 2 from the broker's
port.

    fastListenPort=        listenPort - 2, if that port is free; otherwise the log has a warning
    fastListenPort=10909   this port, or the broker does not start
    fastListenPort=off     no second port; there is none without a fixed listenPort either
Unlike Java: a Java broker always opens the port, and does not start without it.
Source: BrokerController.fastRemotingServer and MixAll.brokerVIPChannel, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.core.descriptors import Share
from sparrowmq.errors import ConfigError
from sparrowmq.grpc import packages
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.listener import Listener
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Dispatch, Session
from sparrowmq.remoting.tls.contexts import ServerTls

if TYPE_CHECKING:
    from sparrowmq.broker.access_control import AccessControl
    from sparrowmq.broker.broker_state import BrokerState

log = logging.getLogger(__name__)
VIP_PORT_BELOW: Final = 2


def bind_vip_port(settings: BrokerSettings) -> Listener | None:
    """Bind the second port; None if the settings want none, or the default port is taken. Raises: ConfigError."""
    port_setting = settings.fast_port
    if port_setting == 0 or (port_setting is None and settings.port <= VIP_PORT_BELOW):
        return None
    listener = Listener(settings.bind_address, port_setting or settings.port - VIP_PORT_BELOW, "fastListenPort")
    try:
        listener.bind()
    except ConfigError as error:
        if port_setting is not None:
            raise
        log.warning(
            "clients that send by the VIP channel, as Java's before 4.5 do, are not served (%s; fastListenPort=off "
            "does without)",
            error,
        )
        return None
    return listener


def without_pulls(dispatch: Dispatch) -> Dispatch:
    """Return the handler for the second port: it refuses pulls, as Java does, and leaves the rest to `dispatch`."""

    def handle(session: Session, command: Command) -> None:
        if command.code == RequestCode.PULL_MESSAGE:
            session.reply(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                None,
                f"request code {command.code} is not supported (pull at the broker's own port, not the VIP channel)",
            )
        else:
            dispatch(session, command)

    return handle


@dataclass(frozen=True)
class GrpcPortParts:
    settings: BrokerSettings
    server: Server
    tls: ServerTls
    turn: Turn
    clock: Clock
    share: Share


def has_port(settings: BrokerSettings) -> bool:
    """Whether a broker has a gRPC port. Slaves have none."""
    return settings.grpc_port is not None and not settings.is_slave


async def open_grpc(
    stack: AsyncExitStack, broker: GrpcPortParts, state: BrokerState, access: AccessControl
) -> tuple[str, Callable[[], str]]:
    """Open the gRPC port until `stack` is closed, if the broker has one. Only then are its modules loaded.

    Returns: its address, and the function that says why it closes new connections; "" without the port.
    Raises: ConfigError, it cannot be used, or a package is not installed.
    """
    settings = broker.settings
    if not has_port(settings):
        return "", str
    assert settings.grpc_port is not None
    packages.check_installed("grpcServerPort")
    from sparrowmq.auth.grpc_signature import Freshness
    from sparrowmq.broker.grpc_port import GrpcPort, ServedBroker, account_of
    from sparrowmq.grpc.port import ListenAddress
    from sparrowmq.remoting.local_peer import LocalServer

    clock, port, quotas = broker.clock, broker.server.port, broker.server.quotas
    host = settings.address(port).rpartition(":")[0]
    server = LocalServer(broker.server.dispatch, clock, f"{host}:{port}", turn=broker.turn, budget=broker.server.budget)
    served = ServedBroker(settings.cluster, settings.name, server, state.topics, state.groups)
    listen_address = ListenAddress(
        settings.bind_address, settings.grpc_port, host, broker.share, settings.grpc_is_behind_proxy
    )
    find_account = None
    if access.guard is not None:
        assert quotas is not None, "the broker has set them"
        find_account = account_of(access, clock, Freshness(settings.grpc_signature_s), quotas)
    opened = GrpcPort(served, clock, broker.tls, broker.turn, listen_address, quotas, find_account)
    await stack.enter_async_context(opened)
    return opened.address, opened.problem
