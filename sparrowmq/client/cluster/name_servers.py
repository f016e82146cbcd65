"""Asks name servers: one of them, and the next one when it does not answer.

The page of an address server is read again every two minutes, so that name servers can move while clients run.
Source: TopAddressing, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import Collection
from http.client import HTTPException
from typing import Final, TypeVar

from sparrowmq.client.cluster.namesrv_addresses import NameServerList, split
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


class NameServers:
    """Asks one of several name servers.

    Args:
        servers: their addresses; may be empty while `page` tells.
        page: the URL of an address server.
    """

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
        """The answer of the first name server that answers; each is asked at most once.

        Args:
            address: only the name server there is asked, and its own NetworkError is raised.
        Raises:
            RemoteError: it answered with an error; the others would say the same.
            WrongServer: a broker is at an address, and no name server answered at another.
            NameServerUnreachable: none answered.
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
        wrong: WrongServer | None = None
        for address in self._servers.in_turn():
            try:
                session = await self._pool.session(address)
                return await session.call(request, body, timeout_s=timeout_s, accept=accept)
            except NetworkError as error:
                failure = error
            except RemoteError as remote:
                refused = if_broker(remote, request, address)
                if not isinstance(refused, WrongServer):
                    raise
                wrong = refused  # The next address may be that of a name server.
        if wrong is not None and failure is None:
            raise wrong
        assert failure is not None, "there is at least one name server"
        reason = failure.reason if isinstance(failure, BrokerUnreachable) else failure
        raise NameServerUnreachable(str(self), reason)

    async def fetch(self) -> None:
        """Ask the address server for the name servers.

        Raises: NetworkError, it did not answer, or with something else; the known addresses stay in use.
        """
        if self._page is None:
            return
        try:
            found = split(await asyncio.to_thread(_read, self._page))
            if not found:
                raise ConfigError("the page is empty")
            for address in found:
                split_address(address)
        except (OSError, HTTPException, UnicodeDecodeError, ConfigError) as error:
            raise NetworkError(
                f"the address server {self._page} does not tell where name servers are ({error}); it should answer "
                "host:port;host:port"
            ) from None
        if found != self.addresses:
            log.info("name servers are at %s", shown(";".join(found)))
            self._servers.addresses = found

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


def _read(page: str) -> str:
    with urllib.request.urlopen(page, timeout=PAGE_TIMEOUT_S) as answer:
        content: bytes = answer.read(MAX_PAGE_BYTES)
    return content.decode()
