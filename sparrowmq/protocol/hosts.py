"""Hosts as text, and as bytes on the wire: the raw address (4 or 16 bytes) and the port as int32.

    IPv4   | address 4 | port 4 |      8 bytes    "10.0.0.1:10911"
    IPv6   | address 16 | port 4 |    20 bytes    "[::1]:10911"

Records, offset ids and the born and store hosts of messages all use this form.
Source: MessageExt.socketAddress2ByteBuffer, Java 4.9.8.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError, LocalProtocolError, RemoteProtocolError

_HOST_PATTERN = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?")

IPV4_SIZE = 8
IPV6_SIZE = 20

_IPV4_BYTES = 4
_NETWORK_BYTES = 8  # of an IPv6 address
_MAPPED_PREFIX = bytes(10) + b"\xff\xff"


@lru_cache(maxsize=4096)
def pack(address: str) -> bytes:
    """Convert `"ip:port"` or `"[ip]:port"` to bytes. Names are not resolved. Raises: LocalProtocolError, the text is
    not an IP address with a port.
    """
    host, _, port = address.rpartition(":")
    number = whole_number(port)
    try:
        if number is None or number > 65535:
            raise ValueError(port)
        return ipaddress.ip_address(host.strip("[]")).packed + number.to_bytes(4, "big")
    except ValueError:
        raise LocalProtocolError(
            f"{address!r} is not a host address: write ip:port, as 10.0.0.1:10911 or [::1]:10911"
        ) from None


@lru_cache(maxsize=4096)
def unpack(host: bytes) -> str:
    """Convert the bytes of `pack` to text. Raises: RemoteProtocolError, the length is neither 8 nor 20 bytes."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == IPV4_SIZE:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    if len(host) == IPV6_SIZE:
        return f"[{ipaddress.IPv6Address(host[:16])}]:{port}"
    raise RemoteProtocolError(f"a host takes 8 bytes (IPv4) or 20 (IPv6), not {len(host)}")


def limit_key(address: bytes) -> bytes:
    """Return the address (4 bytes) or network (8 bytes) by which limits count a packed address of 4 or 16 bytes. A host
    with IPv6 owns a /64, so its addresses count together. An IPv4 address inside IPv6 counts as IPv4.
    """
    if address.startswith(_MAPPED_PREFIX):
        return address[len(_MAPPED_PREFIX) :]
    return address if len(address) == _IPV4_BYTES else address[:_NETWORK_BYTES]


def split_address(address: str, least_port: int = 1) -> tuple[str, int]:
    """Split `host:port`. IPv6 hosts are in brackets. Raises: ConfigError, the text has another form."""
    host, _, digits = address.strip().rpartition(":")
    port = whole_number(digits)
    if not host or port is None or not least_port <= port < 65536:
        raise ConfigError(f"{address!r} is not an address; write host:port, as in 127.0.0.1:9876")
    return check_host(host[1:-1] if host[0] == "[" and host[-1] == "]" else host), port


def address_text(address: object) -> str:
    if isinstance(address, tuple) and len(address) >= 2:
        return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"
    return str(address or "?")


def check_host(host: str) -> str:
    """Return the host if it is a valid name or IP address. It is not resolved. Raises: ConfigError."""
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ConfigError(f"{host!r} is not a host; an IPv6 address is written as in [::1]:9876") from None
    elif not _HOST_PATTERN.fullmatch(host):
        raise ConfigError(
            f"{host!r} is not a host; write a name, each part of which between dots has 1 to 63 letters, digits, "
            "'-' or '_', or an IP address"
        )
    return host
