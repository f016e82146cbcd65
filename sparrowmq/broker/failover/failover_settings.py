"""The settings of failover: whether brokers of one name elect their master, and the etcd that decides.

    enableControllerMode=true          as in 5.x: brokers elect a master; if it fails, a slave takes its place
    etcdEndpoints=10.0.0.1:2379;...    replaces the controllers of 5.x; all brokers of a name need the same etcd
    brokerId=1                         of this member, permanently; clients see the leader as brokerId 0

Source: BrokerConfig and MessageStoreConfig, Java 5.3, for the keys with the same meaning there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sparrowmq.errors import ConfigError
from sparrowmq.settings.setting_kinds import ADDRESSES, BOOLEAN, PATH, SECRET, TEXT, Kind, duration
from sparrowmq.settings.settings import Settings, setting


def _prefix(text: str) -> str:
    if not text.startswith("/") or text.endswith("/") or any(not part for part in text[1:].split("/")):
        raise ValueError(text)
    return text


_PREFIX = Kind(_prefix, "a path such as /sparrowmq, without a final /")


@dataclass(frozen=True, kw_only=True)
class FailoverSettings(Settings):
    LEAST_LEASE_S: ClassVar[int] = 2  # with its usual settings, etcd grants no shorter lease

    failover: bool = setting("enableControllerMode", False, BOOLEAN)
    """Elect the master among the brokers of this name. Needs etcdEndpoints."""
    etcd: tuple[str, ...] = setting("etcdEndpoints", (), ADDRESSES)
    """Client addresses of the etcd that elects the master."""
    lease_s: int = setting("masterLeaseTime", 4, duration("s", LEAST_LEASE_S, 600))
    """Time that a silent master stays master, in seconds. Must exceed the longest pause of a broker."""
    catch_up_ms: int = setting("haMaxTimeSlaveNotCatchup", 15_000, duration("ms", 100, 3_600_000))
    """Lag from which a slave is out of sync, in milliseconds."""
    etcd_prefix: str = setting("etcdPrefix", "/sparrowmq", _PREFIX)
    """Prefix of all keys in etcd."""
    etcd_user: str | None = setting("etcdUser", None, TEXT)
    """User of the broker in etcd."""
    etcd_password: str | None = setting("etcdPassword", None, SECRET, secret=True)
    """Password of etcdUser."""
    etcd_tls: bool = setting("etcd.tls.enable", False, BOOLEAN)
    """Connect to etcd by TLS and check its certificate."""
    etcd_trust: Path | None = setting("etcd.tls.trustCertPath", None, PATH)
    """File of CA certificates (PEM) for etcd. By default those of the system."""
    etcd_certificate: Path | None = setting("etcd.tls.certPath", None, PATH)
    """Certificate (PEM) that the broker shows to etcd."""
    etcd_key: Path | None = setting("etcd.tls.keyPath", None, PATH)
    """Private key (PEM) of etcd.tls.certPath."""

    def check_etcd(self) -> None:
        """Check that failover has all settings that it needs. Raises: ConfigError."""
        if self.failover and not self.etcd:
            raise ConfigError(
                "enableControllerMode needs etcdEndpoints, the client ports of an etcd, such as 127.0.0.1:2379: it is "
                "etcd that elects the master, and not a controller"
            )
        if (self.etcd_user is None) != (self.etcd_password is None):
            raise ConfigError("etcdUser and etcdPassword go together: set both, or none")
        files = (self.etcd_trust, self.etcd_certificate, self.etcd_key)
        if not self.etcd_tls and any(file is not None for file in files):
            raise ConfigError("etcd.tls files are set, but etcd.tls.enable is not: set etcd.tls.enable=true")
        if (self.etcd_certificate is None) != (self.etcd_key is None):
            raise ConfigError("etcd.tls.certPath and etcd.tls.keyPath go together: set both, or none")
