"""Check whether other machines can reach a listen address, or this machine alone.

A server is open to all clients that can reach it if it does not check who they are. Such a server starts only when its
operator says that this is intended. Brokers and name servers check clients with access control. Unlike Java, whose
servers listen on every address.
"""

from __future__ import annotations

import ipaddress

from sparrowmq.errors import ConfigError

EVERYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. All names except localhost count as public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_public(host: str, insecure: bool) -> None:
    """Refuse a public address, unless `insecure` is set: the operator allows it, or the server checks its peers.

    Raises: ConfigError, other machines would reach the server, and it would not check who they are.
    """
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"listening on {host} would let everybody who reaches it read, write and delete. Give the server accounts "
            "(aclEnable=true; docs/operate/security.md), start with --insecure (or insecure=true) "
            "if the network is trusted, or listen on 127.0.0.1"
        )
