"""The name servers of a client: their addresses, and requests to one of them, or to the next if it does not answer.

The addresses are given, or come from NAMESRV_ADDR or from an address server, a web page with "host:port;host:port". The
page is read again every two minutes, so that name servers can move while clients run.
Source: NettyRemotingClient.getAndCreateNameserverChannel and TopAddressing, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import socket
import urllib.request
from collections.abc import Callable, Collection, Iterator, Sequence
from http.client import HTTPException
from typing import Final, TypeVar

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    NameServerUnreachable,
    NetworkError,
    RemoteError,
    WrongServer,
)
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.namesrv_headers import if_broker
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Header)
FIRST_REFETCH_S: Final = 10.0
REFETCH_S: Final = 120.0
PAGE_TIMEOUT_S: Final = 3.0
MAX_PAGE_BYTES: Final = 64 * 1024
DEFAULT_PORT: Final = 9876
ADDRESSES_VARIABLE: Final = "NAMESRV_ADDR"
DOMAIN_VARIABLE: Final = "ROCKETMQ_NAMESRV_DOMAIN"
SUBGROUP_VARIABLE: Final = "ROCKETMQ_NAMESRV_SUBGROUP"


class NameServerList:
    """Several name servers, of which one is asked until it does not answer.

    They do not know each other, and every broker registers at all of them, so each answer is as good as another. The
    first one is chosen at random.
    """

    def __init__(self, addresses: Sequence[str], start: Callable[[int], int] = random.randrange) -> None:
        self.addresses = list(addresses)
        self._next_index = start(1 << 16)

    def __str__(self) -> str:
        return ";".join(self.addresses)

    def in_turn(self) -> Iterator[str]:
        """Every address once. Taking the next one means that the last did not answer."""
        for _ in self.addresses:
            yield self.addresses[self._next_index % len(self.addresses)]
            self._next_index += 1


def addresses_of(namesrv: str | Sequence[str] | None) -> tuple[list[str], str | None]:
    """The caller's addresses, or those of the environment: a list of `host:port`, or an address server's page. An
    address without a port is given that of name servers, 9876.
    Raises: ConfigError, there is neither, or an address is none.
    """
    servers = namesrv if namesrv is not None else os.environ.get(ADDRESSES_VARIABLE, "")
    if isinstance(servers, str) and servers.startswith(("http://", "https://")):
        return [], servers
    if not isinstance(servers, str) and not _is_list_of_texts(servers):
        raise ConfigError(
            f"namesrv={servers!r}: give an address such as '127.0.0.1:9876', several in a list, or separated by ';'"
        )
    words = split_addresses(servers) if isinstance(servers, str) else map(str.strip, servers)
    addresses = list(dict.fromkeys(map(with_port, words)))
    for address in addresses:
        split_address(address)
    if addresses:
        return addresses, None
    if namesrv is None and (domain := os.environ.get(DOMAIN_VARIABLE)):
        host = domain if ":" in domain else f"{domain}:8080"
        return [], f"http://{host}/rocketmq/{os.environ.get(SUBGROUP_VARIABLE, 'nsaddr')}"
    raise ConfigError(
        f"no name server is known; give one, as in connect('127.0.0.1:9876'), or set {ADDRESSES_VARIABLE} "
        f"(several are separated by ';'), or {DOMAIN_VARIABLE} if an address server tells"
    )


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(text, str) for text in value)


def with_port(address: str) -> str:
    """The address, with the port of name servers if it has none: `host`, `10.0.0.1` or `[::1]`."""
    return address if ":" in address and not address.endswith("]") else f"{address}:{DEFAULT_PORT}"


def split_addresses(text: str) -> list[str]:
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


class NameServers:
    """Asks one of several name servers. `page` is the URL of an address server, which may name them later."""

    def __init__(self, servers: NameServerList, pool: Pool, page: str | None = None) -> None:
        self._servers = servers
        self._pool = pool
        self._page = page

    def __str__(self) -> str:
        return str(self._servers) or self._page or ""

    @property
    def addresses(self) -> list[str]:
        return self._servers.addresses

    async def call(
        self,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = 3.0,
        accept: Collection[int] = (),
        address: str | None = None,
    ) -> Response[R]:
        """The answer of the first name server that answers; each is asked at most once. With `address` only the name
        server there is asked, and its own NetworkError is raised.
        Raises: RemoteError, it answered with an error, and the others would say the same; WrongServer, a broker is at
        an address, and no name server answered at another; NameServerUnreachable, none answered.
        """
        if address is not None:
            session = await self._pool.session(address)
            try:
                return await session.call(request, body, timeout_s=timeout_s, accept=accept)
            except RemoteError as error:
                raise if_broker(error, request, address) from None
        if not self.addresses:
            await self.fetch()
        failure: NetworkError | None = None
        wrong_server: WrongServer | None = None
        for address in self._servers.in_turn():
            try:
                session = await self._pool.session(address)
                return await session.call(request, body, timeout_s=timeout_s, accept=accept)
            except NetworkError as error:
                failure = error
            except RemoteError as remote:
                error_or_wrong_server = if_broker(remote, request, address)
                if not isinstance(error_or_wrong_server, WrongServer):
                    raise
                wrong_server = error_or_wrong_server  # The next address may be that of a name server.
        if wrong_server is not None and failure is None:
            raise wrong_server
        assert failure is not None, "there is at least one name server"
        reason = failure.reason if isinstance(failure, BrokerUnreachable) else failure
        raise NameServerUnreachable(str(self), reason)

    async def fetch(self) -> None:
        """Ask the address server for the name servers. Raises: NetworkError; the known addresses stay in use."""
        if self._page is None:
            return
        try:
            addresses = split_addresses(await asyncio.to_thread(_read_page, self._page))
            if not addresses:
                raise ConfigError("the page is empty")
            for address in addresses:
                split_address(address)
        except (OSError, HTTPException, UnicodeDecodeError, ConfigError) as error:
            raise NetworkError(
                f"the address server {self._page} does not tell where name servers are ({error}); it should answer "
                "host:port;host:port"
            ) from None
        if addresses != self.addresses:
            log.info("name servers are at %s", shown(";".join(addresses)))
            self._servers.addresses = addresses

    async def keep_fresh(self, clock: Clock) -> None:
        """Ask the address server again after 10 s, then every two minutes. Without an address server return at once."""
        delay_s = FIRST_REFETCH_S
        while self._page is not None:
            await clock.sleep(delay_s)
            delay_s = REFETCH_S
            try:
                await self.fetch()
            except NetworkError as error:
                log.warning("%s", error)


def _read_page(page: str) -> str:
    with urllib.request.urlopen(page, timeout=PAGE_TIMEOUT_S) as answer:
        content: bytes = answer.read(MAX_PAGE_BYTES)
    return content.decode()
