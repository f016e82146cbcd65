"""The settings that a member of a group with failover needs, and those that it must not have."""

from __future__ import annotations

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.hosts import split_address
from sparrowmq.remoting.listen_address import is_loopback
from sparrowmq.remoting.tls.tls_settings import TlsMode


def demand_member(settings: BrokerSettings) -> None:
    """Check that the settings are those of a member. Raises: ConfigError."""
    settings.demand_etcd()
    if settings.broker_id == 0:
        raise ConfigError(
            "brokerId = 0 is the master's; with enableControllerMode=true give each broker of "
            f"{settings.name} another one, such as brokerId=1"
        )
    if settings.is_slave:
        raise ConfigError(
            "who is a slave is decided by etcd where enableControllerMode=true: set brokerRole to what this broker is "
            "to be as a master, SYNC_MASTER or ASYNC_MASTER"
        )
    if settings.ha_master is not None:
        raise ConfigError(
            "haMasterAddress and enableControllerMode exclude each other: leave haMasterAddress out"
        )
    if not settings.port or settings.ha_port == 0:
        raise ConfigError("enableControllerMode needs a listenPort and a haListenPort that stay the same")
    is_here = all(is_loopback(split_address(address)[0]) for address in settings.etcd)
    if settings.tls_mode is TlsMode.ENFORCING and not settings.etcd_tls and not is_here:
        raise ConfigError(
            "tls.server.mode=enforcing, and etcd, which decides who is the master, is asked in the clear: set "
            "etcd.tls.enable=true"
        )
