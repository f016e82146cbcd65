"""The port of a master for its slaves, and the settings that each role needs.

    haListenPort=        listenPort + 1, if it is free; otherwise the log of the broker has a warning
    haListenPort=10912   this port, or the broker does not start
    haListenPort=off     none

A SYNC_MASTER needs this port, and a slave has none. Any host that reaches the port can read all messages. So with
access control or tls.server.mode=enforcing it lets only slaves in that know the haSecret, which Java's do not support.
Without a haSecret it then lets no slave in.

TLS is as at listenPort: tls.server.mode decides, with the same certificates. A slave encrypts as it does to its name
servers, by tls.enable. Java's replication has no TLS.
Source: HAService.AcceptSocketService and BrokerStartup.createBrokerController, Java 4.9.8.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings, SlaveAck
from sparrowmq.broker.replication.primary import PrimaryRules
from sparrowmq.broker.replication.slave_link import ShippingRules
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.door import Door
from sparrowmq.remoting.listen_address import refuse_public
from sparrowmq.remoting.tls.tls_settings import TlsMode

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
    if settings.ha_bind is not None:
        refuse_public(settings.ha_bind, settings.insecure or settings.checks_access)
    if settings.failover and _secret(settings) == "":
        raise ConfigError(
            "a member with enableControllerMode=true may be master or slave, and with access control or "
            "tls.server.mode=enforcing none may follow without a secret: set haSecret, the same at all members"
        )


def ha_door(settings: BrokerSettings, port: int) -> Door | None:
    """Return the bound port for slaves; None if this broker accepts no slaves.

    Args:
        port: the broker's own port.
    Raises:
        ConfigError: the port is required, and not free.
    """
    wanted = settings.ha_port
    if settings.is_slave or wanted == 0:
        return None
    door = port_for_slaves(settings, min(port + ABOVE, _HIGHEST) if settings.port else 0)
    try:
        door.bind()
    except ConfigError as error:
        if wanted is not None or settings.role is BrokerRole.SYNC_MASTER:
            raise
        log.warning("slaves cannot follow this master (%s; haListenPort=off does without)", error)
        return None
    return door


def port_for_slaves(settings: BrokerSettings, beside: int = 0) -> Door:
    """Return the port for slaves, not bound yet; `beside` is the port without a setting."""
    return Door(settings.ha_bind or settings.bind_address, settings.ha_port or beside, "haListenPort")


def primary_rules(settings: BrokerSettings, epoch: int | None = None) -> PrimaryRules:
    """Return the rules of a master; `epoch` is that of an elected one."""
    return PrimaryRules(
        settings.role is BrokerRole.SYNC_MASTER,
        settings.slave_timeout_ms / 1000,
        settings.nearest_slave_bytes,
        ShippingRules(
            settings.ha_batch_bytes,
            settings.ha_heartbeat_ms / 1000,
            settings.ha_silence_ms / 1000,
            _secret(settings),
            epoch,
        ),
    )


def replica_rules(settings: BrokerSettings, tls: ssl.SSLContext | None) -> ReplicaRules:
    from sparrowmq.broker.replication.replica import ReplicaRules  # a master does not load it

    return ReplicaRules(
        settings.ha_master,
        settings.ha_heartbeat_ms / 1000,
        settings.ha_silence_ms / 1000,
        settings.slave_ack is SlaveAck.FLUSHED,
        settings.ha_secret or None,
        tls=tls,
    )


def _secret(settings: BrokerSettings) -> str | None:
    """Return the secret of slaves: None if they need none, "" if they need one that is not set."""
    is_guarded = settings.checks_access or settings.tls_mode is TlsMode.ENFORCING
    return settings.ha_secret or ("" if is_guarded else None)
