"""The addresses of name servers, their turns, and the address of ours that they see.

The addresses are given, or come from NAMESRV_ADDR or an address server, a web page with "host:port;host:port".
Source: NettyRemotingClient.getAndCreateNameserverChannel and TopAddressing, Java 4.9.8.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.hosts import split_address

PORT: Final = 9876
ADDRESSES: Final = "NAMESRV_ADDR"
DOMAIN: Final = "ROCKETMQ_NAMESRV_DOMAIN"
SUBGROUP: Final = "ROCKETMQ_NAMESRV_SUBGROUP"


class NameServerList:
    """Several name servers, of which one is asked until it does not answer.

    They do not know each other, and every broker registers at all of them, so each answer is as good as another. The
    first one is chosen at random.
    """

    def __init__(self, addresses: Sequence[str], start: Callable[[int], int] = random.randrange) -> None:
        self.addresses = list(addresses)
        self._turn = start(1 << 16)

    def __str__(self) -> str:
        return ";".join(self.addresses)

    def in_turn(self) -> Iterator[str]:
        """Every address once. Taking the next one means that the last did not answer."""
        for _ in self.addresses:
            yield self.addresses[self._turn % len(self.addresses)]
            self._turn += 1


def addresses_of(namesrv: str | Sequence[str] | None) -> tuple[list[str], str | None]:
    """The caller's addresses, or those of the environment: a list of `host:port`, or an address server's page.

    An address without a port is given that of name servers, 9876.

    Raises: ConfigError, there is neither, or an address is none.
    """
    given = namesrv if namesrv is not None else os.environ.get(ADDRESSES, "")
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return [], given
    if not isinstance(given, str) and not _is_list_of_texts(given):
        raise ConfigError(
            f"namesrv={given!r}: give an address such as '127.0.0.1:9876', several in a list, or separated by ';'"
        )
    words = split(given) if isinstance(given, str) else map(str.strip, given)
    addresses = list(dict.fromkeys(map(with_port, words)))
    for address in addresses:
        split_address(address)
    if addresses:
        return addresses, None
    if namesrv is None and (domain := os.environ.get(DOMAIN)):
        return [], page_of(domain, os.environ.get(SUBGROUP, "nsaddr"))
    raise ConfigError(
        f"no name server is known; give one, as in connect('127.0.0.1:9876'), or set {ADDRESSES} "
        f"(several are separated by ';'), or {DOMAIN} if an address server tells"
    )


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(each, str) for each in value)


def with_port(address: str) -> str:
    """The address, with the port of name servers if it has none: `host`, `10.0.0.1` or `[::1]`."""
    return address if ":" in address and not address.endswith("]") else f"{address}:{PORT}"


def page_of(domain: str, subgroup: str) -> str:
    """The URL of an address server. Its port is 8080, unless the domain has another."""
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{subgroup}"


def split(text: str) -> list[str]:
    """The distinct parts of a list, which semicolons, commas or blanks separate."""
    return list(dict.fromkeys(address for address in re.split(r"[;,\s]+", text) if address))


def local_ip(name_servers: Sequence[str]) -> str:
    """The address of this machine towards a name server, or towards the internet for a host name."""
    for address in (*name_servers, "192.0.2.1:9"):
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.inet_pton(family, host)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, port))  # UDP: nothing is sent.
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
