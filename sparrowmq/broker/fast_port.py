"""The second port, two below the first, at which Java's clients before 4.5 send their messages (the VIP channel).

The port takes every request but pulls. No server gives out its address: a client with `vipChannelEnabled` subtracts 2
from the broker's port. One event loop serves both ports, so this port is not faster. It exists only for those clients.

    fastListenPort=        listenPort - 2, if that port is free; otherwise the log has a warning
    fastListenPort=10909   this port, or the broker does not start
    fastListenPort=off     no second port; there is none without a fixed listenPort either
Unlike Java: a Java broker always opens the port, and does not start without it.
Source: BrokerController.fastRemotingServer and MixAll.brokerVIPChannel, Java 4.9.8.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.session import Dispatch, Session

log = logging.getLogger(__name__)

BELOW: Final = 2


def fast_door(settings: BrokerSettings) -> Door | None:
    """Bind the second port. Returns None if the settings want none, or the default port cannot be bound.

    Raises: ConfigError, the settings name the port, and it cannot be bound.
    """
    wanted = settings.fast_port
    if wanted == 0 or (wanted is None and settings.port <= BELOW):
        return None
    door = Door(settings.bind_address, wanted or settings.port - BELOW, "fastListenPort")
    try:
        door.bind()
    except ConfigError as error:
        if wanted is not None:
            raise
        log.warning(
            "clients that send by the VIP channel, as Java's before 4.5 do, are not served (%s; fastListenPort=off "
            "does without)",
            error,
        )
        return None
    return door


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
