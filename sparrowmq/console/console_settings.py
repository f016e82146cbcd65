"""The settings of a console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

from sparrowmq.console.users import Accounts
from sparrowmq.errors import ConfigError

PORT: Final = 8082  # the official dashboard's


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The address, the users and the files of a console.

    Raises: ConfigError, other machines reach an address without encryption or for metrics, and `insecure` is not set.
    """

    accounts: Accounts
    namesrv: str | None = None  # as `connect` takes it
    host: str = "127.0.0.1"
    port: int = PORT
    prefix: str = ""  # of the paths of all addresses, such as "/mq"
    read_only: bool = False  # every user has the role view
    insecure: bool = False
    certificate: str | None = None  # its file, for https
    key: str | None = None  # the file of its private key
    trusted_proxy: Sequence[str] = ()  # addresses and networks of proxies, whose X-Forwarded headers count
    history: Path | None = None  # the folder for the dashboard's figures; None keeps them in memory
    metrics_port: int | None = None  # for Prometheus; 0 takes a free port, None opens none
    metrics_host: str = "127.0.0.1"  # the address of that port, which needs no log-in

    def __post_init__(self) -> None:
        if self.prefix and (not self.prefix.startswith("/") or self.prefix.endswith("/") or "//" in self.prefix):
            raise ConfigError(
                f"--prefix {self.prefix!r}: write it as /mq, with a slash at the start and none at the end"
            )
        for proxy in self.trusted_proxy:
            try:
                ip_network(proxy)
            except ValueError as error:
                raise ConfigError(
                    f"--trusted-proxy {proxy}: {error}; give the address of the proxy, or a network such as 10.0.0.0/24"
                ) from error
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("https needs both --certificate and --key")
        if not _is_loopback(self.host) and self.certificate is None and not self.insecure:
            raise ConfigError(
                f"--host {self.host}: others reach this address, and passwords would cross the network unencrypted; "
                "give --certificate and --key, or --insecure if a proxy before it encrypts"
            )
        if self.metrics_port is not None and not _is_loopback(self.metrics_host) and not self.insecure:
            raise ConfigError(
                f"--metrics-host {self.metrics_host}: other machines reach this address, and metrics need no log-in; "
                "use 127.0.0.1, or add --insecure if the network is trusted"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
