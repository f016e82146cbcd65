"""Who can reach an address that is listened on: this machine alone, or others too.

A server that others can reach and that does not ask who they are is open to them all: it starts only when its operator
says that this is meant. A broker asks with access control; name servers have none, as Apache's have none. Unlike Java:
its servers listen on every address.
"""

from __future__ import annotations

import ipaddress

from sparrowmq.errors import ConfigError

EVERYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address; names but localhost are taken to be public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_public(host: str, insecure: bool) -> None:
    """Do nothing for a loopback address, or when the operator knows, or the server asks who a peer is.

    Raises:
        ConfigError: others would reach the server and nothing would ask who they are.
    """
    if not is_loopback(host) and not insecure:
        raise ConfigError(
            f"listening on {host} would let everybody who reaches it read, write and delete. Give a broker accounts "
            "(aclEnable=true; docs/operate/security.md), start with --insecure (or insecure=true) "
            "if the network is trusted, or listen on 127.0.0.1"
        )
