"""The way from an operation to a server.

An operation builds its request, hands it to an asker, and decodes the answer. The asker chooses the connection and the
time limit, and raises its own errors: `Servers` raises ours, and the `Call` of mqadmin raises Java's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol, TypeVar

from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)

PATIENT: Final = 3  # Java's tools wait so many times as long for an answer that takes a broker long


class Asker(Protocol):
    """Sends requests to the servers of one cluster."""

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        patience: int = 1,
    ) -> Response[R]:
        """Return the answer of one broker.

        Args:
            accept: response codes besides 0 that are no error.
            patience: a multiple of the usual time limit; an asker may ignore it.
        """

    async def ask_namesrv(
        self,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        address: str | None = None,
    ) -> Response[R]:
        """Return the answer of the name server at an address; without an address of the first one that answers."""
