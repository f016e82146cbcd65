"""The port of a master for its slaves, and the settings that each role needs.

    haListenPort=        listenPort + 1, if it is free; otherwise the log of the broker has a warning
    haListenPort=10912   this port, or the broker does not start
    haListenPort=off     none

A SYNC_MASTER needs this port, and a slave has none. Any host that reaches the port can read all messages. So with
aclEnable=true it opens only with a haSecret, which Java's slaves do not support. Its traffic is not encrypted.
Source: HAService.AcceptSocketService and BrokerStartup.createBrokerController, Java 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings, SlaveAck
from sparrowmq.broker.replication.primary import PrimaryRules
from sparrowmq.broker.replication.slave_link import ShippingRules
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.door import Door

if TYPE_CHECKING:
    from sparrowmq.broker.replication.replica import ReplicaRules

log = logging.getLogger(__name__)

ABOVE: Final = 1
_HIGHEST: Final = 65535


def demand_role(settings: BrokerSettings) -> None:
    """Check that the settings fit the broker's role.

    Unlike Java, which gives every master the id 0: a slave without brokerRole then takes its master's place.

    Raises:
        ConfigError: a setting does not fit.
    """
    role, broker_id = settings.role, settings.broker_id
    if settings.ha_silence_ms <= settings.ha_heartbeat_ms:
        raise ConfigError(
            f"haHousekeepingInterval = {settings.ha_silence_ms} ms would end each connection between two signs of "
            f"life, which come every {settings.ha_heartbeat_ms} ms (haSendHeartbeatInterval); give it several times "
            "as much"
        )
    if settings.is_slave and broker_id == 0:
        raise ConfigError("brokerId = 0 is a master's; give a slave another one, such as brokerId=1")
    if not settings.is_slave and broker_id != 0:
        raise ConfigError(f"brokerId = {broker_id} is a slave's: set brokerRole=SLAVE, or brokerId=0")
    if role is BrokerRole.SYNC_MASTER and settings.ha_port == 0:
        raise ConfigError("a SYNC_MASTER needs slaves, and haListenPort=off lets none come")
    if role is BrokerRole.SYNC_MASTER and not _may_listen(settings):
        raise ConfigError(
            "a SYNC_MASTER needs slaves, and with aclEnable=true none may come without a secret: set haSecret, "
            "the same here and at the slaves"
        )


def ha_door(settings: BrokerSettings, port: int) -> Door | None:
    """Return the bound port for slaves; None if this broker accepts no slaves.

    Args:
        port: the broker's own port.
    Raises:
        ConfigError: the port is required, and not free.
    """
    wanted = settings.ha_port
    if settings.is_slave or wanted == 0 or not _may_listen(settings):
        return None
    beside = min(port + ABOVE, _HIGHEST) if settings.port else 0
    door = Door(settings.bind_address, wanted or beside, "haListenPort")
    try:
        door.bind()
    except ConfigError as error:
        if wanted is not None or settings.role is BrokerRole.SYNC_MASTER:
            raise
        log.warning("slaves cannot follow this master (%s; haListenPort=off does without)", error)
        return None
    return door


def primary_rules(settings: BrokerSettings) -> PrimaryRules:
    """Return the rules of a master from the settings."""
    return PrimaryRules(
        settings.role is BrokerRole.SYNC_MASTER,
        settings.slave_timeout_ms / 1000,
        settings.nearest_slave_bytes,
        ShippingRules(
            settings.ha_batch_bytes,
            settings.ha_heartbeat_ms / 1000,
            settings.ha_silence_ms / 1000,
            settings.ha_secret,
        ),
    )


def replica_rules(settings: BrokerSettings) -> ReplicaRules:
    """Return the rules of a slave from the settings."""
    from sparrowmq.broker.replication.replica import ReplicaRules  # a master does not load it

    return ReplicaRules(
        settings.ha_master,
        settings.ha_heartbeat_ms / 1000,
        settings.ha_silence_ms / 1000,
        settings.slave_ack is SlaveAck.FLUSHED,
        settings.ha_secret,
    )


def _may_listen(settings: BrokerSettings) -> bool:
    """Whether the port is safe to open: without access control, or with a secret for slaves."""
    return not settings.acl or settings.ha_secret is not None
