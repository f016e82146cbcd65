"""The name servers a client knows: one is asked, chosen at random first, and the next one when it does not answer.

Name servers know nothing of each other and each broker tells them all the same, so any answer is as good as
another. Where they are is given, or stands in NAMESRV_ADDR, or is told by an address server, a web page that holds
"host:port;host:port" and is read again every two minutes, so that name servers can move under running clients.
Source: NettyRemotingClient.getAndCreateNameserverChannel and TopAddressing, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import urllib.request
from collections.abc import Callable, Collection, Sequence
from http.client import HTTPException
from typing import Final, TypeVar

from sparrowmq.clock import Clock
from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.pool import Pool, split_address
from sparrowmq.remoting.session import Response

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Header)

ADDRESSES: Final = "NAMESRV_ADDR"
DOMAIN: Final = "ROCKETMQ_NAMESRV_DOMAIN"
SUBGROUP: Final = "ROCKETMQ_NAMESRV_SUBGROUP"
REFETCH_S: Final = 120.0
PAGE_TIMEOUT_S: Final = 3.0
MAX_PAGE_BYTES: Final = 64 * 1024


class NameServers:
    """Asks one of several name servers.

    Args:
        addresses: where they are; may be empty while `page` tells.
        page: the URL of an address server.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        pool: Pool,
        page: str | None = None,
        start: Callable[[int], int] = random.randrange,
    ) -> None:
        self.addresses = list(addresses)
        self._pool = pool
        self._page = page
        self._turn = start(1 << 16)

    def __str__(self) -> str:
        return ";".join(self.addresses) or self._page or ""

    async def call(
        self, request: Request[R], *, timeout_s: float = 3.0, accept: Collection[int] = ()
    ) -> Response[R]:
        """The answer of the first name server that gives one; each is asked at most once.

        Raises:
            RemoteError: it answered with an error; the others would say the same.
            NetworkError: none answered.
        """
        if not self.addresses:
            await self.fetch()
        failure: NetworkError | None = None
        for _ in self.addresses:
            address = self.addresses[self._turn % len(self.addresses)]
            try:
                session = await self._pool.session(address)
                return await session.call(request, timeout_s=timeout_s, accept=accept)
            except NetworkError as error:
                failure = error
                self._turn += 1
        assert failure is not None, "there is at least one name server"
        raise failure

    async def fetch(self) -> None:
        """Ask the address server where the name servers are.

        Raises:
            NetworkError: it did not answer, or with something else; the known addresses stay in use.
        """
        if self._page is None:
            return
        try:
            found = _split(await asyncio.to_thread(_read, self._page))
            if not found:
                raise ConfigError("the page is empty")
            for address in found:
                split_address(address)
        except (OSError, HTTPException, UnicodeDecodeError, ConfigError) as error:
            raise NetworkError(
                f"the address server {self._page} does not tell where name servers are ({error}); it should answer "
                "host:port;host:port"
            ) from error
        if found != self.addresses:
            log.info("name servers are at %s", ";".join(found))
            self.addresses = found

    async def keep_fresh(self, clock: Clock) -> None:
        """For ever: ask the address server anew every two minutes. Without one there is nothing to do."""
        while self._page is not None:
            await clock.sleep(REFETCH_S)
            try:
                await self.fetch()
            except NetworkError as error:
                log.warning("%s", error)


def addresses_of(namesrv: str | Sequence[str] | None) -> tuple[list[str], str | None]:
    """What the caller gave, or else the environment: a list of `host:port`, or the page of an address server.

    Raises:
        ConfigError: there is neither, or an address is none.
    """
    given = namesrv if namesrv is not None else os.environ.get(ADDRESSES, "")
    if isinstance(given, str) and given.startswith(("http://", "https://")):
        return [], given
    addresses = _split(given) if isinstance(given, str) else list(dict.fromkeys(map(str.strip, given)))
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


def page_of(domain: str, subgroup: str) -> str:
    """Where an address server answers; 8080 is its port unless the domain names another."""
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{subgroup}"


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(address for address in re.split(r"[;,\s]+", text) if address))


def _read(page: str) -> str:
    with urllib.request.urlopen(page, timeout=PAGE_TIMEOUT_S) as answer:
        content: bytes = answer.read(MAX_PAGE_BYTES)
    return content.decode()
